//! The settings of a configuration: one table.
//!
//! Options of commands, keys of `[machine]` in plan files and their schema, `ENV:NAME=VALUE`, columns of the
//! store and docs/settings.md follow from it. To add a setting, add a row here, a field to [`GuestConfig`],
//! and its use to a launcher.

mod markdown;
mod support;
mod text;
mod value;

pub use markdown::markdown;
pub use value::{FileOverride, Value};

use crate::cpus::{self, Place};
use crate::features::Feature;
use crate::forwarders::{self, Ring};
use crate::guest_config::{
    Batching, ControlGroup, Crossing, GuestConfig, GuestPath, HugePages, MemoryPages, Mitigations,
    Paging, Peer, Spaces, Switch, VcpuState, Wake, LAYOUTS, MOST_GUESTS,
};
use crate::sched::{Sched, Scheduler};
use crate::scheduling::{Competitor, Halt, Pin};
use std::ops::RangeInclusive;
use trapline_abi::job::{Isolation, Zeroing, MOST_FILE_MIB};

/// A setting.
#[derive(Debug)]
pub struct Setting {
    /// Name of the option, of the key in plan files, and in `ENV:NAME=VALUE`.
    pub name: &'static str,
    /// Column of tables `boots` and `skips` of the store.
    pub column: &'static str,
    /// Values.
    pub value_type: ValueType,
    /// Value of a run without it, if it is the same everywhere.
    pub default: Option<&'static str>,
    /// Commands with an option of this name.
    pub options: Options,
    /// The feature that it needs, if only some environments support it. A file needs an environment with such a file.
    pub(crate) feature: Option<Feature>,
    /// Sets a value. Settings of files have no effect on the guest's configuration.
    pub(crate) apply: fn(&Value, &mut GuestConfig),
    /// Format of the store that added its column. A new setting has the next number.
    pub format: i64,
    /// Description, without a full stop.
    pub help: &'static str,
}

/// Values of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// A number of this range.
    Number(RangeInclusive<u32>),
    /// A size in MiB.
    Mebibytes,
    /// One of these names.
    Choice(&'static [&'static str]),
    /// A path, or a command, in place of a default file.
    File(FileOverride),
}

/// Commands with an option for a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Options {
    /// `run` only: workloads with a command of their own have options of their own.
    Run,
    /// Every command that measures.
    Measuring,
    /// Every command that measures but `explain`, whose environments name these settings.
    Shares,
    /// The commands of [`Self::Measuring`], and `list`: the availability of environments depends on these files.
    Part,
    /// The commands of [`Self::Part`], and `floor`: files of the simulated machine.
    Machine,
    /// Defined with the commands, because the option has more values than the setting.
    Own,
    /// None: settings of kernel builds and of packets, which follow from options of their commands.
    Command,
}

/// A row in which every column has a default.
const ROW: Setting = Setting {
    name: "",
    column: "",
    value_type: ValueType::Mebibytes,
    default: None,
    options: Options::Run,
    feature: None,
    apply: |_, _| {},
    format: FIRST_FORMAT,
    help: "",
};

/// Format of the store that has the columns of all settings without a later one.
const FIRST_FORMAT: i64 = 9;

/// Returns the format of the store in which every setting has a column.
pub const fn store_format() -> i64 {
    let (mut newest, mut row) = (FIRST_FORMAT, 0);
    while row < SETTINGS.len() {
        if SETTINGS[row].format > newest {
            newest = SETTINGS[row].format;
        }
        row += 1;
    }
    newest
}

/// Name of the setting for the layout of a simulated machine's memory.
pub const LAYOUT: &str = "layout";

