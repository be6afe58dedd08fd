//! The table: a row for each feature, with an answer for each layer.

use crate::layers::Machine;

/// Defines [`Layer`], and the list of all.
macro_rules! layers {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The system that is measured, and what it runs on: the innermost layers of a stack.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Layer { $($(#[$doc])* $name,)* }

        use Layer::{$($name),*};

        /// All layers.
        const ALL: &[Layer] = &[$($name),*];
    };
}

layers! {
    /// The agent on this host.
    Host,
    /// The agent in the Linux of a simulated machine.
    MachineLinux,
    /// The image on a simulated machine.
    BareImage,
    Kvm,
    KvmLinux,
    UserApic,
    Process,
    QemuKvm,
    /// The image in QEMU with machine type `pc`.
    QemuPc,
    QemuKvmLinux,
    QemuTcg,
    QemuTcgLinux,
    Uml,
    Nova,
    NovaLinux,
    XenPvh,
    XenHvm,
    XenTrapline,
    XenDom0,
    Custom,
    CustomLinux,
}

/// Answer to the question whether layers have a feature.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    Yes,
    /// No, for this reason, and a setting for all environments does not concern them: they are measured without it, so that
    /// ratios to them exist.
    Unconcerned(&'static str),
    /// No, for this reason.
    No(&'static str),
}

use Answer::{No, Unconcerned, Yes};

/// A property of an environment besides its layer.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// On a machine.
    On(Machine),
    /// On an exact clock.
    Exact,
    /// In a guest of its machine.
    Nested,
}

/// A row of the table.
pub(super) struct Row {
    /// A feature that this one needs. Its reasons come first, and only layers that have it need an answer.
    pub(super) needs: Option<Feature>,
    /// Places where layers do not have it, whatever their answer, with the reason.
    pub(super) except: &'static [(Place, &'static [Layer], &'static str)],
    /// The answer of each layer.
    pub(super) answers: &'static [(&'static [Layer], Answer)],
    /// Environments that measure operations with it, for a remedy.
    pub(super) instead: &'static str,
}

const NATIVE_LINUX: &[Layer] = &[Host, MachineLinux];
const NATIVE: &[Layer] = &[Host, MachineLinux, BareImage];
const QEMU: &[Layer] = &[QemuKvm, QemuPc, QemuKvmLinux, QemuTcg, QemuTcgLinux];
const QEMU_IMAGES: &[Layer] = &[QemuKvm, QemuPc, QemuTcg];
const QEMU_LINUX: &[Layer] = &[QemuKvmLinux, QemuTcgLinux];
const NOVA: &[Layer] = &[Nova, NovaLinux];
/// Domains that the first one starts.
const XEN_STARTED: &[Layer] = &[XenPvh, XenHvm, XenTrapline];
const XEN: &[Layer] = &[XenPvh, XenHvm, XenTrapline, XenDom0];
/// Images that are guests of no Xen.
const IMAGES: &[Layer] = &[
    Kvm, UserApic, Process, QemuKvm, QemuPc, QemuTcg, Nova, Custom,
];
const CUSTOM: &[Layer] = &[Custom, CustomLinux];
#[rustfmt::skip]
const LINUX_GUESTS: &[Layer] = &[KvmLinux, QemuKvmLinux, QemuTcgLinux, Uml, NovaLinux, CustomLinux];

const SIM_VMX: Place = Place::On(Machine::SimVmx);
const ARM: Place = Place::On(Machine::SimArm64);
const ON_HOST: Place = Place::On(Machine::Host);

pub(super) const NO_GUEST: &str = "a forwarder passes packets, and nothing else";
const ONE_DIFFERENCE: &str = "it differs from sim/kvm in its local APIC only";
const NO_INTERRUPT: &str = "devices interrupt a guest through KVM's interrupt controllers";
const NO_LINUX: &str = "it runs the image, which is not Linux";
const NOT_SCHEDULED: &str = "its virtual CPU is no thread of the machine's Linux";
const STARTS_WITH_MACHINE: &str =
    "Xen's first domain starts with the machine, and no VMM is executed";
