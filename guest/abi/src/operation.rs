//! Workloads and operations: one table from which everything about an operation derives.
//!
//! To add an operation, see docs/internals/architecture.md.
//!
//! On the wire an operation is its number. In stored data and in all output it is `workload/operation`.

use crate::instruction_set::InstructionSet;
use crate::workload::Workload;

mod set;

pub use set::OpSet;

/// Quantity that a figure of an operation reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Clock ticks per operation: nanoseconds on the wall clock, instructions on the instruction clock.
    Time,
    /// Bytes per clock tick: MB/s on the wall clock, MB per 10^9 instructions on the instruction
    /// clock.
    Rate,
}

/// Direction in which figures improve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Smaller figures are better.
    Less,
    /// Larger figures are better.
    More,
}

/// Content of one sample of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// Duration of a batch of operations, between two readings of the clock.
    Batch,
    /// Time from one event to another, for example from a timer's expiry to the wake-up.
    Lateness,
    /// Duration of a pass over arrays of doubles that moves this many bytes per element.
    Bytes(u64),
}

/// Capability that an operation requires of its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// No capability: runs everywhere.
    Nothing,
    /// An instruction of x86-64.
    X86_64,
    /// An instruction of 64-bit Arm.
    Aarch64,
    /// Processes of an operating system, or of the image.
    Processes,
    /// A serial port whose scratch register keeps its value, [`crate::platform::SERIAL_SCRATCH`].
    ScratchRegister,
    /// A serial port that is emulated or absent.
    SerialPort,
    /// The first virtio-mmio transport, [`crate::platform::VIRTIO_MMIO`].
    VirtioTransport,
    /// A modern virtio device at that transport.
    VirtioDevice,
    /// A modern virtio device with a queue.
    VirtioQueue,
    /// A hypervisor that answers hypercalls.
    Hypercall,
    /// The local APIC.
    LocalApic,
    /// A timer that wakes a sleeping CPU or thread.
    Timer,
    /// Model-specific registers, among them that of the local APIC.
    ModelSpecificRegisters,
    /// Xen as the hypervisor.
    Xen,
    /// An event channel of Xen.
    EventChannel,
    /// A process that is started for the boot: the VMM, or the agent.
    Launch,
    /// A virtual machine whose creation and first instruction are observable.
    VirtualMachine,
    /// A timer of the VMM or host kernel, see [`crate::ticker`].
    HostTimer,
    /// Memory hotplug, see [`crate::populate`].
    Hotplug,
    /// A disk, see [`crate::block`].
    Disk,
    /// Files on a disk, see [`crate::files`].
    Files,
    /// A network with a peer, see [`crate::net`].
    Network,
    /// Several CPUs, or threads.
    SecondCpu,
}

impl Need {
    /// Returns the set of operations that have this need.
    pub fn operations(self) -> OpSet {
        let needing = Op::ALL.into_iter().filter(|op| op.need() == self);
        needing.collect()
    }
}

macro_rules! operations {
    ($($variant:ident = $number:literal, $workload:ident, $name:literal, $measure:expr, $need:ident, $description:literal;)*) => {
        /// Operation: the smallest unit of work that has a figure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Op { $(#[doc = $description] $variant = $number,)* }

        impl Op {
            /// All operations, in display order.
            pub const ALL: [Op; [$($number),*].len()] = [$(Op::$variant),*];

            /// Returns the workload that contains the operation.
            pub const fn workload(self) -> Workload {
                match self { $(Op::$variant => Workload::$workload,)* }
            }

            /// Returns the name within the workload.
            pub const fn name(self) -> &'static str {
                match self { $(Op::$variant => $name,)* }
            }

            /// Returns the content of one sample.
            pub const fn measure(self) -> Measure {
                match self { $(Op::$variant => $measure,)* }
            }

            /// Returns the capability that the operation requires.
            pub const fn need(self) -> Need {
                match self { $(Op::$variant => Need::$need,)* }
            }

            /// Returns a phrase that defines one operation.
            pub const fn description(self) -> &'static str {
                match self { $(Op::$variant => $description,)* }
            }

            /// Returns the operation with this number on the wire.
            pub const fn from_number(number: u8) -> Option<Op> {
                match number { $($number => Some(Op::$variant),)* _ => None }
            }
        }
    };
}

