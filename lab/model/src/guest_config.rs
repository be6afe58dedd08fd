//! Configuration of a guest, and the values of its settings.

use crate::named::named;
use crate::scheduling::Scheduling;
use trapline_abi::job::{Isolation, WakePolicy, Zeroing};
use trapline_abi::operation::OpSet;
use trapline_abi::{net, packet, Job};

/// Configuration of a guest, as a launcher gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestConfig {
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Further memory in MiB that may be hotplugged, if it is large.
    pub window_mib: u32,
    /// Its memory is in pages of 4 KiB where the lab can choose, as nothing asks for others: a first touch of one is then a
    /// page fault in each VMM.
    pub small_pages: bool,
    /// Size in MiB of its disk for workload `block` or `files`; 0 if it has none.
    pub disk_mib: u32,
    /// Size in MiB of the large file on its disk for workload `files`; 0 if it has none.
    pub file_mib: u32,
    /// It has a network card with a peer for workload `net`.
    pub network: bool,
    /// It has a network card to another guest.
    pub packets: bool,
    /// It has a vsock device with a peer for workload `net`.
    pub vsock: bool,
    /// Way of packets between the guest and another one.
    pub path: GuestPath,
    /// The peer of the exchanges of workload `net`.
    pub peer: Peer,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Equal guests that are measured at the same time.
    pub guests: u32,
    /// Scheduling of the virtual CPUs.
    pub scheduling: Scheduling,
    /// Output of the serial port, in trapline-vmm.
    pub serial: Serial,
    /// Host pages of its memory, in trapline-vmm.
    pub pages: MemoryPages,
    /// Mechanism for hypercalls, in a process.
    pub crossing: Crossing,
    /// Processes for its address spaces, if it is a process.
    pub spaces: Spaces,
    /// Component that switches between them.
    pub switch: Switch,
    /// Execution of the system calls that the VMM needs of it, if it is a process.
    pub batching: Batching,
    /// Access of the VMM to its registers, if it is a process.
    pub state: VcpuState,
    /// Translation of guest addresses, by the KVM of a simulated machine.
    pub paging: Paging,
    /// Transparent huge pages of a simulated machine's Linux, if not as its kernel has them.
    pub thp: Option<HugePages>,
    /// Control group of the VMM on a simulated machine.
    pub cgroup: ControlGroup,
    /// Mitigations of a simulated machine's Linux.
    pub mitigations: Mitigations,
    /// Layout of the simulated machine's memory: its number, below [`LAYOUTS`].
    pub layout: u32,
    /// Method by which a CPU of workloads `ipc` and `smp` waits.
    pub wake: Wake,
    /// Zeroing of the image's memory.
    pub zeroing: Zeroing,
    /// Page tables on which programs run.
    pub isolation: Isolation,
}

/// Maximum of [`GuestConfig::guests`].
pub const MOST_GUESTS: u32 = 64;

/// Number of layouts of a simulated machine's memory.
pub const LAYOUTS: u32 = 16;

impl GuestConfig {
    /// The configuration without any setting. Presets have further sizes of memory.
    pub const DEFAULT: Self = Self {
        memory_mib: 512,
        window_mib: 0,
        small_pages: true,
        disk_mib: 0,
        file_mib: 0,
        network: false,
        packets: false,
        vsock: false,
        path: GuestPath::Switch,
        peer: Peer::Process,
        cpus: 1,
        guests: 1,
        scheduling: Scheduling::DEFAULT,
        serial: Serial::Lines,
        pages: MemoryPages::Auto,
        crossing: Crossing::Auto,
        spaces: Spaces::Four,
        switch: Switch::Guest,
        batching: Batching::On,
        state: VcpuState::Mapped,
        paging: Paging::Nested,
        thp: None,
        cgroup: ControlGroup::Root,
        mitigations: Mitigations::Auto,
        layout: 0,
        wake: Wake::Halt,
        zeroing: Zeroing::Demand,
        isolation: Isolation::None,
    };

