//! The backend that needs no kernel: it replays a script.
//!
//! A script says, exit by exit, what the guest does: what its VMM sees, which
//! answer it must have given, what the guest stores in its memory and holds in its
//! registers. A VMM under test gets these exits and is told when it strays. It
//! makes the logic around a vCPU testable on any machine.

use crate::{
    Access, Activity, BootState, Caps, Doorbell, Entry, Error, Exit, General, Gpa, Hypervisor,
    IoAddr, IrqId, IrqLine, Kick, Kicker, Missing, RegSet, Region, Result, Ring0, System, Tally,
    Vcpu, VcpuId, VcpuState, Vm, VmSpec, PAGE,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One exit, and what the guest has done before it.
#[derive(Clone, Debug)]
pub struct Step {
    exit: Exit,
    answered: Option<u64>,
    stored: Vec<(Gpa, Vec<u8>)>,
    registers: Option<fn(&mut General)>,
    interrupted: bool,
}

impl Step {
    /// The guest leaves with `exit`.
    pub fn new(exit: Exit) -> Self {
        Self {
            exit,
            answered: None,
            stored: Vec::new(),
            registers: None,
            interrupted: false,
        }
    }

    /// The read before this step must have been answered with `value`.
    pub fn answered(mut self, value: u64) -> Self {
        self.answered = Some(value);
        self
    }

    /// Before it leaves, the guest stores `bytes` at `at`, too.
    pub fn storing(mut self, at: Gpa, bytes: &[u8]) -> Self {
        self.stored.push((at, bytes.to_vec()));
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

/// What one vCPU does.
pub type Script = Vec<Step>;

/// A hypervisor whose machines, in the order of their creation, replay scripts.
pub struct Fake {
    machines: Mutex<VecDeque<Vec<Script>>>,
}

impl Fake {
    /// A hypervisor for as many machines of one vCPU as there are scripts.
    pub fn replaying(scripts: impl IntoIterator<Item = Script>) -> Self {
        Self::with_machines(scripts.into_iter().map(|script| vec![script]))
    }

    /// A hypervisor for these machines, each with a script for each vCPU. The scripts of a
    /// machine do not wait for each other.
    pub fn with_machines(machines: impl IntoIterator<Item = Vec<Script>>) -> Self {
        Self {
            machines: Mutex::new(machines.into_iter().collect()),
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
            irq_pins: true,
            doorbells: false,
            read_only: true,
            dirty: true,
            tsc_offset: false,
            kernel_exits: false,
            halt_in_guest: true,
        })
    }

    fn open() -> std::result::Result<Self, Missing> {
        Ok(Self::replaying([]))
    }

    fn create_vm(&self, _spec: &VmSpec) -> Result<FakeVm> {
        let scripts = held(&self.machines).pop_front().unwrap_or_default();
        Ok(FakeVm {
            scripts: Mutex::new(scripts.into_iter().map(Some).collect()),
            memory: Arc::default(),
            interrupts: Arc::default(),
        })
    }
}

/// Whoever panicked left it whole.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Memory = Arc<Mutex<BTreeMap<Gpa, Attached>>>;

struct Attached {
    region: Arc<Region>,
    access: Access,
    /// One bit for each page that was written to, if anybody wants to know.
    dirty: Option<Vec<u64>>,
}

impl Attached {
    fn clean(&self) -> Vec<u64> {
        vec![0; (self.region.len() / PAGE).div_ceil(64)]
    }

    fn note(&mut self, offset: u64, length: usize) {
        let pages = offset as usize / PAGE..(offset as usize + length).div_ceil(PAGE);
        for page in pages {
            if let Some(dirty) = &mut self.dirty {
                dirty[page / 64] |= 1 << (page % 64);
            }
        }
    }
}

/// A machine without a kernel.
pub struct FakeVm {
    scripts: Mutex<Vec<Option<Script>>>,
    memory: Memory,
    interrupts: Arc<AtomicU32>,
}

impl Vm for FakeVm {
    type Vcpu = FakeVcpu;

    fn attach(&self, at: Gpa, region: Arc<Region>, access: Access) -> Result<()> {
        let mut memory = held(&self.memory);
        let end = at.0 + region.len() as u64;
        let taken = memory
            .iter()
            .any(|(other, there)| other.0 < end && at.0 < other.0 + there.region.len() as u64);
        if taken {
            return Err(Error::BadAttach {
                at,
                reason: "memory is attached there already",
            });
        }
        let attached = Attached {
            region,
            access,
            dirty: None,
        };
        memory.insert(at, attached);
        Ok(())
    }

    fn detach(&self, at: Gpa) -> Result<Arc<Region>> {
        let gone = held(&self.memory).remove(&at);
        gone.map(|there| there.region).ok_or(Error::NotAttached(at))
    }

    fn track(&self, at: Gpa, on: bool) -> Result<()> {
        let mut memory = held(&self.memory);
        let there = memory.get_mut(&at).ok_or(Error::NotAttached(at))?;
        there.dirty = on.then(|| there.clean());
        Ok(())
    }

    fn dirty(&self, at: Gpa) -> Result<Vec<u64>> {
        let mut memory = held(&self.memory);
        let there = memory.get_mut(&at).ok_or(Error::NotAttached(at))?;
        let clean = there.clean();
        let dirty = there.dirty.as_mut().ok_or(Error::NotTracked(at))?;
        Ok(std::mem::replace(dirty, clean))
    }

    fn create_vcpu(&self, id: VcpuId, boot: Option<&BootState>) -> Result<FakeVcpu> {
        let boot = boot.copied().unwrap_or_default();
        let mut scripts = held(&self.scripts);
        let script = scripts.get_mut(id.0 as usize).and_then(Option::take);
        Ok(FakeVcpu {
            script: script.ok_or(Error::Unsupported("run a machine without a script"))?,
            next: 0,
            owed: false,
            general: boot.general,
            system: boot.system,
            activity: Activity::Running,
            memory: Arc::clone(&self.memory),
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
        let mut memory = held(&self.memory);
        let found = memory.range_mut(..=at).next_back();
        let (start, there) = found.ok_or(Error::NotAttached(at))?;
        if there.access == Access::ReadOnly {
            return Err(self.strayed("the guest stores into read-only memory"));
        }
        let offset = at.0 - start.0;
        let stored = there.region.write(offset, bytes);
        stored.map_err(|error| self.strayed(error.to_string()))?;
        there.note(offset, bytes.len());
        Ok(())
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
        for (at, bytes) in &step.stored {
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
