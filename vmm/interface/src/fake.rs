//! A backend that replays a script and needs no hypervisor.
//!
//! A script lists exits with the expected answers, the guest's stores and its registers. A VMM under test
//! receives these exits, and an error when its entries differ.

use crate::{
    Access, Activity, BootState, Caps, Doorbell, Entry, Error, Exit, General, Gpa, Hypervisor,
    IoAddr, IrqId, IrqLine, Kick, Kicker, Missing, RegSet, Region, Result, Ring0, System, Vcpu,
    VcpuId, VcpuState, VcpuStats, Vm, VmSpec, PAGE,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One exit, and the guest's actions before it.
#[derive(Clone, Debug)]
pub struct Step {
    exit: Exit,
    answered: Option<u64>,
    stored: Vec<(Gpa, Vec<u8>)>,
    registers: Option<fn(&mut General)>,
    interrupted: bool,
}

impl Step {
    /// Exits with `exit`.
    pub fn new(exit: Exit) -> Self {
        Self {
            exit,
            answered: None,
            stored: Vec::new(),
            registers: None,
            interrupted: false,
        }
    }

    /// Expects `value` as the answer to the previous read.
    pub fn answered(mut self, value: u64) -> Self {
        self.answered = Some(value);
        self
    }

    /// Stores `bytes` at `at` before the exit.
    pub fn storing(mut self, at: Gpa, bytes: &[u8]) -> Self {
        self.stored.push((at, bytes.to_vec()));
        self
    }

    /// Changes the guest's registers before the exit.
    pub fn changing(mut self, registers: fn(&mut General)) -> Self {
        self.registers = Some(registers);
        self
    }

    /// Requires a pending interrupt.
    pub fn interrupted(mut self) -> Self {
        self.interrupted = true;
        self
    }
}

/// The steps of one vCPU.
pub type Script = Vec<Step>;

/// A hypervisor whose VMs replay scripts, in order of creation.
pub struct Fake {
    machines: Mutex<VecDeque<Vec<Script>>>,
}

impl Fake {
    /// Creates a hypervisor with one single-vCPU VM for each script.
    pub fn replaying(scripts: impl IntoIterator<Item = Script>) -> Self {
        Self::with_machines(scripts.into_iter().map(|script| vec![script]))
    }

    /// Creates a hypervisor with these VMs, each with one script for each vCPU. The scripts of a VM run
    /// independently.
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
        let scripts = lock(&self.machines).pop_front().unwrap_or_default();
        Ok(FakeVm {
            scripts: Mutex::new(scripts.into_iter().map(Some).collect()),
            memory: Arc::default(),
            interrupts: Arc::default(),
        })
    }
}

/// Locks `mutex`, ignoring poison.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Memory = Arc<Mutex<BTreeMap<Gpa, Attached>>>;

struct Attached {
    region: Arc<Region>,
    access: Access,
    /// Dirty log, if tracking is on.
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

/// A VM without a kernel.
pub struct FakeVm {
    scripts: Mutex<Vec<Option<Script>>>,
    memory: Memory,
    interrupts: Arc<AtomicU32>,
}

impl Vm for FakeVm {
    type Vcpu = FakeVcpu;

    fn attach(&self, at: Gpa, region: Arc<Region>, access: Access) -> Result<()> {
        let mut memory = lock(&self.memory);
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
        let gone = lock(&self.memory).remove(&at);
        gone.map(|there| there.region).ok_or(Error::NotAttached(at))
    }

    fn track_dirty(&self, at: Gpa, on: bool) -> Result<()> {
        let mut memory = lock(&self.memory);
        let there = memory.get_mut(&at).ok_or(Error::NotAttached(at))?;
        there.dirty = on.then(|| there.clean());
        Ok(())
    }

    fn dirty_log(&self, at: Gpa) -> Result<Vec<u64>> {
        let mut memory = lock(&self.memory);
        let there = memory.get_mut(&at).ok_or(Error::NotAttached(at))?;
        let clean = there.clean();
        let dirty = there.dirty.as_mut().ok_or(Error::NotTracked(at))?;
        Ok(std::mem::replace(dirty, clean))
    }

    fn create_vcpu(&self, id: VcpuId, boot: Option<&BootState>) -> Result<FakeVcpu> {
        let boot = boot.copied().unwrap_or_default();
        let mut scripts = lock(&self.scripts);
        let script = scripts.get_mut(id.0 as usize).and_then(Option::take);
        Ok(FakeVcpu {
            script: script.ok_or(Error::Unsupported("run a machine without a script"))?,
            next: 0,
            answer_expected: false,
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
    /// Number of interrupts delivered by any line.
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
    /// The last exit expects an answer.
    answer_expected: bool,
    general: General,
    system: System,
    activity: Activity,
    memory: Memory,
    interrupts: Arc<AtomicU32>,
    kicked: Arc<AtomicBool>,
}

impl FakeVcpu {
    fn mismatch(&self, reason: impl Into<String>) -> Error {
        Error::Script {
            step: self.next,
            reason: reason.into(),
        }
    }

    fn check_entry(&self, entry: Entry, wanted: Option<u64>) -> Result<()> {
        match (entry, self.answer_expected) {
            (Entry::Resume, true) => {
                return Err(self.mismatch("the read or call before it was not answered"))
            }
            (Entry::Answer(_), false) => {
                return Err(self.mismatch("nothing before it wanted an answer"))
            }
            _ => {}
        }
        match (entry, wanted) {
            (Entry::Answer(got), Some(wanted)) if got != wanted => {
                Err(self.mismatch(format!("the answer should be {wanted:#x}, not {got:#x}")))
            }
            _ => Ok(()),
        }
    }

    fn store(&self, at: Gpa, bytes: &[u8]) -> Result<()> {
        let mut memory = lock(&self.memory);
        let found = memory.range_mut(..=at).next_back();
        let (start, there) = found.ok_or(Error::NotAttached(at))?;
        if there.access == Access::ReadOnly {
            return Err(self.mismatch("the guest stores into read-only memory"));
        }
        let offset = at.0 - start.0;
        let stored = there.region.write(offset, bytes);
        stored.map_err(|error| self.mismatch(error.to_string()))?;
        there.note(offset, bytes.len());
        Ok(())
    }

    /// Waits for a kick; only a scripted kick takes effect.
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
            .map_err(|_| self.mismatch("no interrupt was delivered"))
    }
}

impl Vcpu for FakeVcpu {
    fn run(&mut self, entry: Entry) -> std::result::Result<Exit, Box<Error>> {
        let step = self.script.get(self.next).cloned();
        let step = step.ok_or_else(|| self.mismatch("the script ends before it"))?;
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
        self.answer_expected = matches!(step.exit, Exit::Read { .. } | Exit::Hypercall { .. });
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

    fn stats(&mut self) -> VcpuStats {
        VcpuStats::default()
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