    /// Returns it with the network cards and sockets that these operations need.
    pub fn with_cards(self, operations: OpSet) -> Self {
        let has_exchanges = operations.intersects(net::operations());
        let has_packets = operations.intersects(packet::operations());
        let with_guest = self.peer == Peer::Guest;
        Self {
            network: has_exchanges && !with_guest,
            packets: has_packets || has_exchanges && with_guest,
            vsock: operations.intersects(net::vsock_operations()),
            ..self
        }
    }

    /// Memory of the host that a guest takes, in MiB: all of its memory up to 4 GiB, and a 32nd of what is beyond. Its Linux
    /// describes each page of 4 KiB by 64 bytes, and leaves the rest of a larger guest untouched.
    pub fn touched_mib(&self) -> u32 {
        const WHOLE: u32 = 4096;
        self.memory_mib.min(WHOLE) + self.memory_mib.saturating_sub(WHOLE) / 32
    }

    /// Returns the operations whose packets pass a tap.
    pub fn operations_over_tap(&self) -> OpSet {
        match (self.path, self.peer) {
            (GuestPath::Switch, Peer::Process) => net::operations(),
            (GuestPath::Switch, Peer::Guest) => OpSet::EMPTY,
            _ => net::operations() | packet::operations(),
        }
    }

    /// Returns the job for the image, with the number of its CPUs.
    pub fn job(&self, job: &Job) -> Job {
        Job {
            cpus: self.cpus,
            ..*job
        }
    }
}

/// Method by which a CPU of workloads `ipc` and `smp` waits: `--wake`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wake {
    /// Halts, or sleeps on a futex, until the other CPU wakes it.
    #[default]
    Halt,
    /// Polls for 5 us before it halts.
    Poll5,
    /// Polls for 50 us before.
    Poll50,
    /// Polls for 500 us before.
    Poll500,
    /// Executes `mwait`.
    Mwait,
    /// Halts; the kernel of a Linux guest polls before.
    HaltPoll,
    /// Halts; the kernel of a Linux guest polls in place of it.
    IdlePoll,
}

named!(Wake { Halt "halt", Poll5 "poll:5", Poll50 "poll:50", Poll500 "poll:500", Mwait "mwait", HaltPoll "haltpoll", IdlePoll "idle-poll" });

impl Wake {
    /// Returns the policy of the job, with the time of polling in nanoseconds or instructions.
    pub const fn policy(self) -> WakePolicy {
        match self {
            Self::Halt => WakePolicy::Halt,
            Self::Poll5 => WakePolicy::Poll(5_000),
            Self::Poll50 => WakePolicy::Poll(50_000),
            Self::Poll500 => WakePolicy::Poll(500_000),
            Self::Mwait => WakePolicy::Mwait,
            Self::HaltPoll => WakePolicy::HaltPoll,
            Self::IdlePoll => WakePolicy::IdlePoll,
        }
    }
}

/// Way of packets from guest to guest: `--path`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuestPath {
    /// `trapline-switch`.
    #[default]
    Switch,
    /// Two taps and a bridge of Linux; each VMM moves frames between its tap and its guest.
    Bridge,
    /// The same, but the kernel moves them (vhost-net).
    VhostNet,
}

/// Peer of the exchanges of workload `net`: `--peer`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Peer {
    /// A process of the Linux that runs the VMM, behind a tap.
    #[default]
    Process,
    /// Another guest of the same kind, on the way of `--path`.
    Guest,
}

named!(Peer { Process "process", Guest "guest" });

named!(GuestPath { Switch "switch", Bridge "bridge", VhostNet "vhost-net" });

/// Host pages of guest memory: `--pages`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryPages {
    /// An anonymous file if another process maps it, otherwise private memory with pages as the kernel chooses.
    #[default]
    Auto,
    /// An anonymous file, which other processes can map.
    File,
    /// Private pages of 4 KiB.
    Small,
    /// Private pages of 2 MiB, where the kernel has some.
    Huge,
}

named!(MemoryPages { Auto "auto", File "file", Small "4k", Huge "2m" });

