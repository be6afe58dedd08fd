//! Names of clocks, environments and machines.

use crate::load::Serial;
use crate::scheduling::Scheduling;
use crate::sharing::Halt;
use std::fmt;

/// A clock. Figures of different clocks never meet in one table. Each simulated
/// machine has its own: what one counts as an instruction the other may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Clock {
    /// Nanoseconds on real hardware: noisy, needs statistics.
    Wall,
    /// Instructions on the simulated machine: exact, needs equality.
    Insn,
    /// Instructions on the simulated machine with Intel's virtualization: the same.
    InsnVmx,
}

impl Clock {
    /// Every clock, in the order in which tables show them.
    pub const ALL: [Self; 3] = [Self::Wall, Self::Insn, Self::InsnVmx];

    /// `wall`, `insn` or `insn-vmx`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Insn => "insn",
            Self::InsnVmx => "insn-vmx",
        }
    }

    /// Whether it counts instructions, so that two runs are the same to the digit.
    pub const fn is_exact(self) -> bool {
        !matches!(self, Self::Wall)
    }

    /// The environment without virtualization that others are compared with.
    pub const fn bare(self) -> EnvironmentId {
        match self {
            Self::Wall => EnvironmentId::Host,
            Self::Insn => EnvironmentId::Sim,
            Self::InsnVmx => EnvironmentId::SimVmx,
        }
    }
}

macro_rules! environments {
    ($($variant:ident $name:literal $clock:ident $what:literal;)*) => {
        /// A stack of layers that can run the workloads, named outside in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum EnvironmentId { $(#[doc = $what] $variant,)* }

        impl EnvironmentId {
            /// Every environment, in the order in which tables show them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The name people type.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The clock of its figures.
            pub const fn clock(self) -> Clock {
                match self { $(Self::$variant => Clock::$clock,)* }
            }

            /// What it is, in a few words.
            pub const fn what(self) -> &'static str {
                match self { $(Self::$variant => $what,)* }
            }
        }
    };
}

environments! {
    Host "host" Wall "the agent as a process of this host: the bare row";
    Kvm "kvm" Wall "the image in trapline-vmm on /dev/kvm";
    QemuKvm "qemu-kvm" Wall "the image in QEMU microvm on /dev/kvm";
    QemuTcg "qemu-tcg" Wall "the image in QEMU microvm, translated";
    Custom "custom" Wall "the image in a VMM of your choice, see --vmm";
    KvmLinux "kvm/linux" Wall "the agent in a Linux in trapline-vmm on /dev/kvm";
    QemuKvmLinux "qemu-kvm/linux" Wall "the agent in a Linux in QEMU microvm on /dev/kvm";
    QemuTcgLinux "qemu-tcg/linux" Wall "the agent in a Linux in QEMU microvm, translated";
    Uml "uml" Wall "the agent in user-mode Linux, a kernel that is a process of this host";
    Sim "sim" Insn "the image on the bare simulated machine: the bare row";
    SimLinux "sim/linux" Insn "the agent in Linux on the simulated machine";
    SimKvm "sim/kvm" Insn "the image in trapline-vmm on KVM on the simulated machine";
    SimQemuKvm "sim/qemu-kvm" Insn "the image in QEMU on KVM on the simulated machine";
    SimKvmLinux "sim/kvm/linux" Insn "the agent in a Linux in trapline-vmm on KVM on the simulated machine";
    SimQemuKvmLinux "sim/qemu-kvm/linux" Insn "the agent in a Linux in QEMU on KVM on the simulated machine";
    SimXenPvh "sim/xen-pvh" Insn "the image as a PVH domain of Xen on the simulated machine";
    SimXenHvm "sim/xen-hvm" Insn "the image as a fully virtualized domain of Xen there, devices by QEMU";
    SimXenDom0 "sim/xen-dom0" Insn "the image as the first domain of Xen there, alone with it";
    SimCustom "sim/custom" Insn "the image in a VMM of your choice on KVM on the simulated machine";
    SimVmx "sim-vmx" InsnVmx "the image on a bare simulated machine with Intel's virtualization: the bare row";
    SimVmxLinux "sim-vmx/linux" InsnVmx "the agent in Linux on that machine";
    SimVmxKvm "sim-vmx/kvm" InsnVmx "the image in trapline-vmm on KVM on that machine";
    SimVmxQemuKvm "sim-vmx/qemu-kvm" InsnVmx "the image in QEMU on KVM on that machine";
    SimVmxXenPvh "sim-vmx/xen-pvh" InsnVmx "the image as a PVH domain of Xen on that machine";
}