use Measure::{Batch, Bytes, Lateness};

operations! {
    Getpid = 0, Basic, "getpid", Batch, Nothing,
        "one query of the process number: a function call in the image, a system call on Linux";
    NullIo = 4, Basic, "null-io", Batch, Nothing,
        "one write and one read of 40 bytes on the null device: function calls in the image, system calls on Linux";
    Yield = 1, Basic, "yield", Batch, Nothing,
        "one switch between two runnable threads, counted";
    Malloc1m = 2, Basic, "malloc-1m", Batch, Nothing,
        "one allocation of 1 MiB of fresh, page-mapped memory";
    FirstTouch4k = 3, Basic, "first-touch-4k", Batch, Nothing,
        "the first write to one 4 KiB page of freshly allocated memory";
    FirstTouch2m = 128, Basic, "first-touch-2m", Batch, Nothing,
        "the first write to 2 MiB of freshly allocated memory, in a huge page where the kernels have them";
    Calloc64k = 8, Basic, "calloc-64k", Batch, Nothing,
        "one allocation of 64 KiB of memory that is zero, mapped in pages of 4 KiB";
    Calloc1m = 9, Basic, "calloc-1m", Batch, Nothing,
        "one allocation of 1 MiB of memory that is zero, mapped in pages of 4 KiB";
    Fork = 24, System, "fork", Batch, Processes,
        "one child process that is forked, exits at once and is waited for";
    Exec = 25, System, "exec", Batch, Processes,
        "one child process that is forked, executes a program of four instructions and is waited for";
    PageFault = 26, System, "page-fault", Batch, Processes,
        "the first read of one 4 KiB page of fresh memory: the kernel maps its page of zeros, and allocates none";
    PageFaultCow = 27, System, "page-fault-cow", Batch, Processes,
        "the first write to one 4 KiB page that is shared with a child since it was forked: the kernel copies it";
    ContextSwitch = 28, System, "context-switch", Batch, Processes,
        "one switch between two processes on one CPU, including a write to one pipe and a read from another";
    Pipe = 29, System, "pipe", Batch, Processes,
        "one byte written to a pipe and read from it by the same process: two system calls, no switch";
    Mmap = 30, System, "mmap", Batch, Processes,
        "one mapping and unmapping of 256 resident pages (1 MiB) of a file: no page is allocated";
    Syscall = 31, System, "syscall", Batch, Processes,
        "one system call that returns the process number";
    NullIoProcess = 21, System, "null-io", Batch, Processes,
        "one write and one read of 40 bytes on the null device: two system calls of a process";
    PageTableUpdate = 23, System, "page-table-update", Batch, Processes,
        "one change of the protection of one touched page by a system call: read-only and writable in turn";
    Make = 22, System, "make", Batch, Processes,
        "a script of 8 steps: each is a child whose program reads a pipe, adds up 32 KiB of its memory and writes another pipe";
    Copy = 16, Stream, "copy", Bytes(16), Nothing,
        "c[i] = a[i] over arrays of doubles, 16 bytes each";
    Scale = 17, Stream, "scale", Bytes(16), Nothing,
        "b[i] = s * c[i] over arrays of doubles, 16 bytes each";
    Add = 18, Stream, "add", Bytes(24), Nothing,
        "c[i] = a[i] + b[i] over arrays of doubles, 24 bytes each";
    Triad = 19, Stream, "triad", Bytes(24), Nothing,
        "a[i] = b[i] + s * c[i] over arrays of doubles, 24 bytes each";
    Sequential16k = 105, Memory, "sequential-16k", Batch, Nothing,
        "one load of the next cache line of a working set of 16 KiB";
    Sequential64k = 106, Memory, "sequential-64k", Batch, Nothing,
        "one load of the next cache line of a working set of 64 KiB";
    Sequential256k = 107, Memory, "sequential-256k", Batch, Nothing,
        "one load of the next cache line of a working set of 256 KiB";
    Sequential1m = 108, Memory, "sequential-1m", Batch, Nothing,
        "one load of the next cache line of a working set of 1 MiB";
    Sequential4m = 109, Memory, "sequential-4m", Batch, Nothing,
        "one load of the next cache line of a working set of 4 MiB";
    Sequential16m = 110, Memory, "sequential-16m", Batch, Nothing,
        "one load of the next cache line of a working set of 16 MiB";
    Sequential64m = 111, Memory, "sequential-64m", Batch, Nothing,
        "one load of the next cache line of a working set of 64 MiB";
    Stride16k = 112, Memory, "stride-16k", Batch, Nothing,
        "one load of the next page, one cache line further, of a working set of 16 KiB";
    Stride64k = 113, Memory, "stride-64k", Batch, Nothing,
        "one load of the next page, one cache line further, of a working set of 64 KiB";
    Stride256k = 114, Memory, "stride-256k", Batch, Nothing,
        "one load of the next page, one cache line further, of a working set of 256 KiB";
    Stride1m = 115, Memory, "stride-1m", Batch, Nothing,
        "one load of the next page, one cache line further, of a working set of 1 MiB";
    Stride4m = 116, Memory, "stride-4m", Batch, Nothing,
        "one load of the next page, one cache line further, of a working set of 4 MiB";
    Stride16m = 117, Memory, "stride-16m", Batch, Nothing,
        "one load of the next page, one cache line further, of a working set of 16 MiB";
    Stride64m = 118, Memory, "stride-64m", Batch, Nothing,
        "one load of the next page, one cache line further, of a working set of 64 MiB";
    Random16k = 119, Memory, "random-16k", Batch, Nothing,
        "one load of a random cache line of a working set of 16 KiB";
    Random64k = 120, Memory, "random-64k", Batch, Nothing,
        "one load of a random cache line of a working set of 64 KiB";
    Random256k = 121, Memory, "random-256k", Batch, Nothing,
        "one load of a random cache line of a working set of 256 KiB";
    Random1m = 122, Memory, "random-1m", Batch, Nothing,
        "one load of a random cache line of a working set of 1 MiB";
    Random4m = 123, Memory, "random-4m", Batch, Nothing,
        "one load of a random cache line of a working set of 4 MiB";
    Random16m = 124, Memory, "random-16m", Batch, Nothing,
        "one load of a random cache line of a working set of 16 MiB";
    Random64m = 125, Memory, "random-64m", Batch, Nothing,
        "one load of a random cache line of a working set of 64 MiB";
    PortOut = 32, Exits, "port-out", Batch, ScratchRegister,
        "one byte written to the scratch register of the first serial port";
    PortIn = 33, Exits, "port-in", Batch, ScratchRegister,
        "one byte read from the scratch register of the first serial port";
    MmioRead = 34, Exits, "mmio-read", Batch, VirtioTransport,
        "one 32-bit read of a virtio-mmio transport's magic register";
    MmioWrite = 35, Exits, "mmio-write", Batch, VirtioDevice,
        "one 32-bit write to a virtio-mmio transport's feature selector";
    Cpuid = 36, Exits, "cpuid", Batch, X86_64,
        "one cpuid instruction, leaf 0";
    IdRegister = 133, Exits, "id-register", Batch, Aarch64,
        "one mrs of an identification register (ID_AA64ISAR0_EL1)";
    Hypercall = 37, Exits, "hypercall", Batch, Hypercall,
        "one hypercall that the hypervisor refuses or ignores";
    SelfIpi = 38, Exits, "self-ipi", Batch, LocalApic,
        "one interrupt sent by a CPU to itself, until its handler has run";
    TimerWake = 39, Exits, "timer-wake", Lateness, Timer,
        "time from the expiry of a timer until the halted CPU runs again";
    PortEmulated = 40, Exits, "port-emulated", Batch, SerialPort,
        "one byte read from port 0x3ff, whether a serial port is emulated there or not";
    XenHypercall = 41, Exits, "xen-hypercall", Batch, Xen,
        "one hypercall that returns the version of Xen";
    EventChannel = 42, Exits, "event-channel", Batch, EventChannel,
        "one event sent by a Xen domain to itself, until its handler has run";
    MsrRead = 43, Exits, "msr-read", Batch, ModelSpecificRegisters,
        "one rdmsr of the base of the local APIC (IA32_APIC_BASE)";
    Doorbell = 14, Exits, "doorbell", Batch, VirtioQueue,
        "one notification of a virtio device that its queue has changed, while the queue is empty";
    BootCreated = 48, Boot, "vm-created", Lateness, VirtualMachine,
        "from exec of the VMM until it has created the virtual machine";
    BootEntry = 49, Boot, "first-instruction", Lateness, VirtualMachine,
        "from exec of the VMM until the guest's first instruction";
    BootMain = 50, Boot, "main", Lateness, Launch,
        "from exec of the VMM until the guest's main function";
    BootSample = 51, Boot, "first-sample", Lateness, Launch,
        "from exec of the VMM until the guest has sent its first sample";
    BootExit = 52, Boot, "exit", Lateness, Launch,
        "from exec of the VMM until it is reaped, with an idle guest";
    OwnTimer = 56, Irq, "own-timer", Lateness, Timer,
        "time from an expiry of the guest's own timer, which it sets for each, until the handler is entered";
    CountTimer = 129, Irq, "count-timer", Lateness, Timer,
        "the same, if the timer counts down; irq/own-timer uses a TSC deadline where the CPU offers it";
    PeriodicTimer = 130, Irq, "periodic-timer", Lateness, Timer,
        "the same, if the timer is periodic: the guest sets it once";
    HostTimer = 57, Irq, "host-timer", Lateness, HostTimer,
        "time from an expiry of a periodic timer of the VMM until the guest's handler is entered";
    Attach0 = 64, Populate, "attach-0", Batch, Hotplug,
        "one page of 4 KiB of memory attached to the guest, populated on first touch, in pages of 4 KiB";
    Touch0 = 65, Populate, "touch-0", Batch, Hotplug,
        "one write to one page of 4 KiB of attached memory, not populated yet";
    Attach0Prefault = 66, Populate, "attach-0-prefault", Batch, Hotplug,
        "one page of 4 KiB of memory attached to the guest, prefaulted, in pages of 4 KiB";
    Touch0Prefault = 67, Populate, "touch-0-prefault", Batch, Hotplug,
        "one write to one page of 4 KiB of attached memory, prefaulted";
    Attach3 = 68, Populate, "attach-3", Batch, Hotplug,
        "8 pages of memory attached to the guest, populated on first touch, in pages of 4 KiB";
    Touch3 = 69, Populate, "touch-3", Batch, Hotplug,
        "one write to each of 8 pages of attached memory, not populated yet, in pages of 4 KiB";
    Attach3Prefault = 70, Populate, "attach-3-prefault", Batch, Hotplug,
        "8 pages of memory attached to the guest, prefaulted, in pages of 4 KiB";
    Touch3Prefault = 71, Populate, "touch-3-prefault", Batch, Hotplug,
        "one write to each of 8 pages of attached memory, prefaulted, in pages of 4 KiB";
    Attach9 = 72, Populate, "attach-9", Batch, Hotplug,
        "512 pages (2 MiB) of memory attached to the guest, populated on first touch, in pages of 4 KiB";
    Touch9 = 73, Populate, "touch-9", Batch, Hotplug,
        "one write to each of 512 pages (2 MiB) of attached memory, not populated yet, in pages of 4 KiB";
    Attach9Prefault = 74, Populate, "attach-9-prefault", Batch, Hotplug,
        "512 pages (2 MiB) of memory attached to the guest, prefaulted, in pages of 4 KiB";
    Touch9Prefault = 75, Populate, "touch-9-prefault", Batch, Hotplug,
        "one write to each of 512 pages (2 MiB) of attached memory, prefaulted, in pages of 4 KiB";
    Attach9Huge = 76, Populate, "attach-9-2m", Batch, Hotplug,
        "512 pages (2 MiB) of memory attached to the guest, populated on first touch, in pages of 2 MiB";
    Touch9Huge = 77, Populate, "touch-9-2m", Batch, Hotplug,
        "one write to each of 512 pages (2 MiB) of attached memory, not populated yet, in pages of 2 MiB";
    Attach9HugePrefault = 78, Populate, "attach-9-2m-prefault", Batch, Hotplug,
        "512 pages (2 MiB) of memory attached to the guest, prefaulted, in pages of 2 MiB";
    Touch9HugePrefault = 79, Populate, "touch-9-2m-prefault", Batch, Hotplug,
        "one write to each of 512 pages (2 MiB) of attached memory, prefaulted, in pages of 2 MiB";
    Attach18 = 80, Populate, "attach-18", Batch, Hotplug,
        "262,144 pages (1 GiB) of memory attached to the guest, populated on first touch, in pages of 4 KiB";
    Touch18 = 81, Populate, "touch-18", Batch, Hotplug,
        "one write to each of 262,144 pages (1 GiB) of attached memory, not populated yet, in pages of 4 KiB";
    Attach18Prefault = 82, Populate, "attach-18-prefault", Batch, Hotplug,
        "262,144 pages (1 GiB) of memory attached to the guest, prefaulted, in pages of 4 KiB";
    Touch18Prefault = 83, Populate, "touch-18-prefault", Batch, Hotplug,
        "one write to each of 262,144 pages (1 GiB) of attached memory, prefaulted, in pages of 4 KiB";
    Attach18Huge = 84, Populate, "attach-18-2m", Batch, Hotplug,
        "262,144 pages (1 GiB) of memory attached to the guest, populated on first touch, in pages of 2 MiB";
    Touch18Huge = 85, Populate, "touch-18-2m", Batch, Hotplug,
        "one write to each of 262,144 pages (1 GiB) of attached memory, not populated yet, in pages of 2 MiB";
    Attach18HugePrefault = 86, Populate, "attach-18-2m-prefault", Batch, Hotplug,
        "262,144 pages (1 GiB) of memory attached to the guest, prefaulted, in pages of 2 MiB";
    Touch18HugePrefault = 87, Populate, "touch-18-2m-prefault", Batch, Hotplug,
        "one write to each of 262,144 pages (1 GiB) of attached memory, prefaulted, in pages of 2 MiB";
    Read4k1 = 96, Block, "read-4k-1", Lateness, Disk,
        "one read of 4 KiB at a random place of a disk, one at a time";
    Read4k32 = 97, Block, "read-4k-32", Lateness, Disk,
        "one read of 4 KiB at a random place of a disk, 32 at a time";
    Read1m1 = 98, Block, "read-1m-1", Lateness, Disk,
        "one read of 1 MiB of a disk, in order, one at a time";
    Read1m32 = 99, Block, "read-1m-32", Lateness, Disk,
        "one read of 1 MiB of a disk, in order, 32 at a time";
    Write4k1 = 100, Block, "write-4k-1", Lateness, Disk,
        "one write of 4 KiB to a random place of a disk, one at a time, not flushed";
    Write4k32 = 101, Block, "write-4k-32", Lateness, Disk,
        "one write of 4 KiB to a random place of a disk, 32 at a time, not flushed";
    Write4kSync = 102, Block, "write-4k-sync", Lateness, Disk,
        "one write of 4 KiB to a random place of a disk and its flush (fdatasync), one at a time";
    Write1m1 = 103, Block, "write-1m-1", Lateness, Disk,
        "one write of 1 MiB to a disk, in order, one at a time, not flushed";
    Write1m32 = 104, Block, "write-1m-32", Lateness, Disk,
        "one write of 1 MiB to a disk, in order, 32 at a time, not flushed";
    OpenFile = 44, Files, "open", Batch, Files,
        "one file opened by a path of three components, all of them in the cache, and closed";
    ReadFile1k = 45, Files, "read-1k", Batch, Files,
        "one file of 1 KiB opened, read from the page cache and closed";
    ReadFile64k = 46, Files, "read-64k", Batch, Files,
        "one file of 64 KiB opened, read from the page cache by one call and closed";
    Read4kWarm = 47, Files, "read-4k-warm", Batch, Files,
        "one read of 4 KiB at a random page of an open file, from the page cache";
    Read4kCold = 53, Files, "read-4k-cold", Batch, Files,
        "one read of 4 KiB at a random page of an open file, which is not in the page cache";
    Read1mWarm = 54, Files, "read-1m-warm", Bytes(1), Files,
        "an open file of 1 MiB read from the page cache by calls of 64 KiB";
    Read1mCold = 55, Files, "read-1m-cold", Bytes(1), Files,
        "an open file of 1 MiB, of which no page is in the page cache, read by calls of 64 KiB";
    ReadLarge = 58, Files, "read-large", Bytes(1), Files,
        "an open file of many MiB, of which no page is in the page cache, read by calls of 64 KiB";
    Write4kWarm = 59, Files, "write-4k-warm", Batch, Files,
        "one write of 4 KiB to a random page of an open file, which is in the page cache, not written back";
    Write4kFsync = 60, Files, "write-4k-fsync", Batch, Files,
        "one write of 4 KiB to a random page of an open file and its write-back to the disk (fdatasync)";
    WriteLarge = 61, Files, "write-large", Bytes(1), Files,
        "an open file of many MiB overwritten by calls of 64 KiB and written back to the disk (fdatasync)";
    TcpPing = 88, Net, "tcp-ping", Batch, Network,
        "one byte sent to a peer over TCP, until its answer of one byte arrives";
    UdpPing = 89, Net, "udp-ping", Batch, Network,
        "one datagram of one byte sent to a peer over UDP, until its answer arrives";
    TcpSend = 90, Net, "tcp-send", Bytes(1), Network,
        "256 KiB sent to a peer over TCP, until it has checked every byte and answered";
    TcpReceive = 91, Net, "tcp-receive", Bytes(1), Network,
        "256 KiB requested from a peer over TCP, until they arrive and every byte is checked";
    SendFile = 95, Net, "sendfile", Bytes(1), Network,
        "256 KiB of a file in the page cache sent to a peer over TCP by sendfile(2), until it has checked them";
    Udp64 = 62, Net, "udp-64", Batch, Network,
        "one of 1,024 datagrams of 64 bytes sent to a peer over UDP, until it has checked them all";
    Udp1472 = 63, Net, "udp-1472", Batch, Network,
        "one of 1,024 datagrams of 1,472 bytes sent to a peer over UDP, until it has checked them all";
    VsockPing = 10, Net, "vsock-ping", Batch, Network,
        "one byte sent to a peer over vsock, until its answer of one byte arrives";
    VsockSend = 11, Net, "vsock-send", Bytes(1), Network,
        "256 KiB sent to a peer over vsock, until it has checked every byte and answered";
    VsockReceive = 12, Net, "vsock-receive", Bytes(1), Network,
        "256 KiB requested from a peer over vsock, until they arrive and every byte is checked";
    Packet64 = 92, Net, "packet-64", Batch, Network,
        "one of 1,024 frames of 64 bytes sent to another guest on a switch, until that has checked them all";
    Packet1500 = 93, Net, "packet-1500", Batch, Network,
        "one of 1,024 frames of 1,500 bytes sent to another guest on a switch, until that has checked them all";
    PacketPing = 94, Net, "packet-ping", Batch, Network,
        "one frame of 60 bytes sent to another guest on a switch, until its answer arrives";
    IpcItem = 5, Ipc, "item", Batch, SecondCpu,
        "one item through a buffer of 16 from one CPU to another, with two semaphores";
    IpcItemWork = 6, Ipc, "item-work", Batch, SecondCpu,
        "one item through the same buffer, with 2,000 turns of work on each of the two CPUs";
    IpcWake = 7, Ipc, "wake", Batch, SecondCpu,
        "one post of a semaphore to another CPU that waits for it, until its answer by another semaphore";
    SmpPairs = 126, Smp, "pairs", Batch, SecondCpu,
        "one item as of ipc/item-work, from half of the CPUs to the other half, each pair with a buffer of its own";
    SmpThreads = 15, Smp, "threads", Batch, SecondCpu,
        "one item as of ipc/item-work, with two threads on each CPU: one produces for the next CPU, one consumes of the previous";
    SmpShared = 127, Smp, "shared", Batch, SecondCpu,
        "one item as of ipc/item-work, from half of the CPUs to the other half, through one buffer with a lock";
    SmpTriad = 20, Smp, "triad", Bytes(24), SecondCpu,
        "a = b + 3c of stream/triad, each CPU in its part of the arrays";
    SmpShootdown = 13, Smp, "shootdown", Batch, SecondCpu,
        "a page that all CPUs read mapped to another frame, until none can use the old translation (TLB shootdown)";
    SmpIpi = 131, Smp, "ipi", Batch, SecondCpu,
        "one interrupt sent to another CPU, which halts, until its handler has run";
    SmpStart = 132, Smp, "start", Batch, SecondCpu,
        "a CPU that was reset started by a startup IPI, until it can take interrupts";
}

