//! Properties of environments, derived from their layers.

use crate::clock::Clock;
use crate::environment::EnvironmentId;
use crate::layers::{Domain, Guest, Hypervisor, Level, Machine, QemuMachine, Vmm};

impl Clock {
    /// The environment without virtualization that others are compared with.
    pub const fn bare(self) -> EnvironmentId {
        match self {
            Self::Wall => EnvironmentId::HOST,
            Self::Insn => EnvironmentId::SIM,
            Self::InsnVmx => EnvironmentId::SIM_VMX,
        }
    }

    /// The Linux without virtualization that Linux guests are compared with.
    pub const fn bare_linux(self) -> EnvironmentId {
        match self {
            Self::Wall => EnvironmentId::HOST,
            Self::Insn => EnvironmentId::SIM_LINUX,
            Self::InsnVmx => EnvironmentId::SIM_VMX_LINUX,
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

    /// Returns whether a start takes about a second: one of the image, in a machine that is restored. A guest that
    /// starts with its hypervisor needs the start of both.
    pub(crate) fn starts_cheaply(self) -> bool {
        let is_slow_guest = self.is_linux_guest() || self.starts_with_machine();
        self.is_native() || !is_slow_guest
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

    /// Returns whether its start is measured: of a VMM or a program, or of NOVA with its machine. Where NOVA can set the
    /// TSC to 0, that of the guest does not count from the reset.
    pub fn has_boot(self) -> bool {
        !self.starts_with_machine() || self.is_nova() && self.is_on(Machine::Sim)
    }

    /// Returns whether it is measured by default where it is available. NOVA is the user's file, and Xen has to be
    /// downloaded; Xen, Linux guests and the second simulated machine boot slowly.
    pub fn is_default(self) -> bool {
        let is_slow =
            self.is_xen() || self.is_nova() || self.is_linux_guest() || self.is_on(Machine::SimVmx);
        // Page faults of a process wait for a second CPU: `stream` can take minutes on a loaded host.
        let is_slow = is_slow || self.is_process() && self.is_on(Machine::Host);
        let is_nested = self.stack().is_nested();
        let is_common = match self.vmm() {
            Some(Vmm::Qemu(machine)) => machine == QemuMachine::DEFAULT,
            Some(Vmm::Custom(_)) => false,
            Some(Vmm::Trapline) | None => !self.has_user_apic(),
        };
        is_common && !is_slow && !is_nested
    }

    /// Returns whether every instruction on its machine can be attributed.
    pub fn has_profiles(self) -> bool {
        self.clock().is_exact() && !self.is_linux_guest()
    }

    /// Returns whether call stacks and the stages of a boot have profiles, too. Nested
    /// guests are not distinguished from the guests that host them.
    pub fn has_detailed_profiles(self) -> bool {
        self.has_profiles() && self.is_on(Machine::Sim) && !self.stack().is_nested()
    }

    /// Returns whether baselines contain it.
    pub fn has_baseline(self) -> bool {
        let is_sim = self.is_on(Machine::Sim);
        is_sim && !self.is_linux_guest() && !self.stack().is_nested()
    }

    /// Returns whether `trapline-vmm` runs the guest, a program of Linux.
    pub fn has_trapline_vmm(self) -> bool {
        self.vmm() == Some(Vmm::Trapline) && !self.is_nova()
    }

    /// Returns whether NOVA is the hypervisor.
    pub fn is_nova(self) -> bool {
        self.hypervisor() == Some(Hypervisor::Nova)
    }

    /// Returns whether the disk of an image would be a PCI device.
    pub(crate) fn has_pci_disk(self) -> bool {
        self.vmm() == Some(Vmm::Qemu(QemuMachine::Pc)) && !self.has_processes()
    }

    /// Returns whether QEMU is the VMM of the guest.
    pub fn has_qemu_vmm(self) -> bool {
        matches!(self.vmm(), Some(Vmm::Qemu(_)))
    }

    /// Returns whether QEMU takes part, as the VMM or as the simulated machine.
    pub fn has_qemu(self) -> bool {
        self.is_on(Machine::Sim) || self.is_on(Machine::Host) && self.has_qemu_vmm()
    }

    /// Returns whether the size of the guest's memory can be set.
    pub fn has_configurable_memory(self) -> bool {
        !self.is_native() && !self.starts_with_machine()
    }

    /// Returns whether the measured Linux can have several CPUs. User-mode Linux, guests of NOVA and
    /// simulated machines have one.
    pub fn supports_several_cpus(self) -> bool {
        match self.hypervisor() {
            None => self.is_on(Machine::Host),
            Some(Hypervisor::Uml | Hypervisor::Nova) => false,
            Some(_) => self.has_processes(),
        }
    }

    /// Returns whether the number of its virtual CPUs can be set: of Linux guests, and of the image where a machine
    /// starts further CPUs by interrupts.
    pub(crate) fn supports_cpus_setting(self) -> bool {
        let is_linux = self.supports_several_cpus() && !self.is_native();
        let starts_cpus = match (self.hypervisor(), self.vmm()) {
            (None, _) => self.is_on(Machine::Sim),
            (Some(Hypervisor::Kvm | Hypervisor::Tcg), Some(vmm)) => {
                !matches!(vmm, Vmm::Custom(_)) && !self.is_on(Machine::SimVmx)
            }
            _ => false,
        };
        is_linux || !self.has_processes() && starts_cpus && !self.stack().is_nested()
    }

    /// Returns whether its VMM can have KVM leave `hlt` to the guest.
    pub fn supports_halt_in_guest(self) -> bool {
        let is_known = self.has_trapline_vmm() || self.has_qemu_vmm();
        self.hypervisor() == Some(Hypervisor::Kvm) && is_known && !self.has_processes()
    }

    /// Returns whether page tables can isolate its kernel from programs: the kernel of a Linux that is booted for the
    /// measurement, or that of the image at ring 0.
    pub(crate) fn supports_isolation(self) -> bool {
        let is_booted = self != Self::HOST && !self.is_user_mode();
        is_booted && !self.is_process()
    }

    /// Returns whether a second guest can run beside the measured one, and the thread of its virtual
    /// CPU be placed: that of a guest that is a process is not a thread of its VMM.
    pub fn supports_second_guest(self) -> bool {
        let is_vm = !self.is_native() && !self.is_process();
        let image = !self.has_processes() && is_vm && !self.stack().is_nested();
        let is_program = image && !self.is_custom() && !self.is_nova();
        let here = self.is_on(Machine::Host) && (self.is_native() || is_program);
        here || image && self.has_trapline_vmm() && !self.is_xen()
    }

    /// Returns whether several equal guests can start at the same time: processes of a Linux.
    pub fn supports_simultaneous_guests(self) -> bool {
        let is_guest = self.vmm().is_some() && !self.has_processes() && !self.stack().is_nested();
        let is_process = is_guest && !self.is_xen() && !self.is_nova();
        self.is_on(Machine::Host) && self.is_native() || is_process && !self.is_on(Machine::SimVmx)
    }

    /// Returns whether they can begin operations at the same time: each waits for a byte of its standard input.
    pub(crate) fn has_start_barrier(self) -> bool {
        let is_ours = self.is_native() || self.has_trapline_vmm();
        self.supports_simultaneous_guests() && self.is_on(Machine::Host) && is_ours
    }

    /// Returns whether its guest is a process.
    pub fn is_process(self) -> bool {
        self.hypervisor() == Some(Hypervisor::Process)
    }

    /// Returns whether the local APIC of its guest is in `trapline-vmm`, where devices cannot interrupt it.
    pub(crate) fn has_user_apic(self) -> bool {
        self.hypervisor() == Some(Hypervisor::KvmUserApic)
    }

    /// Returns whether its VMM can make guest memory of private pages. The process of a guest maps shared ones.
    pub fn has_private_memory(self) -> bool {
        self.has_trapline_vmm() && self.hypervisor() == Some(Hypervisor::Kvm)
    }

    /// Returns whether a running guest can be given memory.
    pub fn supports_memory_hotplug(self) -> bool {
        let is_image = self.has_private_memory() && !self.has_processes();
        self.is_native_linux() || is_image && !self.stack().is_nested()
    }

    /// Returns whether there is a network with a peer: a tap of `trapline-vmm`, or the loopback device.
    pub fn supports_network(self) -> bool {
        let has_peer = self.has_trapline_vmm() || self.is_native_linux();
        let has_interrupts = !self.is_xen() && !self.has_user_apic();
        has_peer && !self.is_on(Machine::SimVmx) && has_interrupts
    }

    /// Returns whether two guests can be connected: guests of `trapline-vmm`, on one level.
    pub fn supports_packets(self) -> bool {
        self.supports_network() && self.has_trapline_vmm() && !self.stack().is_nested()
    }

    /// Returns whether its network is a tap of this host.
    pub(crate) fn has_host_tap(self) -> bool {
        self.is_on(Machine::Host) && self.has_trapline_vmm()
    }

    /// Returns whether the vCPU's thread on the machine's Linux can be found and scheduled.
    pub fn shows_vcpu_thread(self) -> bool {
        self.is_native_linux() || self.supports_second_guest()
    }

    /// Returns whether the hypervisor bounds and weighs a guest's share of the CPU.
    pub fn supports_cpu_shares(self) -> bool {
        let domain = self.hypervisor();
        self.is_xen() && domain != Some(Hypervisor::Xen(Domain::Dom0))
    }

    /// Returns whether a kernel can be built there.
    pub fn builds_kernels(self) -> bool {
        self.has_processes() && !self.is_on(Machine::SimVmx)
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