/// Mechanism for the hypercalls of a guest that is a process: `--crossing`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crossing {
    /// The fastest.
    #[default]
    Auto,
    /// System calls rewritten as jumps to a handler in the process.
    Rewrite,
    /// Calls of a handler in the process.
    Direct,
    /// System calls that raise SIGSYS by syscall user dispatch.
    Dispatch,
    /// System calls that raise SIGSYS by a seccomp filter.
    Trap,
    /// System calls of which a seccomp filter notifies the VMM.
    Notify,
    /// System calls that stop the process for its tracer.
    Ptrace,
}

named!(Crossing { Auto "auto", Rewrite "rewrite", Direct "direct", Dispatch "dispatch", Trap "trap", Notify "notify", Ptrace "ptrace" });

/// Number of processes for the address spaces of a guest that is a process: `--spaces`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spaces {
    /// One, which drops mappings at each switch.
    One,
    /// Four: the kernel's, and three for programs.
    #[default]
    Four,
    /// Sixteen.
    Sixteen,
}

named!(Spaces { One "1", Four "4", Sixteen "16" });

/// Component that switches between the processes of a guest: `--switch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switch {
    /// The processes, which hand over to each other.
    #[default]
    Guest,
    /// The VMM, at an exit.
    Vmm,
}

named!(Switch { Guest "guest", Vmm "vmm" });

/// Execution of the system calls that the VMM needs of a guest that is a process: `--batching`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batching {
    /// Together, when the process continues.
    #[default]
    On,
    /// One by one, each with a stop of the process.
    Off,
}

named!(Batching { On "on", Off "off" });

/// Access of the VMM to the registers of a guest that is a process: `--state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VcpuState {
    /// They are in memory that the VMM has mapped.
    #[default]
    Mapped,
    /// The VMM copies them from the memory of the process and back.
    Copied,
}

named!(VcpuState { Mapped "mapped", Copied "copied" });

/// Translation of guest addresses: parameter `npt` of module `kvm_amd`
/// (Linux, Documentation/virt/kvm/x86/mmu.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paging {
    /// Nested page tables of the processor.
    #[default]
    Nested,
    /// Shadow page tables, which KVM derives from those of the guest.
    Shadow,
}

named!(Paging { Nested "nested", Shadow "shadow" });

/// Transparent huge pages: kernel option `transparent_hugepage`
/// (Linux, Documentation/admin-guide/mm/transhuge.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// None.
    Never,
    /// In memory for which programs ask for them.
    Madvise,
    /// Wherever they fit.
    Always,
}

named!(HugePages { Never "never", Madvise "madvise", Always "always" });

/// Mitigations of what processors leak (Linux, Documentation/admin-guide/hw-vuln).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mitigations {
    /// The mitigations of the kernel for the simulated processor, but none that a processor executes in one instruction, where the
    /// simulated one does not have it: KVM on Intel does not empty the level-1 cache.
    #[default]
    Auto,
    /// These, and on Intel a loop in KVM that empties the level-1 cache (`kvm_intel.vmentry_l1d_flush=cond`).
    Flush,
    /// None (kernel option `mitigations=off`).
    Off,
}

named!(Mitigations { Auto "auto", Flush "flush", Off "off" });

/// Control group of programs on a simulated machine (Linux, Documentation/admin-guide/cgroup-v2.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ControlGroup {
    /// That of all programs, without limits. The kernel does not account its memory.
    #[default]
    Root,
    /// One of its own, in which CPU time and memory are accounted.
    Own,
}

named!(ControlGroup { Root "root", Own "own" });

/// Population of a virtual machine's memory: `--prefault`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Population {
    /// On demand: the guest touches it.
    #[default]
    Demand,
    /// By the VMM before the guest runs, in bounded steps.
    Steps,
    /// By the VMM before the guest runs, in one system call.
    Whole,
}

named!(Population { Demand "demand", Steps "steps", Whole "whole" });

/// Output of a guest's serial port: `--serial`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serial {
    /// The vCPU thread writes each complete line: the VMM's default.
    #[default]
    Lines,
    /// The vCPU thread writes each byte.
    Direct,
    /// A separate thread writes.
    Buffered,
}

named!(Serial { Lines "lines", Direct "direct", Buffered "buffered" });