impl EnvironmentId {
    /// The environment called `name`, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|id| id.name() == name)
    }

    /// Whether its VMM is the user's to give.
    pub fn is_custom(self) -> bool {
        matches!(self, Self::Custom | Self::SimCustom)
    }

    /// Whether it is a domain of Xen.
    pub fn is_xen(self) -> bool {
        matches!(
            self,
            Self::SimXenPvh | Self::SimXenHvm | Self::SimXenDom0 | Self::SimVmxXenPvh
        )
    }

    /// Whether it is a Linux beside that of its host, with the agent as its init.
    pub fn is_linux_guest(self) -> bool {
        matches!(
            self,
            Self::KvmLinux
                | Self::QemuKvmLinux
                | Self::QemuTcgLinux
                | Self::Uml
                | Self::SimKvmLinux
                | Self::SimQemuKvmLinux
        )
    }

    /// Whether what it measures is a program of an operating system: the agent.
    pub fn has_processes(self) -> bool {
        matches!(self, Self::Host | Self::SimLinux | Self::SimVmxLinux) || self.is_linux_guest()
    }

    /// Whether the image starts with its machine, so that there is no VMM to execute.
    pub fn starts_with_machine(self) -> bool {
        matches!(self, Self::Sim | Self::SimVmx | Self::SimXenDom0)
    }

    /// Whether it is measured without being asked for, where it can be. For Xen much
    /// has to be fetched, and booting it takes as long as all others, as does a Linux in a
    /// guest; what is on the second simulated machine takes longer than all the rest together.
    pub fn is_usual(self) -> bool {
        !self.is_custom()
            && !self.is_xen()
            && !self.is_linux_guest()
            && self.clock() != Clock::InsnVmx
    }

    /// Whether every instruction on its machine can be accounted for.
    pub fn has_ledgers(self) -> bool {
        self.clock() != Clock::Wall && !self.is_linux_guest()
    }

    /// Whether baselines hold it, figures and ledgers.
    pub fn has_baseline(self) -> bool {
        self.clock() == Clock::Insn && !self.is_linux_guest()
    }

    /// Whether it is the bare row of its clock.
    pub fn is_bare(self) -> bool {
        self.clock().bare() == self
    }
}

impl fmt::Display for EnvironmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The machine a guest gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineSpec {
    /// Guest memory in MiB.
    pub memory_mib: u32,
    /// Memory beside that, in MiB, which it may be given while it runs; only counted
    /// where it is much.
    pub window_mib: u32,
    /// Virtual CPUs.
    pub cpus: u32,
    /// How they are scheduled.
    pub scheduling: Scheduling,
    /// Who writes what it sends over its serial line, where our VMM makes it.
    pub serial: Serial,
    /// Where it halts, where KVM runs it.
    pub halt: Halt,
    /// Of which pages its memory is, where our VMM makes it.
    pub pages: MemoryPages,
}

/// Of which pages a guest's memory is on its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryPages {
    /// Those of an anonymous file, so that others may have it, too.
    #[default]
    File,
    /// Of the VMM alone, of 4 KiB.
    Small,
    /// Of the VMM alone, of 2 MiB where the kernel has such.
    Huge,
}

impl MemoryPages {
    /// Its name on a command line, trapline-vmm's, too.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Small => "4k",
            Self::Huge => "2m",
        }
    }

    /// The one called `name`, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::File, Self::Small, Self::Huge];
        all.into_iter().find(|pages| pages.name() == name)
    }
}
