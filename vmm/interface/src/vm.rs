//! The three traits that a kernel is seen through.

use crate::{
    Access, BootState, Caps, Doorbell, Entry, Error, Exit, Gpa, IoAddr, IrqId, IrqLine, Kicker,
    Missing, RegSet, Region, Result, VcpuState,
};
use std::sync::Arc;

/// Number of a vCPU, from 0; also the number of its local interrupt controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VcpuId(pub u32);

/// What a machine shall have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmSpec {
    /// Which interrupt controllers the kernel keeps for it.
    pub controllers: Controllers,
    /// How many vCPUs it will have at the most, which their CPUID tells.
    pub cpus: u32,
    /// `hlt` does not leave the guest: the CPU waits in it, and an interrupt finds the
    /// guest there. It may end without one, as on AMD's processors, which go on behind it
    /// when something interrupted the host. Only where [`Caps::halt_in_guest`] says so, and
    /// with interrupt controllers.
    pub halt_in_guest: bool,
    /// The guest is offered a word of its memory that says whether the end of an interrupt
    /// has to be told by an exit. Where that is not offered, each end is one.
    pub paravirtual_eoi: bool,
}

impl VmSpec {
    /// A machine of one vCPU.
    pub const fn with(controllers: Controllers) -> Self {
        Self {
            controllers,
            cpus: 1,
            halt_in_guest: false,
            paravirtual_eoi: true,
        }
    }
}

/// Interrupt controllers in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controllers {
    /// None: `hlt` is an [`Exit::Halted`].
    None,
    /// One at each vCPU, reached by [`Vm::irq_line`]; `hlt` waits in the kernel.
    Local,
    /// These, and one with pins for devices, reached by [`Vm::irq_pin`].
    Full,
}

/// A kernel that runs virtual machines.
pub trait Hypervisor: Sized {
    /// Its machines.
    type Vm: Vm;

    /// Finds out what the kernel offers. Slow: asks about everything.
    ///
    /// # Errors
    /// Why there is none, and what would mend it.
    fn probe() -> std::result::Result<Caps, Missing>;

    /// Opens the kernel's interface, asking about nothing that every machine
    /// does not need.
    ///
    /// # Errors
    /// Why there is none, and what would mend it.
    fn open() -> std::result::Result<Self, Missing>;

    /// A machine without memory and vCPUs.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn create_vm(&self, spec: &VmSpec) -> Result<Self::Vm>;
}

/// A virtual machine. Memory may come and go while vCPUs run.
pub trait Vm {
    /// Its vCPUs.
    type Vcpu: Vcpu;

    /// Lets the guest see all of `region` from address `at` on.
    ///
    /// # Errors
    /// If `at` is not page-aligned or memory is attached there already.
    fn attach(&self, at: Gpa, region: Arc<Region>, access: Access) -> Result<()>;

    /// Takes away what was attached at exactly `at`.
    ///
    /// # Errors
    /// If nothing was.
    fn detach(&self, at: Gpa) -> Result<Arc<Region>>;

    /// Begins or ends to note to which pages of the memory attached at exactly `at` the guest
    /// writes. Nothing is noted at the beginning, not even if it was tracked before.
    ///
    /// # Errors
    /// If nothing is attached there; [`crate::Error::Unsupported`] where [`Caps::dirty`] is not.
    fn track(&self, at: Gpa, on: bool) -> Result<()>;

    /// The pages to which the guest has written since tracking began or since this was last
    /// called: one bit for each page of [`crate::PAGE`] bytes, from bit 0 of the first word on.
    /// A page that the guest touches for the first time may be among them although it was only
    /// read: the kernel lets it be written at once, and KVM on hardware does so. What the kernel stores for the guest is among them (a port's string input, say); what the
    /// VMM writes itself by [`Region::write`], or has the kernel write to the region's mapping
    /// by a system call, is not: whoever does that keeps its own account.
    ///
    /// # Errors
    /// If nothing is attached there, or [`crate::Error::NotTracked`].
    fn dirty(&self, at: Gpa) -> Result<Vec<u64>>;

    /// A vCPU that begins with `boot`; without, it waits until another one starts it by its
    /// local interrupt controller. Its first exit is [`Exit::Started`], at once or then.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn create_vcpu(&self, id: VcpuId, boot: Option<&BootState>) -> Result<Self::Vcpu>;

    /// A way to deliver an interrupt.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] without local interrupt controllers.
    fn irq_line(&self, irq: IrqId) -> Result<IrqLine>;

    /// A way to give a pin of the interrupt controller for devices an edge, from any
    /// thread, by a write to a descriptor.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] without that controller; the kernel's refusal.
    fn irq_pin(&self, pin: u8) -> Result<IrqLine>;

    /// Has the kernel count the guest's writes to `at`, of any size, instead of
    /// leaving the guest; `None` where it cannot.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn doorbell(&self, at: IoAddr) -> Result<Option<Doorbell>>;
}

/// What only a backend can count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Exits from the guest to the kernel, where the kernel tells.
    pub kernel: Option<u64>,
    /// Exits of [`Vcpu::run`] that the kernel had delivered together with the one
    /// before: all but the first access of a string instruction.
    pub bundled: u64,
}

/// A virtual CPU; one thread at a time uses it.
pub trait Vcpu {
    /// Enters the guest and comes back with its next exit.
    ///
    /// # Errors
    /// The kernel's refusal; the vCPU cannot be run again. It comes in a box, so
    /// that the common result fits registers.
    fn run(&mut self, entry: Entry) -> std::result::Result<Exit, Box<Error>>;

    /// The registers in `which`. After a `Read` or `Write` the instruction
    /// pointer may stand before or behind the instruction.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn state(&mut self, which: RegSet) -> Result<VcpuState>;

    /// Changes the registers that `changed` holds.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn set_state(&mut self, changed: &VcpuState) -> Result<()>;

    /// A way to recall this vCPU, to be used while the thread that calls this
    /// method runs it.
    fn kicker(&self) -> Kicker;

    /// What the backend counted so far.
    fn tally(&mut self) -> Tally;

    /// Guest TSC minus host TSC, where it is known.
    fn tsc_offset(&self) -> Option<i64>;
}
