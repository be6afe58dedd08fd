//! The layers of an environment: a machine, levels of virtualization on it, and a guest.

use crate::clock::Clock;
use trapline_abi::arch::NATIVE;
use trapline_abi::instruction_set::InstructionSet;

/// The hardware at the bottom of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// This host.
    Host,
    /// A simulated machine with AMD's virtualization: QEMU with `-icount`.
    Sim,
    /// A simulated machine with Intel's virtualization: Bochs.
    SimVmx,
    /// A simulated machine with a 64-bit processor of Arm: QEMU with `-icount`.
    SimArm64,
}

/// A hypervisor, or a program that executes a guest without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hypervisor {
    /// The Linux kernel's.
    Kvm,
    /// The same without its interrupt controllers: the local APIC is the VMM's.
    KvmUserApic,
    /// None: the guest is a sandboxed process of Linux.
    Process,
    /// QEMU's binary translation.
    Tcg,
    /// User-mode Linux: a kernel that is a process of its host.
    Uml,
    /// The NOVA microhypervisor.
    Nova,
    /// Xen, with one of its kinds of domain.
    Xen(Domain),
}

/// A kind of Xen domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Domain {
    /// A guest in hardware-assisted mode without emulated devices.
    Pvh,
    /// A fully virtualized guest with devices by QEMU.
    Hvm,
    /// The initial domain.
    Dom0,
}

/// Name of the VMM of option `--vmm`.
pub const OPTION_VMM: &str = "custom";

/// A virtual machine monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vmm {
    /// `trapline-vmm`.
    Trapline,
    /// QEMU with a type of machine.
    Qemu(QemuMachine),
    /// A command of the user's, by its name.
    Custom(&'static str),
}

/// A type of machine of QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QemuMachine {
    /// `microvm`.
    Microvm,
    /// `pc`, with PCI and SeaBIOS.
    Pc,
    /// `q35`, with PCI, SeaBIOS and ACPI, for guests that are hypervisors.
    Q35,
}

impl QemuMachine {
    /// The type that environments have by default.
    pub const DEFAULT: Self = Self::Microvm;

    /// Its part of an environment's name.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Microvm => "",
            Self::Pc => "-pc",
            Self::Q35 => "-q35",
        }
    }

    /// Returns a label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Microvm => "QEMU microvm",
            Self::Pc => "QEMU pc",
            Self::Q35 => "QEMU q35",
        }
    }
}

/// A level of virtualization. KVM runs in a Linux, which is that of the machine or, in
/// a nested stack, the guest of the level below. Xen is the machine's first program or that of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Level {
    /// The hypervisor.
    pub hypervisor: Hypervisor,
    /// The VMM, if it is a program beside the hypervisor.
    pub vmm: Option<Vmm>,
}

/// The system that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guest {
    /// The unikernel.
    Image,
    /// The agent, a Linux program.
    Linux,
}

/// The layers of an environment, outside in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// The hardware.
    pub machine: Machine,
    /// The levels of virtualization, outermost first; none in a bare environment.
    pub levels: &'static [Level],
    /// The system that is measured.
    pub guest: Guest,
}

impl Machine {
    /// The clock of its figures.
    pub const fn clock(self) -> Clock {
        match self {
            Self::Host => Clock::Wall,
            Self::Sim => Clock::Insn,
            Self::SimVmx => Clock::InsnVmx,
            Self::SimArm64 => Clock::InsnArm64,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Sim => "sim",
            Self::SimVmx => "sim-vmx",
            Self::SimArm64 => "sim-arm64",
        }
    }

    /// Returns whether QEMU simulates it.
    pub const fn is_qemu(self) -> bool {
        match self {
            Self::Sim | Self::SimArm64 => true,
            Self::Host | Self::SimVmx => false,
        }
    }

    /// The instruction set of its processor.
    pub const fn instruction_set(self) -> InstructionSet {
        match self {
            Self::Host => NATIVE,
            Self::Sim | Self::SimVmx => InstructionSet::X86_64,
            Self::SimArm64 => InstructionSet::Aarch64,
        }
    }
}

impl Level {
    /// `trapline-vmm` on KVM.
    pub const KVM: Self = Self::of(Hypervisor::Kvm, Vmm::Trapline);
    /// `trapline-vmm` on KVM, with the local APIC in the VMM.
    pub const KVM_USER_APIC: Self = Self::of(Hypervisor::KvmUserApic, Vmm::Trapline);
    /// `trapline-vmm` without a hypervisor.
    pub const PROCESS: Self = Self::of(Hypervisor::Process, Vmm::Trapline);
    /// The VMM as the root task of NOVA.
    pub const NOVA: Self = Self::of(Hypervisor::Nova, Vmm::Trapline);
    /// QEMU on KVM.
    pub const QEMU_KVM: Self = Self::of(Hypervisor::Kvm, Vmm::Qemu(QemuMachine::Microvm));
    /// QEMU with machine type `pc` on KVM.
    pub const QEMU_KVM_PC: Self = Self::of(Hypervisor::Kvm, Vmm::Qemu(QemuMachine::Pc));
    /// QEMU with machine type `q35` on KVM.
    pub const QEMU_KVM_Q35: Self = Self::of(Hypervisor::Kvm, Vmm::Qemu(QemuMachine::Q35));
    /// QEMU alone.
    pub const QEMU_TCG: Self = Self::of(Hypervisor::Tcg, Vmm::Qemu(QemuMachine::Microvm));
    /// The command of `--vmm`, on KVM if it uses that.
    pub const CUSTOM: Self = Self::custom(OPTION_VMM);
    /// User-mode Linux.
    pub const UML: Self = Self::without_vmm(Hypervisor::Uml);
    /// A PVH domain of Xen.
    pub const XEN_PVH: Self = Self::without_vmm(Hypervisor::Xen(Domain::Pvh));
    /// A PVH domain of Xen, with `trapline-vmm` in the initial domain as its device model.
    pub const XEN_TRAPLINE: Self = Self::of(Hypervisor::Xen(Domain::Pvh), Vmm::Trapline);
    /// An HVM domain of Xen.
    pub const XEN_HVM: Self = Self::without_vmm(Hypervisor::Xen(Domain::Hvm));
    /// The initial domain of Xen.
    pub const XEN_DOM0: Self = Self::without_vmm(Hypervisor::Xen(Domain::Dom0));

