//! The workloads and their operations: names that are an interface.
//!
//! A workload asks one question. Each of its operations has one unit and one
//! direction, and says in a sentence what one operation is, so that nobody has
//! to guess what was counted. On the wire an operation is its number; to people
//! and in stored data it is `workload/operation`.

/// A set of operations: [`Op::bit`] is set for each.
pub type OpSet = u128;

/// What a figure of an operation counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Clock ticks per operation: nanoseconds on the wall clock, instructions on
    /// the instruction clock.
    Time,
    /// Bytes moved per tick, reported as MB/s on the wall clock and as MB per
    /// thousand million instructions on the instruction clock.
    Rate,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Smaller figures are better.
    Less,
    /// Larger figures are better.
    More,
}

/// One question; a group of operations that are selected together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Workload {
    /// What a kernel does all day: calls, switches, memory.
    Basic,
    /// What only a kernel with processes offers.
    System,
    /// Memory bandwidth, after McCalpin's STREAM.
    Stream,
    /// What leaves the guest, or would on a virtual machine.
    Exits,
    /// From starting a VMM to the guest's last word.
    Boot,
    /// Interrupts of a timer that keeps time, and their lateness.
    Irq,
    /// Memory that a guest is given while it runs.
    Populate,
    /// Requests to a disk, and their latency.
    Block,
}

impl Workload {
    /// Every workload, in the order in which tables show them.
    pub const ALL: [Workload; 8] = [
        Self::Basic,
        Self::System,
        Self::Stream,
        Self::Exits,
        Self::Boot,
        Self::Irq,
        Self::Populate,
        Self::Block,
    ];

    /// The name people type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::System => "system",
            Self::Stream => "stream",
            Self::Exits => "exits",
            Self::Boot => "boot",
            Self::Irq => "irq",
            Self::Populate => "populate",
            Self::Block => "block",
        }
    }

    /// The question this workload answers.
    pub const fn question(self) -> &'static str {
        match self {
            Self::Basic => "What do a kernel's everyday operations cost here?",
            Self::System => "What do processes and their memory cost in an operating system?",
            Self::Stream => "How fast does memory move here?",
            Self::Exits => "What does it cost to leave the guest and come back?",
            Self::Boot => "How long until the guest runs, and where does the time go?",
            Self::Irq => "How late does a timer's interrupt reach the guest, and why?",
            Self::Populate => "What does it cost to give a guest memory?",
            Self::Block => "How long does a request to a disk take, and how many are served?",
        }
    }

    /// The workload called `name`, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|w| w.name() == name)
    }

    /// The set of all operations of this workload.
    pub fn set(self) -> OpSet {
        self.operations().fold(0, |set, op| set | op.bit())
    }

    /// The operations of this workload, in table order.
    pub fn operations(self) -> impl Iterator<Item = Op> {
        Op::ALL.into_iter().filter(move |op| op.workload() == self)
    }
}

macro_rules! operations {
    ($($variant:ident = $number:literal, $workload:ident, $name:literal, $unit:ident, $direction:ident, $what:literal;)*) => {
        /// An operation: the smallest thing that has a figure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Op { $(#[doc = $what] $variant = $number,)* }

        impl Op {
            /// Every operation, in the order in which tables show them.
            pub const ALL: [Op; [$($number),*].len()] = [$(Op::$variant),*];

            /// The workload this operation belongs to.
            pub const fn workload(self) -> Workload {
                match self { $(Op::$variant => Workload::$workload,)* }
            }

            /// The operation's name within its workload.
            pub const fn name(self) -> &'static str {
                match self { $(Op::$variant => $name,)* }
            }

            /// What its figure counts.
            pub const fn unit(self) -> Unit {
                match self { $(Op::$variant => Unit::$unit,)* }
            }

            /// Which way is better.
            pub const fn direction(self) -> Direction {
                match self { $(Op::$variant => Direction::$direction,)* }
            }

            /// What one operation is, in a sentence.
            pub const fn what(self) -> &'static str {
                match self { $(Op::$variant => $what,)* }
            }

            /// The operation with this number on the wire, if there is one.
            pub const fn from_number(number: u8) -> Option<Op> {
                match number { $($number => Some(Op::$variant),)* _ => None }
            }
        }
    };
}