impl Op {
    /// Returns the operation called `workload/name`.
    pub fn from_path(path: &str) -> Option<Op> {
        let (workload, name) = path.split_once('/')?;
        Op::ALL
            .into_iter()
            .find(|op| op.workload().name() == workload && op.name() == name)
    }

    /// Returns the quantity that figures report.
    pub const fn unit(self) -> Unit {
        match self.measure() {
            Batch | Lateness => Unit::Time,
            Bytes(_) => Unit::Rate,
        }
    }

    /// Returns the direction in which figures improve.
    pub const fn direction(self) -> Direction {
        match self.unit() {
            Unit::Time => Direction::Less,
            Unit::Rate => Direction::More,
        }
    }

    /// Returns true if a sample is the time between two events, not the length of a batch. The
    /// cost of reading the clock is not subtracted from it.
    pub const fn is_lateness(self) -> bool {
        matches!(self.measure(), Lateness)
    }

    /// Returns true if markers are around each sample, and no sample overlaps another.
    pub const fn has_markers(self) -> bool {
        let is_single = matches!(
            self,
            Op::Read4k1 | Op::Read1m1 | Op::Write4k1 | Op::Write4kSync | Op::Write1m1
        );
        !self.is_lateness() || is_single
    }

    /// Returns whether an instruction set has the operation.
    pub const fn exists_on(self, set: InstructionSet) -> bool {
        use Need::{ModelSpecificRegisters, ScratchRegister, SerialPort};
        match self.need() {
            Need::X86_64 | ModelSpecificRegisters | ScratchRegister | SerialPort => {
                matches!(set, InstructionSet::X86_64)
            }
            Need::Aarch64 => matches!(set, InstructionSet::Aarch64),
            _ => true,
        }
    }

    /// Returns the number on the wire.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

impl Workload {
    /// Returns the set of its operations.
    pub fn set(self) -> OpSet {
        self.operations().collect()
    }

    /// Returns the set of its operations on an instruction set.
    pub fn set_on(self, set: InstructionSet) -> OpSet {
        self.operations().filter(|op| op.exists_on(set)).collect()
    }

    /// Returns its operations, in display order.
    pub fn operations(self) -> impl Iterator<Item = Op> {
        Op::ALL.into_iter().filter(move |op| op.workload() == self)
    }
}

#[cfg(test)]
mod tests;
