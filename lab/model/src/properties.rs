//! Properties of environments, derived from their layers.

use crate::clock::Clock;
use crate::environment::EnvironmentId;
use crate::layers::{Guest, Hypervisor, Level, Machine, Vmm};

impl Clock {
    /// The environment without virtualization that others are compared with.
    pub const fn bare(self) -> EnvironmentId {
        match self {
            Self::Wall => EnvironmentId::HOST,
            Self::Insn => EnvironmentId::SIM,
            Self::InsnVmx => EnvironmentId::SIM_VMX,
            // The image does not run there yet.
            Self::InsnArm64 => EnvironmentId::SIM_ARM64_LINUX,
        }
    }

    /// The Linux without virtualization that Linux guests are compared with.
    pub const fn bare_linux(self) -> EnvironmentId {
        match self {
            Self::Wall => EnvironmentId::HOST,
            Self::Insn => EnvironmentId::SIM_LINUX,
            Self::InsnVmx => EnvironmentId::SIM_VMX_LINUX,
            Self::InsnArm64 => EnvironmentId::SIM_ARM64_LINUX,
        }
    }
}

impl EnvironmentId {
    /// The clock of its figures.
    pub fn clock(self) -> Clock {
        self.stack().machine.clock()
    }

    /// Returns whether it is the bare row of its clock.
    pub fn is_bare(self) -> bool {
        self.clock().bare() == self
    }

    /// Returns whether nothing is virtualized: the system runs on the machine itself.
    pub fn is_native(self) -> bool {
        self.stack().levels.is_empty()
    }

    /// Returns whether a Linux that is not virtualized runs the agent: this host, or a simulated machine.
    pub fn is_native_linux(self) -> bool {
        self.is_native() && self.has_processes()
    }

    fn innermost(self) -> Option<Level> {
        self.stack().innermost()
    }

    pub(crate) fn hypervisor(self) -> Option<Hypervisor> {
        self.innermost().map(|level| level.hypervisor)
    }

    fn vmm(self) -> Option<Vmm> {
        self.innermost().and_then(|level| level.vmm)
    }

    pub(crate) fn is_on(self, machine: Machine) -> bool {
        self.stack().machine == machine
    }

    /// Returns whether its VMM is a command of the user's.
    pub fn is_custom(self) -> bool {
        self.custom_vmm().is_some()
    }

    /// Returns the name of its VMM, if that is a command of the user's.
    pub fn custom_vmm(self) -> Option<&'static str> {
        match self.vmm() {
            Some(Vmm::Custom(name)) => Some(name),
            _ => None,
        }
    }

    /// Returns whether it is a domain of Xen.
    pub fn is_xen(self) -> bool {
        matches!(self.hypervisor(), Some(Hypervisor::Xen(_)))
    }

    /// Returns whether it is a virtualized Linux with the agent as its init.
    pub fn is_linux_guest(self) -> bool {
        self.has_processes() && !self.is_native()
    }

    /// Returns whether the agent is measured, a program of Linux, not the image.
    pub fn has_processes(self) -> bool {
        self.stack().guest == Guest::Linux
    }

    /// Returns whether a Linux runs on the simulated machine itself, or in Xen's initial domain.
    pub fn has_machine_linux(self) -> bool {
        self.stack().has_machine_linux()
    }

    /// Returns whether guest and VMM start with their machine, so that no Linux executes a program.
    pub fn starts_with_machine(self) -> bool {
        self.stack().starts_with_machine()
    }

    /// Returns whether `trapline-vmm` runs the guest, a program of Linux.
    pub fn has_trapline_vmm(self) -> bool {
        self.vmm() == Some(Vmm::Trapline) && !self.is_nova()
    }

    /// Returns whether NOVA is the hypervisor.
    pub fn is_nova(self) -> bool {
        self.hypervisor() == Some(Hypervisor::Nova)
    }

    /// Returns whether QEMU is the VMM of the guest.
    pub fn has_qemu_vmm(self) -> bool {
        matches!(self.vmm(), Some(Vmm::Qemu(_)))
    }

    /// Returns whether QEMU takes part, as the VMM or as the simulated machine.
    pub fn has_qemu(self) -> bool {
        self.stack().machine.is_qemu() || self.is_on(Machine::Host) && self.has_qemu_vmm()
    }

    /// Returns whether the virtualization of this host's processor is used.
    pub fn has_hardware_virtualization(self) -> bool {
        self.is_on(Machine::Host) && self.hypervisor() == Some(Hypervisor::Kvm)
    }

    /// Returns whether the guest's code is translated by QEMU.
    pub fn is_translated(self) -> bool {
        self.hypervisor() == Some(Hypervisor::Tcg)
    }

    /// Returns whether the guest's kernel is a process of its host.
    pub fn is_user_mode(self) -> bool {
        self.hypervisor() == Some(Hypervisor::Uml)
    }
}