operations! {
    Getpid = 0, Basic, "getpid", Time, Less,
        "one request for the caller's process number: a function call in the image, a system call on Linux";
    Yield = 1, Basic, "yield", Time, Less,
        "one switch between two runnable threads, counted";
    Malloc1m = 2, Basic, "malloc-1m", Time, Less,
        "one allocation of 1 MiB of fresh, page-mapped memory";
    FirstTouch4k = 3, Basic, "first-touch-4k", Time, Less,
        "the first write to one 4 KiB page of freshly allocated memory";
    Fork = 24, System, "fork", Time, Less,
        "one child that is made as a copy of the caller, ends at once and is waited for";
    Exec = 25, System, "exec", Time, Less,
        "the same with a child that executes a program of four instructions and ends with it";
    PageFault = 26, System, "page-fault", Time, Less,
        "the first read of one 4 KiB page of fresh memory: the kernel maps its page of zeros, and allocates none";
    PageFaultCow = 27, System, "page-fault-cow", Time, Less,
        "the first write to one 4 KiB page that is shared with a child since it was forked: the kernel copies it";
    ContextSwitch = 28, System, "context-switch", Time, Less,
        "one switch between two processes on one CPU that answer each other: with its write to a pipe, and its read from one";
    Pipe = 29, System, "pipe", Time, Less,
        "one byte written to a pipe and read from it by the same process: two system calls, no switch";
    Mmap = 30, System, "mmap", Time, Less,
        "256 pages (1 MiB) of a file in memory mapped, all of them at once, and unmapped: none is allocated";
    Copy = 16, Stream, "copy", Rate, More,
        "c[i] = a[i] over arrays of doubles, 16 bytes each";
    Scale = 17, Stream, "scale", Rate, More,
        "b[i] = s * c[i] over arrays of doubles, 16 bytes each";
    Add = 18, Stream, "add", Rate, More,
        "c[i] = a[i] + b[i] over arrays of doubles, 24 bytes each";
    Triad = 19, Stream, "triad", Rate, More,
        "a[i] = b[i] + s * c[i] over arrays of doubles, 24 bytes each";
    PortOut = 32, Exits, "port-out", Time, Less,
        "one byte written to the scratch register of the first serial port";
    PortIn = 33, Exits, "port-in", Time, Less,
        "one byte read from the scratch register of the first serial port";
    MmioRead = 34, Exits, "mmio-read", Time, Less,
        "one 32-bit read of a virtio-mmio transport's magic register";
    MmioWrite = 35, Exits, "mmio-write", Time, Less,
        "one 32-bit write to a virtio-mmio transport's feature selector";
    Cpuid = 36, Exits, "cpuid", Time, Less,
        "one cpuid instruction, leaf 0";
    Hypercall = 37, Exits, "hypercall", Time, Less,
        "one hypercall that the hypervisor refuses or ignores";
    SelfIpi = 38, Exits, "self-ipi", Time, Less,
        "one interrupt sent by a CPU to itself, until its handler has run";
    TimerWake = 39, Exits, "timer-wake", Time, Less,
        "how late a halted CPU runs again after its own timer was due";
    PortEmulated = 40, Exits, "port-emulated", Time, Less,
        "one byte read where a PC has its first serial port, from whoever answers for devices here";
    XenHypercall = 41, Exits, "xen-hypercall", Time, Less,
        "one hypercall that Xen answers: which version it is";
    EventChannel = 42, Exits, "event-channel", Time, Less,
        "one event sent by a domain of Xen to itself, until its handler has run";
    BootCreated = 48, Boot, "vm-created", Time, Less,
        "from exec of the VMM until it has created the virtual machine";
    BootEntry = 49, Boot, "first-instruction", Time, Less,
        "from exec of the VMM until the guest's first instruction";
    BootMain = 50, Boot, "main", Time, Less,
        "from exec of the VMM until the guest's main function";
    BootSample = 51, Boot, "first-sample", Time, Less,
        "from exec of the VMM until the guest has sent its first sample";
    BootExit = 52, Boot, "exit", Time, Less,
        "from exec of the VMM until it was reaped, the guest having nothing to do";
    OwnTimer = 56, Irq, "own-timer", Time, Less,
        "how late the handler of the guest's own periodic timer is entered";
    HostTimer = 57, Irq, "host-timer", Time, Less,
        "how late the handler is entered after a periodic timer of whoever runs the guest";
    Attach0 = 64, Populate, "attach-0", Time, Less,
        "one page of 4 KiB of memory is given to the guest, populated when it is touched, in pages of 4 KiB";
    Touch0 = 65, Populate, "touch-0", Time, Less,
        "the guest writes to one page of 4 KiB that it was given, not populated yet";
    Attach0Prefault = 66, Populate, "attach-0-prefault", Time, Less,
        "one page of 4 KiB of memory is given to the guest, populated at once, in pages of 4 KiB";
    Touch0Prefault = 67, Populate, "touch-0-prefault", Time, Less,
        "the guest writes to one page of 4 KiB that it was given, populated before";
    Attach3 = 68, Populate, "attach-3", Time, Less,
        "8 pages of memory are given to the guest, populated when it is touched, in pages of 4 KiB";
    Touch3 = 69, Populate, "touch-3", Time, Less,
        "the guest writes to each of 8 pages that it was given, not populated yet, in pages of 4 KiB";
    Attach3Prefault = 70, Populate, "attach-3-prefault", Time, Less,
        "8 pages of memory are given to the guest, populated at once, in pages of 4 KiB";
    Touch3Prefault = 71, Populate, "touch-3-prefault", Time, Less,
        "the guest writes to each of 8 pages that it was given, populated before, in pages of 4 KiB";
    Attach9 = 72, Populate, "attach-9", Time, Less,
        "512 pages (2 MiB) of memory are given to the guest, populated when it is touched, in pages of 4 KiB";
    Touch9 = 73, Populate, "touch-9", Time, Less,
        "the guest writes to each of 512 pages (2 MiB) that it was given, not populated yet, in pages of 4 KiB";
    Attach9Prefault = 74, Populate, "attach-9-prefault", Time, Less,
        "512 pages (2 MiB) of memory are given to the guest, populated at once, in pages of 4 KiB";
    Touch9Prefault = 75, Populate, "touch-9-prefault", Time, Less,
        "the guest writes to each of 512 pages (2 MiB) that it was given, populated before, in pages of 4 KiB";
    Attach9Huge = 76, Populate, "attach-9-2m", Time, Less,
        "512 pages (2 MiB) of memory are given to the guest, populated when it is touched, in pages of 2 MiB";
    Touch9Huge = 77, Populate, "touch-9-2m", Time, Less,
        "the guest writes to each of 512 pages (2 MiB) that it was given, not populated yet, in pages of 2 MiB";
    Attach9HugePrefault = 78, Populate, "attach-9-2m-prefault", Time, Less,
        "512 pages (2 MiB) of memory are given to the guest, populated at once, in pages of 2 MiB";
    Touch9HugePrefault = 79, Populate, "touch-9-2m-prefault", Time, Less,
        "the guest writes to each of 512 pages (2 MiB) that it was given, populated before, in pages of 2 MiB";
    Attach18 = 80, Populate, "attach-18", Time, Less,
        "262,144 pages (1 GiB) of memory are given to the guest, populated when it is touched, in pages of 4 KiB";
    Touch18 = 81, Populate, "touch-18", Time, Less,
        "the guest writes to each of 262,144 pages (1 GiB) that it was given, not populated yet, in pages of 4 KiB";
    Attach18Prefault = 82, Populate, "attach-18-prefault", Time, Less,
        "262,144 pages (1 GiB) of memory are given to the guest, populated at once, in pages of 4 KiB";
    Touch18Prefault = 83, Populate, "touch-18-prefault", Time, Less,
        "the guest writes to each of 262,144 pages (1 GiB) that it was given, populated before, in pages of 4 KiB";
    Attach18Huge = 84, Populate, "attach-18-2m", Time, Less,
        "262,144 pages (1 GiB) of memory are given to the guest, populated when it is touched, in pages of 2 MiB";
    Touch18Huge = 85, Populate, "touch-18-2m", Time, Less,
        "the guest writes to each of 262,144 pages (1 GiB) that it was given, not populated yet, in pages of 2 MiB";
    Attach18HugePrefault = 86, Populate, "attach-18-2m-prefault", Time, Less,
        "262,144 pages (1 GiB) of memory are given to the guest, populated at once, in pages of 2 MiB";
    Touch18HugePrefault = 87, Populate, "touch-18-2m-prefault", Time, Less,
        "the guest writes to each of 262,144 pages (1 GiB) that it was given, populated before, in pages of 2 MiB";
    Read4k1 = 96, Block, "read-4k-1", Time, Less,
        "one read of 4 KiB at a random place of a disk, one at a time";
    Read4k32 = 97, Block, "read-4k-32", Time, Less,
        "one read of 4 KiB at a random place of a disk, 32 at a time";
    Read1m1 = 98, Block, "read-1m-1", Time, Less,
        "one read of 1 MiB of a disk, in order, one at a time";
    Read1m32 = 99, Block, "read-1m-32", Time, Less,
        "one read of 1 MiB of a disk, in order, 32 at a time";
    Write4k1 = 100, Block, "write-4k-1", Time, Less,
        "one write of 4 KiB to a random place of a disk, one at a time, not flushed";
    Write4k32 = 101, Block, "write-4k-32", Time, Less,
        "one write of 4 KiB to a random place of a disk, 32 at a time, not flushed";
    Write4kSync = 102, Block, "write-4k-sync", Time, Less,
        "one write of 4 KiB to a random place of a disk and its flush (fdatasync), one at a time";
    Write1m1 = 103, Block, "write-1m-1", Time, Less,
        "one write of 1 MiB to a disk, in order, one at a time, not flushed";
    Write1m32 = 104, Block, "write-1m-32", Time, Less,
        "one write of 1 MiB to a disk, in order, 32 at a time, not flushed";
}

