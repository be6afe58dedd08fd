//! The traits that a backend implements.

use crate::{
    Access, BootState, Caps, Doorbell, Entry, Error, Exit, Gpa, IoAddr, IrqId, IrqLine, Kicker,
    Missing, RegSet, Region, Result, VcpuId, VcpuState,
};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Configuration of a virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmSpec {
    /// Interrupt controllers emulated by the hypervisor.
    pub controllers: Controllers,
    /// Largest number of vCPUs, as shown by CPUID.
    pub cpus: u32,
    /// `hlt` does not exit: the CPU halts in guest mode. On AMD a host interrupt may end the halt, too.
    /// Needs [`Caps::halt_in_guest`] and interrupt controllers.
    pub halt_in_guest: bool,
    /// Offer paravirtual EOI (`KVM_FEATURE_PV_EOI`) to the guest. Without it each EOI may exit.
    pub paravirtual_eoi: bool,
}

impl VmSpec {
    /// Returns the configuration of a VM with one vCPU.
    pub const fn with(controllers: Controllers) -> Self {
        Self {
            controllers,
            cpus: 1,
            halt_in_guest: false,
            paravirtual_eoi: true,
        }
    }
}

/// Interrupt controllers emulated by the hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controllers {
    /// None: `hlt` exits as [`Exit::Halted`].
    None,
    /// A local APIC for each vCPU, reached by [`Vm::irq_line`]; `hlt` waits in the hypervisor.
    Local,
    /// Local APICs and an I/O APIC, whose pins are reached by [`Vm::irq_pin`].
    Full,
}

/// A hypervisor.
pub trait Hypervisor: Sized {
    /// Its virtual machines.
    type Vm: Vm;

    /// Queries all capabilities. Slow.
    ///
    /// # Errors
    /// Why the hypervisor is not available, with the remedy.
    fn probe() -> core::result::Result<Caps, Missing>;

    /// Opens the hypervisor's interface without querying optional capabilities.
    ///
    /// # Errors
    /// Why the hypervisor is not available, with the remedy.
    fn open() -> core::result::Result<Self, Missing>;

    /// Creates a VM without memory and vCPUs.
    ///
    /// # Errors
    /// The hypervisor refuses.
    fn create_vm(&self, spec: &VmSpec) -> Result<Self::Vm>;
}

/// A virtual machine. Memory may be attached and detached while vCPUs run.
pub trait Vm {
    /// Its vCPUs.
    type Vcpu: Vcpu;

    /// Maps all of `region` at guest-physical address `at`.
    ///
    /// # Errors
    /// If `at` is not page-aligned or memory is attached there already.
    fn attach(&self, at: Gpa, region: Arc<Region>, access: Access) -> Result<()>;

    /// Unmaps the region attached at exactly `at` and returns it.
    ///
    /// # Errors
    /// No region is attached there.
    fn detach(&self, at: Gpa) -> Result<Arc<Region>>;

    /// Starts or stops dirty tracking for the region attached at exactly `at`. The log starts empty.
    ///
    /// # Errors
    /// No region is attached there; [`crate::Error::Unsupported`] without [`Caps::dirty`].
    fn track_dirty(&self, at: Gpa, on: bool) -> Result<()>;

    /// Returns and clears the dirty log: one bit for each page of [`crate::PAGE`] bytes, bit 0 of the
    /// first word first. A page that the guest reads for the first time may be marked, too, as KVM on
    /// hardware does. Stores by the hypervisor on behalf of the guest are logged. Writes by the VMM
    /// ([`Region::write`], system calls on the mapping) are not.
    ///
    /// # Errors
    /// No region is attached there, or [`crate::Error::NotTracked`].
    fn dirty_log(&self, at: Gpa) -> Result<Vec<u64>>;

    /// Creates a vCPU that starts with `boot`, or without it waits for INIT and SIPI from another vCPU.
    /// Its first exit is [`Exit::Started`].
    ///
    /// # Errors
    /// The hypervisor refuses.
    fn create_vcpu(&self, id: VcpuId, boot: Option<&BootState>) -> Result<Self::Vcpu>;

    /// Returns a line that delivers `irq` as a message-signalled interrupt.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] without local APICs.
    fn irq_line(&self, irq: IrqId) -> Result<IrqLine>;

    /// Returns a line like [`Self::irq_line`] that has an [`IrqLine::event`]. `None` if not supported.
    ///
    /// # Errors
    /// The hypervisor refuses.
    fn irq_event(&self, _irq: IrqId) -> Result<Option<IrqLine>> {
        Ok(None)
    }

    /// Returns a line that raises an edge at I/O APIC pin `pin`, by a write to an eventfd.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] without an I/O APIC; the hypervisor refuses.
    fn irq_pin(&self, pin: u8) -> Result<IrqLine>;

    /// Registers a doorbell at `at`: guest writes of any size count in an eventfd and do not exit.
    /// `None` if not supported.
    ///
    /// # Errors
    /// The hypervisor refuses.
    fn doorbell(&self, at: IoAddr) -> Result<Option<Doorbell>>;

    /// Registers a doorbell at `at` for guest writes of 32 bits with this value; others exit. `None` if not supported.
    ///
    /// # Errors
    /// The hypervisor refuses.
    fn value_doorbell(&self, _at: IoAddr, _value: u32) -> Result<Option<Doorbell>> {
        Ok(None)
    }
}

/// Counters kept by a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VcpuStats {
    /// Exits from the guest to the hypervisor, if it counts them.
    pub kernel_exits: Option<u64>,
    /// Exits returned by [`Vcpu::run`] that the hypervisor delivered together with the one before: all but
    /// the first element of a string instruction.
    pub string_elements: u64,
}

/// A virtual CPU. One thread at a time uses it.
pub trait Vcpu {
    /// Enters the guest and returns its next exit.
    ///
    /// # Errors
    /// The hypervisor refuses; the vCPU cannot run again. Boxed, so that the common result fits in
    /// registers.
    fn run(&mut self, entry: Entry) -> core::result::Result<Exit, Box<Error>>;

    /// Returns the registers in `which`. After a `Read` or `Write`, `rip` may point at or behind the
    /// instruction.
    ///
    /// # Errors
    /// The hypervisor refuses.
    fn state(&mut self, which: RegSet) -> Result<VcpuState>;

    /// Sets the registers present in `changed`.
    ///
    /// # Errors
    /// The hypervisor refuses.
    fn set_state(&mut self, changed: &VcpuState) -> Result<()>;

    /// Returns a kicker for this vCPU, valid while the calling thread runs the vCPU.
    fn kicker(&self) -> Kicker;

    /// Returns the backend's counters.
    fn stats(&mut self) -> VcpuStats;

    /// Guest TSC minus host TSC, if known.
    fn tsc_offset(&self) -> Option<i64>;

    /// Ends a VM that would outlive this process. The vCPU cannot run again.
    fn end(&mut self) {}
}