/// All settings, in the order in which configurations are written.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "cpus",
        column: "cpus",
        value_type: ValueType::Number(1..=cpus::MOST),
        default: Some("1"),
        feature: Some(Feature::Cpus),
        apply: |value, guest| guest.cpus = value.number(),
        help: "Virtual CPUs of the guest",
        ..ROW
    },
    Setting {
        name: "guests",
        column: "guests",
        value_type: ValueType::Number(1..=MOST_GUESTS),
        default: Some("1"),
        feature: Some(Feature::Guests),
        apply: |value, guest| guest.guests = value.number(),
        format: 18,
        help: "Equal guests that are measured at the same time (docs/guests.md)",
        ..ROW
    },
    Setting {
        name: "memory",
        column: "memory_mib",
        feature: Some(Feature::MemorySize),
        apply: |value, guest| guest.memory_mib = value.number(),
        help: "Guest memory [default: the preset's]",
        ..ROW
    },
    Setting {
        name: "pages",
        column: "pages",
        value_type: ValueType::Choice(&MemoryPages::NAMES),
        default: Some("auto"),
        feature: Some(Feature::PrivatePages),
        apply: |value, guest| guest.pages = MemoryPages::ALL[value.choice()],
        help: "Guest memory: an anonymous file, private pages of 4 KiB or 2 MiB, or as devices need",
        ..ROW
    },
    Setting {
        name: "crossing",
        column: "crossing",
        value_type: ValueType::Choice(&Crossing::NAMES),
        default: Some("auto"),
        feature: Some(Feature::GuestProcess),
        apply: |value, guest| guest.crossing = Crossing::ALL[value.choice()],
        format: 10,
        help: "Hypercalls of a guest that is a process: the mechanism (docs/process.md)",
        ..ROW
    },
    Setting {
        name: "spaces",
        column: "spaces",
        value_type: ValueType::Choice(&Spaces::NAMES),
        default: Some("4"),
        feature: Some(Feature::GuestProcess),
        apply: |value, guest| guest.spaces = Spaces::ALL[value.choice()],
        format: 12,
        help: "Linux processes for the address spaces of a guest that is a process, in workload system",
        ..ROW
    },
    Setting {
        name: "switch",
        column: "switch",
        value_type: ValueType::Choice(&Switch::NAMES),
        default: Some("guest"),
        feature: Some(Feature::GuestProcess),
        apply: |value, guest| guest.switch = Switch::ALL[value.choice()],
        format: 13,
        help: "Switches between these processes: by themselves, or by the VMM",
        ..ROW
    },
    Setting {
        name: "batching",
        column: "batching",
        value_type: ValueType::Choice(&Batching::NAMES),
        default: Some("on"),
        feature: Some(Feature::GuestProcess),
        apply: |value, guest| guest.batching = Batching::ALL[value.choice()],
        format: 15,
        help: "System calls that the VMM needs of a guest that is a process: together when it continues, or one by one",
        ..ROW
    },
    Setting {
        name: "state",
        column: "state",
        value_type: ValueType::Choice(&VcpuState::NAMES),
        default: Some("mapped"),
        feature: Some(Feature::GuestProcess),
        apply: |value, guest| guest.state = VcpuState::ALL[value.choice()],
        format: 16,
        help: "Registers of a guest that is a process: in memory that the VMM has mapped, or copied by system calls",
        ..ROW
    },
    Setting {
        name: "paging",
        column: "paging",
        value_type: ValueType::Choice(&Paging::NAMES),
        default: Some("nested"),
        options: Options::Measuring,
        feature: Some(Feature::ShadowPaging),
        apply: |value, guest| guest.paging = Paging::ALL[value.choice()],
        format: 11,
        help: "Translation of guest addresses by KVM: nested page tables of the processor, or shadow page tables",
    },
    Setting {
        name: "thp",
        column: "thp",
        value_type: ValueType::Choice(&HugePages::NAMES),
        options: Options::Measuring,
        feature: Some(Feature::MachineSettings),
        apply: |value, guest| guest.thp = Some(HugePages::ALL[value.choice()]),
        format: 19,
        help: "Transparent huge pages of the simulated machine's Linux [default: never around a guest, else as its kernel has them]",
        ..ROW
    },
    Setting {
        name: "cgroup",
        column: "cgroup",
        value_type: ValueType::Choice(&ControlGroup::NAMES),
        options: Options::Measuring,
        feature: Some(Feature::MachineSettings),
        apply: |value, guest| guest.cgroup = ControlGroup::ALL[value.choice()],
        format: 28,
        help: "Control group of the VMM on the simulated machine: that of all programs, or one of its own, in which CPU time and memory are accounted",
        ..ROW
    },
    Setting {
        name: "mitigations",
        column: "mitigations",
        value_type: ValueType::Choice(&Mitigations::NAMES),
        default: Some("auto"),
        feature: Some(Feature::Mitigations),
        apply: |value, guest| guest.mitigations = Mitigations::ALL[value.choice()],
        format: 35,
        help: "Mitigations of the simulated machine's Linux: its own, these and a software flush of Intel's level-1 cache before guest entries, or none",
        ..ROW
    },
    Setting {
        name: LAYOUT,
        column: "layout",
        value_type: ValueType::Number(0..=LAYOUTS - 1),
        default: Some("0"),
        options: Options::Own,
        feature: Some(Feature::Layout),
        apply: |value, guest| guest.layout = value.number(),
        format: 34,
        help: "Layout of the simulated machine's memory; run and baseline measure the first N with --layouts N (docs/clocks.md)",
    },
    Setting {
        name: "wake",
        column: "wake",
        value_type: ValueType::Choice(&Wake::NAMES),
        default: Some("halt"),
        apply: |value, guest| guest.wake = Wake::ALL[value.choice()],
        format: 20,
        help: "Wait for a semaphore in workloads ipc and smp: halt, poll for microseconds and then halt, or mwait; haltpoll and idle-poll of Linux guests (docs/ipc.md)",
        ..ROW
    },
    Setting {
        name: "path",
        column: "path",
        value_type: ValueType::Choice(&GuestPath::NAMES),
        default: Some("switch"),
        options: Options::Measuring,
        feature: Some(Feature::Packets),
        apply: |value, guest| guest.path = GuestPath::ALL[value.choice()],
        format: 22,
        help: "Way of the packets of workload net from guest to guest: trapline-switch, a bridge, or a bridge with vhost-net (docs/network.md)",
    },
    Setting {
        name: "peer",
        column: "peer",
        value_type: ValueType::Choice(&Peer::NAMES),
        default: Some("process"),
        options: Options::Measuring,
        feature: Some(Feature::Packets),
        apply: |value, guest| guest.peer = Peer::ALL[value.choice()],
        format: 23,
        help: "Peer of tcp-… and udp-… of workload net: a process behind a tap, or another guest of the same kind on the way of --path (docs/network.md)",
    },
    Setting {
        name: "zeroing",
        column: "zeroing",
        value_type: ValueType::Choice(&Zeroing::NAMES),
        default: Some("demand"),
        feature: Some(Feature::Zeroing),
        apply: |value, guest| guest.zeroing = Zeroing::ALL[value.choice()],
        format: 21,
        help: "Zeroing of the image's memory in workload basic: in the allocation or while idle, with ordinary or non-temporal stores (docs/memory.md)",
        ..ROW
    },
    Setting {
        name: "isolation",
        column: "isolation",
        value_type: ValueType::Choice(&Isolation::NAMES),
        default: Some("none"),
        options: Options::Measuring,
        feature: Some(Feature::Isolation),
        apply: |value, guest| guest.isolation = Isolation::ALL[value.choice()],
        format: 26,
        help: "Page tables of programs in workload system and in Linux guests: as the kernel has them by default, or isolated from it (docs/processes.md)",
    },
    Setting {
        name: "file-mib",
        column: "file_mib",
        value_type: ValueType::Number(8..=MOST_FILE_MIB),
        feature: Some(Feature::FileSize),
        apply: |value, guest| guest.file_mib = value.number(),
        format: 24,
        help: "Size in MiB of the large file of workload files (docs/files.md) [default: 64]",
        ..ROW
    },
    Setting {
        name: "pin",
        column: "pin",
        value_type: ValueType::Choice(&Pin::NAMES),
        default: Some("free"),
        feature: Some(Feature::Placement),
        apply: |value, guest| guest.scheduling.pin = Pin::ALL[value.choice()],
        help: "CPU affinity of the virtual CPU: none, alone on a CPU, or on one CPU with its VMM",
        ..ROW
    },
    Setting {
        name: "competitor",
        column: "competitor",
        value_type: ValueType::Choice(&Competitor::NAMES),
        default: Some("none"),
        feature: Some(Feature::Placement),
        apply: |value, guest| guest.scheduling.competitor = Competitor::ALL[value.choice()],
        format: 27,
        help: "Program that computes on each CPU of the guest, whenever no other thread runs there (docs/ipc.md)",
        ..ROW
    },
    Setting {
        name: "idle",
        column: "idle",
        value_type: ValueType::Choice(&Halt::NAMES),
        default: Some("exits"),
        feature: Some(Feature::HaltInGuest),
        apply: |value, guest| guest.scheduling.halt = Halt::ALL[value.choice()],
        help: "HLT of the guest: exits, or is not intercepted by KVM",
        ..ROW
    },
    Setting {
        name: "sched",
        column: "scheduler",
        value_type: ValueType::Choice(&Scheduler::NAMES),
        options: Options::Own,
        feature: Some(Feature::CpuShares),
        apply: |value, guest| guest.scheduling.sched = Sched::Xen(Scheduler::ALL[value.choice()]),
        help: "Xen's scheduler of virtual CPUs",
        ..ROW
    },
    Setting {
        name: "cap",
        column: "cap",
        value_type: ValueType::Number(1..=100),
        options: Options::Shares,
        feature: Some(Feature::CpuShares),
        apply: |value, guest| guest.scheduling.cap = Some(value.number()),
        help: "Limit of a Xen domain's CPU time, in percent of a CPU",
        ..ROW
    },
    Setting {
        name: "weight",
        column: "weight",
        value_type: ValueType::Number(1..=65_535),
        options: Options::Shares,
        feature: Some(Feature::CpuShares),
        apply: |value, guest| guest.scheduling.weight = Some(value.number()),
        help: "Weight of a Xen domain under contention [default: 256]",
        ..ROW
    },
    Setting {
        name: "jobs",
        column: "jobs",
        value_type: ValueType::Number(1..=cpus::MOST),
        options: Options::Command,
        feature: Some(Feature::KernelBuild),
        format: 29,
        help: "Jobs of a kernel build, and CPUs for them: virtual ones of a guest",
        ..ROW
    },
    Setting {
        name: "place",
        column: "place",
        value_type: ValueType::Choice(&Place::NAMES),
        options: Options::Command,
        feature: Some(Feature::KernelBuild),
        format: 30,
        help: "CPUs of a kernel build: the first is that of the VMM's other threads, or none is",
        ..ROW
    },
    Setting {
        name: "ring",
        column: "ring",
        value_type: ValueType::Choice(&Ring::NAMES),
        default: Some("split"),
        options: Options::Command,
        feature: Some(Feature::Queues),
        format: 31,
        help: "Format of the queues of a forwarder's ports",
        ..ROW
    },
    Setting {
        name: "queues",
        column: "queues",
        value_type: ValueType::Number(forwarders::QUEUES),
        default: Some("1"),
        options: Options::Command,
        feature: Some(Feature::Queues),
        format: 32,
        help: "Pairs of queues of each of these ports",
        ..ROW
    },
    Setting {
        name: "image",
        column: "image",
        value_type: ValueType::File(FileOverride::Image),
        options: Options::Part,
        help: "File of the unikernel",
        ..ROW
    },
    Setting {
        name: "agent",
        column: "agent",
        value_type: ValueType::File(FileOverride::Agent),
        options: Options::Part,
        help: "File of the Linux program",
        ..ROW
    },
    Setting {
        name: "vmm",
        column: "vmm",
        value_type: ValueType::File(FileOverride::Vmm),
        options: Options::Own,
        help: "File of trapline-vmm; in custom and sim/custom a command with {image}",
        ..ROW
    },
    Setting {
        name: "nova",
        column: "nova",
        value_type: ValueType::File(FileOverride::Nova),
        options: Options::Part,
        format: 14,
        help: "File of the NOVA hypervisor [default: TRAPLINE_NOVA, or nova/hypervisor in the cache]",
        ..ROW
    },
    Setting {
        name: "qemu",
        column: "qemu",
        value_type: ValueType::File(FileOverride::Qemu),
        options: Options::Machine,
        help: "File of QEMU",
        ..ROW
    },
    Setting {
        name: "kernel",
        column: "kernel",
        value_type: ValueType::File(FileOverride::Kernel),
        options: Options::Machine,
        help: "Kernel of the simulated machine: a file, or a kernel package of the distribution or its version, downloaded once [default: its newest]",
        ..ROW
    },
    Setting {
        name: "modules",
        column: "modules",
        value_type: ValueType::File(FileOverride::Modules),
        options: Options::Machine,
        help: "Directory of the kernel's modules [default: lib/modules/VERSION beside the kernel's file]",
        ..ROW
    },
];

#[cfg(test)]
mod tests;