impl Op {
    /// The operation called `workload/name`, if there is one.
    pub fn from_path(path: &str) -> Option<Op> {
        let (workload, name) = path.split_once('/')?;
        Op::ALL
            .into_iter()
            .find(|op| op.workload().name() == workload && op.name() == name)
    }

    /// Returns whether a sample is the time between two events, such as a timer's expiry and
    /// the wake-up, and not the length of a batch of work between two readings of the clock.
    /// The cost of reading the clock is not subtracted from it, and it has no marks around it.
    pub const fn is_lateness(self) -> bool {
        matches!(self, Op::TimerWake)
            || matches!(
                self.workload(),
                Workload::Boot | Workload::Irq | Workload::Block
            )
    }

    /// The operation's number on the wire.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// This operation's place in a set of operations.
    pub const fn bit(self) -> OpSet {
        1 << self.number()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn numbers_and_paths_lead_back_to_their_operation() {
        for op in Op::ALL {
            assert_eq!(Op::from_number(op.number()), Some(op));
            let path = format!("{}/{}", op.workload().name(), op.name());
            assert_eq!(Op::from_path(&path), Some(op));
            assert!(
                u32::from(op.number()) < OpSet::BITS,
                "operations must fit a set"
            );
        }
        assert_eq!(Op::from_path("exits/port-oot"), None);
        assert_eq!(Op::from_number(63), None);
    }

    #[test]
    fn a_wake_up_is_a_lateness_and_an_exit_is_work() {
        for op in [Op::TimerWake, Op::OwnTimer, Op::Read4k1, Op::BootSample] {
            assert!(op.is_lateness(), "{op:?}");
        }
        for op in [Op::PortOut, Op::Yield, Op::Attach0, Op::Copy] {
            assert!(!op.is_lateness(), "{op:?}");
        }
    }

    #[test]
    fn operations_stand_in_the_order_of_their_workloads() {
        let by_workload: std::vec::Vec<_> = Workload::ALL
            .into_iter()
            .flat_map(Workload::operations)
            .collect();
        assert_eq!(by_workload, Op::ALL);
    }

    #[test]
    fn every_workload_has_operations_and_a_name_that_leads_back() {
        for workload in Workload::ALL {
            assert_eq!(Workload::from_name(workload.name()), Some(workload));
            assert!(workload.operations().count() >= 2);
        }
    }
}