const OTHER_CLOCK: &str =
    "Xen does not report the offset of a domain's clock; explain of boot/exit has the stages on sim/";
const NOT_VIRTUALIZED: &str = "nothing is virtualized there";

/// Defines [`Feature`] and its rows: what a feature needs, the places where layers do not have it whatever their answer, the
/// answer of each layer, and environments that measure operations with it, for a remedy.
macro_rules! features {
    ($(
        $(#[$doc:meta])*
        $name:ident $(needs $needed:ident)? $(except [$($place:expr, $excepted:expr => $why:expr,)*])?
        { $($layers:expr => $answer:expr,)* } $(instead $instead:literal)?;
    )*) => {
        /// Something that an environment can be measured with, or has.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Feature { $($(#[$doc])* $name,)* }

        impl Feature {
            pub(super) const ALL: &[Self] = &[$(Self::$name),*];

            const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            pub(super) const fn row(self) -> Row {
                match self { $(
                    Self::$name => {
                        #[allow(unused_mut)]
                        let mut row = Row { needs: None, except: &[], answers: &[$(($layers, $answer)),*], instead: "" };
                        $(row.needs = Some(Self::$needed);)?
                        $(row.except = &[$(($place, $excepted, $why)),*];)?
                        $(row.instead = $instead;)?
                        row
                    }
                )* }
            }
        }
    };
}

features! {
    /// It is measured by default where it is available.
    Default except [
        SIM_VMX, ALL => "its machine boots slowly",
        ARM, ALL => "its programs are built if they are asked for",
        Place::Nested, ALL => "a guest in a guest boots slowly",
        ON_HOST, &[Process] => "each page fault of a process waits for a second CPU",
    ] {
        NATIVE => Yes,
        &[Kvm, Process, QemuKvm, QemuTcg] => Yes,
        &[UserApic] => No("it is a variant of sim/kvm"),
        &[QemuPc] => No("it is a variant of qemu-kvm"),
        LINUX_GUESTS => No("its Linux boots slowly"),
        &[Nova] => No("NOVA is a file of the user's"),
        XEN => No("Xen has to be downloaded, and boots slowly"),
        &[Custom] => No("its VMM is a command of the user's"),
    };

    /// It starts within about a second, so that one boot has several starts.
    ShortStart {
        NATIVE => Yes,
        &[Kvm, UserApic, Process, QemuKvm, QemuPc, QemuTcg, Custom] => Yes,
        XEN_STARTED => Yes,
        LINUX_GUESTS => No("its Linux boots with each start"),
        &[Nova, XenDom0] => No("its hypervisor boots with each start"),
    };

    /// Every instruction on its machine can be attributed.
    Profiles except [
        ON_HOST, ALL => "it is not on the instruction clock",
        ARM, ALL => "instructions of Arm are not attributed yet",
    ] {
        NATIVE => Yes,
        IMAGES => Yes,
        XEN => Yes,
        LINUX_GUESTS => No("its guest is a Linux, whose programs are not distinguished"),
    };

    /// The stages of a start have profiles, too, and a baseline can contain it.
    DetailedProfiles needs Profiles except [
        SIM_VMX, ALL => "its profiles have no stages",
        Place::Nested, ALL => "its guest is not distinguished from the one that hosts it",
    ] {
        ALL => Yes,
    };

    /// Call stacks can be drawn.
    Stacks needs DetailedProfiles {
        NATIVE => Yes,
        IMAGES => Yes,
        XEN => No("Xen's stacks are not read"),
    };

    /// The path of an interrupt can be traced.
    InterruptPath except [
        ON_HOST, ALL => "it is not on the instruction clock",
        SIM_VMX, ALL => "this simulated machine has no plugin that traces interrupts",
    ] {
        &[Host, BareImage] => Yes,
        IMAGES => Yes,
        LINUX_GUESTS => Yes,
        XEN => Yes,
        &[MachineLinux] => No("wake-ups of one program cannot be distinguished from those of others"),
    };

    /// The size of the guest's memory can be set.
    MemorySize {
        NATIVE => Unconcerned(NOT_VIRTUALIZED),
        &[Kvm, KvmLinux, UserApic, Process] => Yes,
        QEMU => Yes,
        &[Uml] => Yes,
        XEN_STARTED => Yes,
        CUSTOM => Yes,
        &[Nova, NovaLinux, XenDom0] => No("it has the memory that its machine leaves to it"),
    };

    /// Its VMM can make guest memory of private pages.
    PrivatePages {
        NATIVE => Unconcerned(NOT_VIRTUALIZED),
        &[Kvm, KvmLinux] => Yes,
        &[UserApic] => No(ONE_DIFFERENCE),
        &[Process] => No("a guest process shares its memory with its VMM"),
        QEMU => No("QEMU's memory is as QEMU makes it"),
        &[Uml] => No("its memory is as user-mode Linux makes it"),
        NOVA => No("NOVA maps memory of the machine"),
        XEN => No("Xen makes the memory of its domains"),
        CUSTOM => No("its memory is as its VMM makes it"),
    };

    /// Its guest is a process, whose mechanisms can be set.
    GuestProcess {
        NATIVE => Unconcerned(NOT_VIRTUALIZED),
        &[Process] => Yes,
        &[Kvm, KvmLinux, UserApic] => No("its guest is a virtual machine"),
        QEMU => No("its guest is a virtual machine"),
        NOVA => No("its guest is a virtual machine"),
        XEN => No("its guest is a domain of Xen"),
        CUSTOM => No("its guest is a virtual machine"),
        &[Uml] => No("its kernel is a process with mechanisms of its own"),
    };

    /// KVM of a simulated machine, which can translate guest addresses by shadow page tables.
    ShadowPaging except [
        ON_HOST, ALL => "the settings of this host's KVM are not changed",
        SIM_VMX, ALL => "the settings of its KVM are not changed",
        Place::Nested, ALL => "its KVM is not that of the machine",
    ] {
        NATIVE => Unconcerned(NOT_VIRTUALIZED),
        &[Kvm, KvmLinux, QemuKvm, QemuPc, QemuKvmLinux] => Yes,
        CUSTOM => Yes,
        &[UserApic] => No(ONE_DIFFERENCE),
        &[Process, Uml] => No("its guest is a process, whose addresses no hypervisor translates"),
        &[QemuTcg, QemuTcgLinux] => No("QEMU translates its addresses"),
        NOVA => No("NOVA translates its addresses"),
        XEN => No("Xen translates its addresses"),
    };

    /// A Linux of a simulated machine, whose huge pages and control groups can be set.
    MachineSettings except [
        ON_HOST, ALL => "the settings of this host's Linux are not changed",
        SIM_VMX, ALL => "the settings of its Linux are not changed",
    ] {
        &[Host, BareImage] => Unconcerned("no Linux of a simulated machine runs there"),
        &[MachineLinux, Kvm, KvmLinux, UserApic, Process, Uml] => Yes,
        QEMU => Yes,
        CUSTOM => Yes,
        NOVA => No("no Linux runs on its machine"),
        XEN => No("Xen makes the memory of its domains, and runs them"),
    };

    /// The mitigations of its simulated machine's Linux can be chosen.
    Mitigations except [
        ON_HOST, ALL => "the mitigations of this host are not changed",
    ] {
        &[Host, BareImage] => Unconcerned("no Linux of a simulated machine runs there"),
        &[MachineLinux, Kvm, KvmLinux, UserApic, Process, Uml] => Yes,
        QEMU => Yes,
        CUSTOM => Yes,
        NOVA => No("no Linux runs on its machine"),
        XEN => No("Xen has mitigations of its own"),
    };

    /// The Linux of its simulated machine can be placed in memory in several ways.
    Layout except [
        ON_HOST, ALL => "the layout of this host's memory is not changed",
        SIM_VMX, ALL => "its machine boots slowly",
    ] {
        &[Host, BareImage] => Unconcerned("no Linux of a simulated machine runs there"),
        &[MachineLinux, Kvm, KvmLinux, UserApic, Process, Uml] => Yes,
        QEMU => Yes,
        CUSTOM => Yes,
        XEN_STARTED => Yes,
        NOVA => No("no Linux runs on its machine"),
        &[XenDom0] => No("no Linux runs on its machine"),
    };

    /// The number of virtual CPUs can be set.
    Cpus except [
        SIM_VMX, ALL => "its machine has one CPU",
        Place::Nested, ALL => "a guest in a guest has one CPU",
    ] {
        NATIVE_LINUX => Unconcerned("it has the CPUs of its machine"),
        &[BareImage, Kvm, KvmLinux, CustomLinux] => Yes,
        QEMU => Yes,
        &[UserApic] => No(ONE_DIFFERENCE),
        &[Process] => No("a guest process has one virtual CPU"),
        &[Uml] => No("user-mode Linux has one CPU"),
        NOVA => No("a guest of NOVA has one CPU"),
        XEN => No("a domain of Xen has one CPU"),
        &[Custom] => No("the image has one CPU in a VMM of the user's"),
    };

    /// And takes an exact number of instructions.
    ExactBuild needs KernelBuild except [
        ON_HOST, ALL => "figures of the wall clock differ from run to run",
    ] {
        ALL => Yes,
    };

    /// A kernel build can have several jobs.
    BuildJobs needs KernelBuild except [
        Place::Exact, ALL => "its machine has one CPU",
    ] {
        &[Host, KvmLinux, QemuKvmLinux, QemuTcgLinux, CustomLinux] => Yes,
        &[MachineLinux] => No("its machine has one CPU"),
        &[Uml] => No("user-mode Linux has one CPU"),
        &[NovaLinux] => No("a guest of NOVA has one CPU"),
    };

    /// The CPUs of a kernel build can be others than those of the VMM.
    BuildPlace needs KernelBuild except [
        Place::Exact, ALL => "its machine has one CPU",
    ] {
        ALL => Yes,
    };

    /// Several equal guests can start at the same time.
    Guests except [
        SIM_VMX, ALL => "one guest at a time starts on its machine",
        Place::Nested, ALL => "one guest at a time starts in a guest",
    ] {
        &[Host, Kvm, UserApic, Process, Custom] => Yes,
        QEMU_IMAGES => Yes,
        &[MachineLinux, BareImage] => No("its machine is its only guest"),
        LINUX_GUESTS => No("Linux guests start one at a time"),
        &[Nova] => No("NOVA starts one guest"),
        XEN => No("domains of Xen start one at a time"),
    };

    /// They can begin operations at the same time: each waits for a byte of its standard input.
    StartBarrier needs Guests except [
        Place::Exact, ALL => "the guests of a simulated machine have no standard input",
    ] {
        &[Host, Kvm, UserApic, Process] => Yes,
        QEMU_IMAGES => No("QEMU's guests do not wait for a byte"),
        &[Custom] => No("guests of a VMM of the user's do not wait for a byte"),
    };

    /// The zeroing of its memory can be set.
    Zeroing {
        NATIVE_LINUX => Unconcerned("its Linux zeroes memory as it is built to"),
        &[BareImage, Kvm, UserApic, Process, QemuKvm, QemuPc, QemuTcg, Nova, Custom] => Yes,
        XEN => Yes,
        LINUX_GUESTS => No("its Linux zeroes memory as it is built to"),
    };

    /// Page tables can isolate its kernel from programs.
    Isolation except [
        ARM, ALL => "its Linux decides by the processor",
    ] {
        &[Host] => Unconcerned("the page tables of this host are as it was booted"),
        &[MachineLinux, BareImage, Kvm, KvmLinux, UserApic] => Yes,
        QEMU => Yes,
        NOVA => Yes,
        XEN => Yes,
        CUSTOM => Yes,
        &[Process] => No("a guest process has no page tables of its own"),
        &[Uml] => No("user-mode Linux has no page tables of its own"),
    };

    /// The size of the large file of workload `files` can be set.
    FileSize except [
        Place::Exact, ALL => "the file has the same size wherever instructions are counted",
    ] {
        ALL => Yes,
    };

    /// The virtual CPU can be bound to CPUs, and share them with a program.
    Placement except [
        Place::Exact, ALL => "the CPUs of this host do not change its figures",
    ] {
        ALL => Yes,
    };

    /// KVM can leave `hlt` to the guest.
    HaltInGuest {
        NATIVE => Unconcerned(NOT_VIRTUALIZED),
        &[Kvm, QemuKvm, QemuPc] => Yes,
        LINUX_GUESTS => No("its Linux has an idle loop of its own"),
        &[UserApic] => No(ONE_DIFFERENCE),
        &[Process, QemuTcg, Nova] => No("KVM does not run its guest"),
        XEN => No("KVM does not run its guest"),
        &[Custom] => No("a VMM of the user's configures KVM"),
    };

    /// The scheduling policy of the virtual CPU's thread can be set.
    ThreadPolicy except [
        Place::Exact, &[QemuKvm, QemuPc] => "the threads of QEMU on a simulated machine are not scheduled",
        Place::Nested, ALL => NOT_SCHEDULED,
    ] {
        &[Host, MachineLinux, Kvm, UserApic, QemuKvm, QemuPc, QemuTcg] => Yes,
        &[BareImage, Nova] => No(NOT_SCHEDULED),
        XEN => No(NOT_SCHEDULED),
        &[Process] => No("its virtual CPU is a process, not a thread of its VMM"),
        LINUX_GUESTS => No("the virtual CPUs of a Linux guest are not scheduled one by one"),
        &[Custom] => No("the threads of a VMM of the user's are not known"),
    };

    /// A second guest can run beside the measured one.
    SecondGuest needs ThreadPolicy {
        &[Host, Kvm, UserApic, QemuKvm, QemuPc, QemuTcg] => Yes,
        &[MachineLinux] => No("its machine is its only guest"),
    };

    /// Xen bounds and weighs its share of the CPU.
    CpuShares {
        XEN_STARTED => Yes,
        &[XenDom0] => No("it is the only domain"),
        NATIVE => No("Xen does not schedule it"),
        IMAGES => No("Xen does not schedule it"),
        LINUX_GUESTS => No("Xen does not schedule it"),
    };

    /// A kernel can be built there.
    KernelBuild except [
        SIM_VMX, &[MachineLinux] => "a build takes hours on its machine",
        ARM, ALL => "the compiler of a build is one of x86-64",
    ] {
        NATIVE_LINUX => Yes,
        LINUX_GUESTS => Yes,
        &[BareImage, Kvm, UserApic, Process, QemuKvm, QemuPc, QemuTcg, Nova, Custom] => No(NO_LINUX),
        XEN => No(NO_LINUX),
    };

    /// Ports with queues.
    Queues {
        ALL => No("it is no forwarder"),
    };

    /// The caches of a processor, which workload `memory` measures.
    Caches except [
        Place::Exact, ALL => "a load is one instruction, whatever the caches hold",
    ] {
        ALL => Yes,
    } instead "kvm or host";

    /// A virtio device that interrupts the guest.
    Doorbell {
        NATIVE => Yes,
        &[Kvm, Process, QemuKvm, QemuPc, QemuTcg, Nova, Custom] => Yes,
        XEN => Yes,
        LINUX_GUESTS => Yes,
        &[UserApic] => No(NO_INTERRUPT),
    } instead "sim/kvm";

    /// A running guest can be given memory.
    Hotplug except [
        Place::Nested, ALL => "a guest in a guest has the memory that it starts with",
    ] {
        NATIVE_LINUX => Yes,
        &[Kvm] => Yes,
        &[BareImage] => No("a bare machine has the memory that it starts with"),
        LINUX_GUESTS => No("memory hotplug is not supported for Linux guests"),
        &[UserApic] => No(NO_INTERRUPT),
        &[Process] => No("a guest process has the memory that it starts with"),
        &[Custom] => No("memory hotplug of a VMM given with --vmm is not supported"),
        &[Nova] => No("a guest of NOVA has the memory that it starts with"),
        XEN => No("a domain of Xen is populated before it starts (boot/exit has that in it), and gets no more"),
        QEMU_IMAGES => No("QEMU gives a running guest memory by ACPI hotplug, which the image does not support"),
    } instead "kvm or sim/kvm";

    /// And a GiB of it.
    LargeHotplug needs Hotplug except [
        SIM_VMX, ALL => "the machine with Intel's virtualization has no room for a GiB",
    ] {
        &[Host, MachineLinux, Kvm] => Yes,
    } instead "sim/kvm";

    /// A disk, with files or without.
    Disk except [
        SIM_VMX, ALL => "the machine with Intel's virtualization has no room for a disk",
    ] {
        NATIVE_LINUX => Yes,
        &[Kvm, KvmLinux, Process, QemuKvm, QemuKvmLinux, QemuTcg, QemuTcgLinux, Uml] => Yes,
        &[BareImage] => No("a machine without Linux has no disk"),
        &[UserApic] => No(NO_INTERRUPT),
        &[QemuPc] => No("the disk of this machine is a PCI device, for which the image has no driver"),
        NOVA => No("the disk of a guest of NOVA is not supported"),
        XEN => No("the disk of a domain of Xen is not supported"),
        CUSTOM => No("the disk of a VMM given with --vmm is not supported"),
    } instead "kvm, sim/kvm or sim/qemu-kvm";

    /// A network with a peer.
    Network except [
        SIM_VMX, ALL => "the network of the machine with Intel's virtualization is not supported",
    ] {
        NATIVE_LINUX => Yes,
        &[Kvm, KvmLinux, Process] => Yes,
        &[BareImage] => No("a machine without Linux has no peer"),
        &[UserApic] => No(NO_INTERRUPT),
        QEMU => No("the network of QEMU is not supported"),
        &[Uml] => No("the network of user-mode Linux is not supported"),
        NOVA => No("the network of a guest of NOVA is not supported"),
        XEN => No("the network of a domain of Xen is not supported"),
        CUSTOM => No("the network of a VMM given with --vmm is not supported"),
    } instead "kvm or sim/kvm";

    /// A file in memory that is sent over it.
    SendFile needs Network {
        &[Host, MachineLinux, KvmLinux] => Yes,
        &[Kvm, Process] => No("the image has no file in memory while it has a network card"),
    } instead "host, sim/linux, kvm/linux or sim/kvm/linux";

    /// A vsock device with a peer.
    Vsock needs Network except [
        ARM, ALL => "the modules of its kernel are not loaded yet",
    ] {
        &[Host, MachineLinux, KvmLinux] => Yes,
        &[Kvm, Process] => No("the image has no driver for vsock"),
    } instead "host, sim/linux, kvm/linux or sim/kvm/linux";

    /// Two guests can be connected.
    Packets needs Network except [
        Place::Nested, ALL => "packets go from guest to guest of trapline-vmm on one level",
    ] {
        &[Kvm, KvmLinux, Process] => Yes,
        NATIVE_LINUX => No("packets go from guest to guest of trapline-vmm"),
    } instead "kvm or sim/kvm";

    /// The network is a tap of this host.
    HostTap needs Network except [
        Place::Exact, ALL => "the tap is one of its machine",
    ] {
        &[Kvm, KvmLinux, Process] => Yes,
        NATIVE_LINUX => No("the peer is behind the loopback device"),
    };

    /// The creation of the virtual machine is observed.
    VmCreated except [
        SIM_VMX, NOVA => "the guest's clock does not count from the reset",
    ] {
        &[Kvm, KvmLinux, UserApic, Process, Nova, NovaLinux] => Yes,
        NATIVE_LINUX => No("a process has no virtual machine"),
        &[BareImage] => No("the bare machine has no VMM"),
        &[Uml] => No("user-mode Linux is the executed program: its kernel is the first stage"),
        QEMU => No("QEMU does not report the creation of the machine"),
        &[XenDom0] => No(STARTS_WITH_MACHINE),
        XEN_STARTED => No(OTHER_CLOCK),
        CUSTOM => No("a VMM given with --vmm does not report the creation of the machine"),
    };

    /// The guest's first instruction is observed.
    FirstInstruction except [
        SIM_VMX, NOVA => "the guest's clock does not count from the reset",
    ] {
        &[Kvm, KvmLinux, UserApic, Process, Nova, NovaLinux, Custom] => Yes,
        QEMU_IMAGES => Yes,
        NATIVE_LINUX => No("a process has no virtual machine"),
        &[BareImage] => No("the bare machine has no VMM"),
        &[Uml] => No("user-mode Linux is the executed program: its kernel is the first stage"),
        QEMU_LINUX => No("QEMU does not report the entry to its guest's kernel"),
        &[XenDom0] => No(STARTS_WITH_MACHINE),
        XEN_STARTED => No(OTHER_CLOCK),
        &[CustomLinux] => No("no record marks the first instruction of a Linux guest, and other VMMs report none"),
    };

    /// The guest's main function and its first sample are observed since the start of the VMM.
    GuestMain except [
        SIM_VMX, NOVA => "the guest's clock does not count from the reset",
    ] {
        NATIVE_LINUX => Yes,
        IMAGES => Yes,
        LINUX_GUESTS => Yes,
        &[BareImage] => No("the bare machine has no VMM"),
        &[XenDom0] => No(STARTS_WITH_MACHINE),
        XEN_STARTED => No(OTHER_CLOCK),
    };

    /// The end of the VMM is observed.
    Exit {
        NATIVE_LINUX => Yes,
        &[Kvm, KvmLinux, UserApic, Process, Uml] => Yes,
        QEMU => Yes,
        CUSTOM => Yes,
        XEN_STARTED => Yes,
        &[BareImage] => No("the bare machine has no VMM"),
        NOVA => No("the machine ends with its guest"),
        &[XenDom0] => No(STARTS_WITH_MACHINE),
    };
}

impl Row {
    /// Returns the answer of a layer, if there is one and no other.
    pub(super) const fn answer(&self, layer: Layer) -> Option<Answer> {
        let mut found = None;
        let mut answers = self.answers;
        while let [(layers, answer), rest @ ..] = answers {
            if contains(layers, layer) {
                if found.is_some() {
                    return None;
                }
                found = Some(*answer);
            }
            answers = rest;
        }
        found
    }
}

const fn contains(mut layers: &[Layer], layer: Layer) -> bool {
    while let [first, rest @ ..] = layers {
        if *first as u8 == layer as u8 {
            return true;
        }
        layers = rest;
    }
    false
}

/// Returns whether a layer has all that a feature needs, somewhere.
const fn has_needed(feature: Feature, layer: Layer) -> bool {
    match feature.row().needs {
        None => true,
        Some(needed) => {
            matches!(needed.row().answer(layer), Some(Yes)) && has_needed(needed, layer)
        }
    }
}

/// Each feature has one answer for each layer that has what it needs; otherwise the error names the feature.
const _: () = {
    let mut features = Feature::ALL;
    while let [feature, rest @ ..] = features {
        let mut layers = ALL;
        while let [layer, rest @ ..] = layers {
            if has_needed(*feature, *layer) && feature.row().answer(*layer).is_none() {
                panic!("{}", feature.name());
            }
            layers = rest;
        }
        features = rest;
    }
};