    /// A defined VMM, on KVM if it uses that.
    pub(crate) const fn custom(name: &'static str) -> Self {
        Self::of(Hypervisor::Kvm, Vmm::Custom(name))
    }

    const fn of(hypervisor: Hypervisor, vmm: Vmm) -> Self {
        Self {
            hypervisor,
            vmm: Some(vmm),
        }
    }

    const fn without_vmm(hypervisor: Hypervisor) -> Self {
        Self {
            hypervisor,
            vmm: None,
        }
    }

    /// Its part of an environment's name, as the innermost level.
    fn name(self) -> String {
        match (self.hypervisor, self.vmm) {
            (_, Some(Vmm::Custom(name))) => name.to_owned(),
            (Hypervisor::Kvm, Some(Vmm::Qemu(machine))) => format!("qemu-kvm{}", machine.suffix()),
            (Hypervisor::Xen(_), Some(Vmm::Trapline)) => "xen/trapline".to_owned(),
            (hypervisor, _) => hypervisor.name().to_owned(),
        }
    }
}

impl Hypervisor {
    /// Its part of an environment's name. Of a level that hosts another one it is the only part.
    const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::KvmUserApic => "kvm-user-apic",
            Self::Process => "process",
            Self::Nova => "nova",
            Self::Tcg => "qemu-tcg",
            Self::Uml => "uml",
            Self::Xen(Domain::Pvh) => "xen-pvh",
            Self::Xen(Domain::Hvm) => "xen-hvm",
            Self::Xen(Domain::Dom0) => "xen-dom0",
        }
    }
}

impl Stack {
    /// Returns the innermost level, if there is any.
    pub const fn innermost(&self) -> Option<Level> {
        match self.levels {
            [.., level] => Some(*level),
            [] => None,
        }
    }

    /// Returns whether a guest hosts the measured guest.
    pub const fn is_nested(&self) -> bool {
        self.levels.len() > 1
    }

    /// Returns whether Xen is the hypervisor of the machine itself.
    pub fn begins_with_xen(&self) -> bool {
        let outermost = self.levels.first().map(|level| level.hypervisor);
        matches!(outermost, Some(Hypervisor::Xen(_)))
    }

    /// Returns whether a hypervisor finds the lengths of intercepted instructions itself, since the simulated processor of
    /// AMD's kind does not report them: KVM and Xen do.
    pub fn finds_lengths(&self) -> bool {
        let finds = |level: &Level| match level.hypervisor {
            Hypervisor::Kvm | Hypervisor::KvmUserApic => true,
            Hypervisor::Xen(domain) => domain != Domain::Dom0,
            Hypervisor::Process | Hypervisor::Tcg | Hypervisor::Uml | Hypervisor::Nova => false,
        };
        self.machine == Machine::Sim && self.levels.iter().any(finds)
    }

    /// Returns whether guest and VMM start with their machine, so that no Linux executes a program.
    pub fn starts_with_machine(&self) -> bool {
        match self.innermost() {
            Some(Level::NOVA) => true,
            Some(level) => level == Level::XEN_DOM0 && self.guest == Guest::Image,
            None => self.guest == Guest::Image,
        }
    }

    /// Returns whether a Linux runs on the simulated machine itself, or in Xen's initial domain.
    pub fn has_machine_linux(&self) -> bool {
        self.machine != Machine::Host && !self.starts_with_machine()
    }

    /// Returns the name that follows from the layers, like `sim/kvm/linux`.
    pub fn name(&self) -> String {
        let is_here = self.machine == Machine::Host;
        let machine = (!is_here || self.levels.is_empty()).then(|| self.machine.name().to_owned());
        let outer = self.levels.split_last().map_or(&[][..], |(_, outer)| outer);
        let outer = outer.iter().map(|level| level.hypervisor.name().to_owned());
        let levels = outer.chain(self.innermost().map(Level::name));
        let is_implied = is_here && self.levels.is_empty() || self.levels == [Level::UML];
        let guest = (self.guest == Guest::Linux && !is_implied).then(|| "linux".to_owned());
        let parts: Vec<_> = machine.into_iter().chain(levels).chain(guest).collect();
        parts.join("/")
    }
}

#[cfg(test)]
mod tests {
    use crate::EnvironmentId;

    #[test]
    fn hypervisors_of_the_simulated_amd_processor_find_lengths() {
        let finding = EnvironmentId::all().filter(|id| id.stack().finds_lengths());
        let finding: Vec<String> = finding.map(|id| id.to_string()).collect();
        for name in ["sim/kvm", "sim/qemu-kvm", "sim/xen-pvh", "sim/kvm/xen-pvh"] {
            assert!(finding.iter().any(|it| it == name), "{name}: {finding:?}");
        }
        for name in [
            "sim",
            "sim/process",
            "sim/nova",
            "sim/xen-dom0",
            "kvm",
            "sim-vmx/kvm",
        ] {
            assert!(!finding.iter().any(|it| it == name), "{name}");
        }
    }
}
