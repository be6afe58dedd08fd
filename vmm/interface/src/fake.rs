//! The backend that needs no kernel: it replays a script.
//!
//! A script says, exit by exit, what the guest does: what its VMM sees, which
//! answer it must have given, what the guest stores in its memory and holds in its
//! registers. A VMM under test gets these exits and is told when it strays. It
//! makes the logic around a vCPU testable on any machine.

use crate::{
    Access, Activity, BootState, Caps, Doorbell, Entry, Error, Exit, General, Gpa, Hypervisor,
    IoAddr, IrqId, IrqLine, Kick, Kicker, Missing, RegSet, Region, Result, Ring0, System, Tally,
    Vcpu, VcpuId, VcpuState, Vm, VmSpec,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;

/// One exit, and what the guest has done before it.
#[derive(Clone, Debug)]
pub struct Step {
    exit: Exit,
    answered: Option<u64>,
    stored: Option<(Gpa, Vec<u8>)>,
    registers: Option<fn(&mut General)>,
    interrupted: bool,
}

impl Step {
    /// The guest leaves with `exit`.
    pub fn new(exit: Exit) -> Self {
        Self {
            exit,
            answered: None,
            stored: None,
            registers: None,
            interrupted: false,
        }
    }

    /// The read before this step must have been answered with `value`.
    pub fn answered(mut self, value: u64) -> Self {
        self.answered = Some(value);
        self
    }

    /// Before it leaves, the guest stores `bytes` at `at`.
    pub fn storing(mut self, at: Gpa, bytes: &[u8]) -> Self {
        self.stored = Some((at, bytes.to_vec()));
        self
    }

    /// Before it leaves, the guest changes its registers.
    pub fn changing(mut self, registers: fn(&mut General)) -> Self {
        self.registers = Some(registers);
        self
    }

    /// An interrupt must have been delivered for the guest to come here.
    pub fn interrupted(mut self) -> Self {
        self.interrupted = true;
        self
    }
}

/// What one machine's only vCPU does.
pub type Script = Vec<Step>;

/// A hypervisor whose machines, in the order of their creation, replay scripts.
pub struct Fake {
    scripts: RefCell<VecDeque<Script>>,
}

impl Fake {
    /// A hypervisor for as many machines as there are scripts.
    pub fn replaying(scripts: impl IntoIterator<Item = Script>) -> Self {
        Self {
            scripts: RefCell::new(scripts.into_iter().collect()),
        }
    }
}

impl Hypervisor for Fake {
    type Vm = FakeVm;

    fn probe() -> std::result::Result<Caps, Missing> {
        Ok(Caps {
            ring0: Ring0::Emulated,
            vcpus: 1,
            irq_lines: true,
            doorbells: false,
            read_only: true,
            tsc_offset: false,
            kernel_exits: false,
            halt_in_guest: true,
        })
    }

    fn open() -> std::result::Result<Self, Missing> {
        Ok(Self::replaying([]))
    }

    fn create_vm(&self, _spec: &VmSpec) -> Result<FakeVm> {
        let script = self.scripts.borrow_mut().pop_front();
        Ok(FakeVm {
            script: RefCell::new(script),
            memory: Rc::default(),
            interrupts: Arc::default(),
        })
    }
}

type Memory = Rc<RefCell<BTreeMap<Gpa, (Arc<Region>, Access)>>>;

/// A machine without a kernel.
pub struct FakeVm {
    script: RefCell<Option<Script>>,
    memory: Memory,
    interrupts: Arc<AtomicU32>,
}

impl Vm for FakeVm {
    type Vcpu = FakeVcpu;

    fn attach(&self, at: Gpa, region: Arc<Region>, access: Access) -> Result<()> {
        let mut memory = self.memory.borrow_mut();
        let end = at.0 + region.len() as u64;
        let taken = memory
            .iter()
            .any(|(other, (there, _))| other.0 < end && at.0 < other.0 + there.len() as u64);
        if taken {
            return Err(Error::BadAttach {
                at,
                reason: "memory is attached there already",
            });
        }
        memory.insert(at, (region, access));
        Ok(())
    }

    fn detach(&self, at: Gpa) -> Result<Arc<Region>> {
        let gone = self.memory.borrow_mut().remove(&at);
        gone.map(|(region, _)| region).ok_or(Error::NotAttached(at))
    }

    fn create_vcpu(&self, _id: VcpuId, boot: Option<&BootState>) -> Result<FakeVcpu> {
        let boot = boot.copied().unwrap_or_default();
        let script = self.script.borrow_mut().take();
        Ok(FakeVcpu {
            script: script.ok_or(Error::Unsupported("run a machine without a script"))?,
            next: 0,
            owed: false,
            general: boot.general,
            system: boot.system,
            activity: Activity::Running,
            memory: Rc::clone(&self.memory),
            interrupts: Arc::clone(&self.interrupts),
            kicked: Arc::default(),
        })
    }

    fn irq_line(&self, _irq: IrqId) -> Result<IrqLine> {
        Ok(self.line())
    }

    fn irq_pin(&self, _pin: u8) -> Result<IrqLine> {
        Ok(self.line())
    }

    fn doorbell(&self, _at: IoAddr) -> Result<Option<Doorbell>> {
        Ok(None)
    }
}

impl FakeVm {
    /// How many interrupts were delivered, by whichever line.
    pub fn interrupts(&self) -> u32 {
        self.interrupts.load(Ordering::SeqCst)
    }

    fn line(&self) -> IrqLine {
        let interrupts = Arc::clone(&self.interrupts);
        IrqLine::new(move || {
            interrupts.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    }
}

/// A vCPU that replays a script.
pub struct FakeVcpu {
    script: Script,
    next: usize,
    /// The last exit wants an answer.
    owed: bool,
    general: General,
    system: System,
    activity: Activity,
    memory: Memory,
    interrupts: Arc<AtomicU32>,
    kicked: Arc<AtomicBool>,
}

impl FakeVcpu {
    fn strayed(&self, reason: impl Into<String>) -> Error {
        Error::Script {
            step: self.next,
            reason: reason.into(),
        }
    }

    fn check_entry(&self, entry: Entry, wanted: Option<u64>) -> Result<()> {
        match (entry, self.owed) {
            (Entry::Resume, true) => {
                return Err(self.strayed("the read or call before it was not answered"))
            }
            (Entry::Answer(_), false) => {
                return Err(self.strayed("nothing before it wanted an answer"))
            }
            _ => {}
        }
        match (entry, wanted) {
            (Entry::Answer(got), Some(wanted)) if got != wanted => {
                Err(self.strayed(format!("the answer should be {wanted:#x}, not {got:#x}")))
            }
            _ => Ok(()),
        }
    }

    fn store(&self, at: Gpa, bytes: &[u8]) -> Result<()> {
        let memory = self.memory.borrow();
        let found = memory.range(..=at).next_back();
        let (start, (region, access)) = found.ok_or(Error::NotAttached(at))?;
        if *access == Access::ReadOnly {
            return Err(self.strayed("the guest stores into read-only memory"));
        }
        region
            .write(at.0 - start.0, bytes)
            .map_err(|error| self.strayed(error.to_string()))
    }

    /// A kick takes effect only where the script has one.
    fn await_kick(&self) {
        while !self.kicked.swap(false, Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }

    fn take_interrupt(&mut self) -> Result<()> {
        let taken = self
            .interrupts
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| {
                count.checked_sub(1)
            });
        self.activity = Activity::Running;
        taken
            .map(drop)
            .map_err(|_| self.strayed("no interrupt was delivered"))
    }
}

impl Vcpu for FakeVcpu {
    fn run(&mut self, entry: Entry) -> std::result::Result<Exit, Box<Error>> {
        let step = self.script.get(self.next).cloned();
        let step = step.ok_or_else(|| self.strayed("the script ends before it"))?;
        self.check_entry(entry, step.answered)?;
        if let Some((at, bytes)) = &step.stored {
            self.store(*at, bytes)?;
        }
        if let Some(change) = step.registers {
            change(&mut self.general);
        }
        if step.exit == Exit::Kicked {
            self.await_kick();
        }
        if step.interrupted {
            self.take_interrupt()?;
        }
        self.owed = matches!(step.exit, Exit::Read { .. } | Exit::Hypercall { .. });
        self.next += 1;
        Ok(step.exit)
    }

    fn state(&mut self, which: RegSet) -> Result<VcpuState> {
        Ok(VcpuState {
            general: which.contains(RegSet::GENERAL).then_some(self.general),
            system: which.contains(RegSet::SYSTEM).then_some(self.system),
            activity: which.contains(RegSet::ACTIVITY).then_some(self.activity),
        })
    }

    fn set_state(&mut self, changed: &VcpuState) -> Result<()> {
        self.general = changed.general.unwrap_or(self.general);
        self.system = changed.system.unwrap_or(self.system);
        self.activity = changed.activity.unwrap_or(self.activity);
        Ok(())
    }

    fn kicker(&self) -> Kicker {
        Kicker::new(FakeKick(Arc::clone(&self.kicked)))
    }

    fn tally(&mut self) -> Tally {
        Tally::default()
    }

    fn tsc_offset(&self) -> Option<i64> {
        None
    }
}

struct FakeKick(Arc<AtomicBool>);

impl Kick for FakeKick {
    fn mark(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn interrupt(&self) {}
}
