//! Following interrupts on their way while the machine runs: the plugin's own part, in
//! place of the tally. How much is the machine's clock charged from the interrupt of its
//! timer until a guest's handler reads the clock?
//!
//! Nothing is kept by instruction: QEMU itself adds them up. Only where a block of
//! translation begins, and at the few instructions that the way leads over, somebody
//! looks. What was executed of a block before the next began says by which instruction it
//! was left, which is all that [`Charges`] needs.
//!
//! Of several interrupts of the machine's timer the one counts behind which a timer for a
//! guest was found to have expired, and of these the last. With a sleep of the machine
//! all is forgotten: its clock jumps then, and nobody here knows how far.

use crate::charge::{Charges, Shape};
use crate::tally::Insn;
use crate::way::{Passage, Step, Way};
use crate::worlds::{Machine, Space};
use std::collections::HashSet;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The instruction that enters a guest (AMD APM volume 3).
const VMRUN: [u8; 3] = [0x0f, 0x01, 0xd8];

/// The windows that count: one, always open.
const OPEN: [bool; 2] = [true, false];

/// A block that has been translated.
#[derive(Debug)]
pub struct Block {
    insns: Vec<(Shape, Option<Stop>)>,
    /// Whether its first instruction is where guests exit to.
    leaves: bool,
}

impl Block {
    /// Where to stop at an instruction of it, if that is on the way.
    pub fn stop(&self, index: usize) -> Option<&Stop> {
        self.insns.get(index)?.1.as_ref()
    }

    /// The last of so many instructions that were begun, and what it is on the way.
    fn last(&self, begun: u64) -> Option<(Shape, Option<Stop>)> {
        let index = usize::try_from(begun.checked_sub(1)?).ok()?;
        self.insns.get(index).copied()
    }
}

/// An instruction that the way leads over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    address: u64,
    step: Step,
}

/// Who follows.
pub struct Follower {
    way: OnceLock<Way>,
    machine: OnceLock<Machine>,
    /// Where #VMEXIT leads.
    leaves: Mutex<Option<HashSet<u64>>>,
    /// Instructions that were begun.
    executed: AtomicU64,
    /// The block that is executed, and what was executed before it.
    block: AtomicPtr<Block>,
    before_block: AtomicU64,
    in_guest: AtomicBool,
    /// Whether the machine's timer has interrupted, and what was executed before that.
    follows: AtomicBool,
    before_all: AtomicU64,
    charges: Charges,
    seen: Mutex<Seen>,
}

/// What was seen since the machine's timer interrupted. Points are what the clock was
/// charged until then.
#[derive(Clone, Copy)]
struct Seen {
    /// The last interrupt of the machine's timer.
    interrupted: u64,
    /// The one behind which a timer had expired.
    woke: Option<u64>,
    marked: Option<u64>,
    entered: Option<u64>,
    in_handler: bool,
}

impl Seen {
    const NOTHING: Self = Self {
        interrupted: 0,
        woke: None,
        marked: None,
        entered: None,
        in_handler: false,
    };
}

impl Follower {
    /// Nobody, as long as there is no way.
    pub const fn new() -> Self {
        Self {
            way: OnceLock::new(),
            machine: OnceLock::new(),
            leaves: Mutex::new(None),
            executed: AtomicU64::new(0),
            block: AtomicPtr::new(null_mut()),
            before_block: AtomicU64::new(0),
            in_guest: AtomicBool::new(false),
            follows: AtomicBool::new(false),
            before_all: AtomicU64::new(0),
            charges: Charges::new(),
            seen: Mutex::new(Seen::NOTHING),
        }
    }

    /// Interrupts are to be followed on this way.
    pub fn follow(&self, way: Way) {
        // There is one way only, and nobody follows another yet.
        let _ = self.way.set(way);
    }

    /// The machine is no Linux.
    pub fn expect(&self, machine: Machine) {
        let _ = self.machine.set(machine);
    }

    /// Whether interrupts are followed.
    pub fn follows(&self) -> bool {
        self.way.get().is_some()
    }

    /// To which QEMU adds one before it executes an instruction, and behind a call of
    /// [`Self::stop`] for it.
    pub fn executed(&self) -> *mut u64 {
        self.executed.as_ptr()
    }

    fn machine(&self) -> Machine {
        self.machine.get().copied().unwrap_or_default()
    }

    /// A block of these instructions. Blocks are never freed: QEMU keeps them in its
    /// translations.
    pub fn block<'a>(&self, insns: impl Iterator<Item = Insn<'a>>) -> &'static Block {
        let machine = self.machine();
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        let leaves = leaves.get_or_insert_default();
        let mut starts = None;
        let insn = |insn: Insn<'a>| {
            let Insn { address, bytes, .. } = insn;
            starts.get_or_insert(address);
            let shape = Shape::of(machine, address, bytes, insn.ends);
            let step = match machine.is_privileged(address) {
                true if bytes == VMRUN => {
                    leaves.insert(address + VMRUN.len() as u64);
                    Some(Step::Enter)
                }
                true if shape.halts() => Some(Step::Sleep),
                _ => self.way.get().and_then(|way| way.step(address, bytes)),
            };
            (shape, step.map(|step| Stop { address, step }))
        };
        let insns: Vec<_> = insns.map(insn).collect();
        let leaves =
            starts.is_some_and(|first| machine.is_privileged(first) && leaves.contains(&first));
        Box::leak(Box::new(Block { insns, leaves }))
    }

    /// A block begins.
    pub fn begin(&self, block: &'static Block) {
        let now = self.executed.load(Relaxed);
        let begun = now - self.before_block.swap(now, Relaxed);
        let entering = NonNull::from(block).as_ptr();
        let before = NonNull::new(self.block.swap(entering, Relaxed));
        // SAFETY: only blocks that are never freed nor changed are put there, above.
        let last = before.and_then(|before| unsafe { before.as_ref() }.last(begun));
        let was_in_guest = self.in_guest.load(Relaxed);
        let enters =
            |(_, stop): (Shape, Option<Stop>)| stop.is_some_and(|stop| stop.step == Step::Enter);
        let in_guest = (was_in_guest || last.is_some_and(enters)) && !block.leaves;
        self.in_guest.store(in_guest, Relaxed);
        if self.follows.load(Relaxed) {
            if let Some((shape, _)) = last {
                self.charges.reached(shape, was_in_guest);
            }
            if let Some((shape, _)) = block.insns.first() {
                self.charge(*shape, block.leaves, in_guest);
            }
        }
    }

    fn charge(&self, shape: Shape, leaves: bool, in_guest: bool) {
        match in_guest {
            true => self.charges.in_guest(shape, OPEN),
            false => self.charges.on_machine(shape, leaves, OPEN),
        }
    }

    /// An instruction on the way is executed. The passage of an interrupt, if this reads
    /// the clock for it.
    pub fn stop(&self, stop: &Stop) -> Option<Passage> {
        let in_guest = self.in_guest.load(Relaxed);
        let machine = self.machine();
        let by = machine.space(in_guest, stop.address);
        let follows = self.follows.load(Relaxed);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match (stop.step, by) {
            (Step::Handler, Space::Guest) => seen.in_handler = true,
            (Step::Clock, Space::Guest) if seen.in_handler => return Some(self.arrive(seen)),
            _ if in_guest || !machine.is_privileged(stop.address) => {}
            (Step::Woke, _) => {
                if !follows {
                    self.set_out();
                }
                seen.interrupted = self.charged();
            }
            (_, _) if !follows => {}
            (Step::Expired, _) => {
                seen.woke = Some(seen.interrupted);
                seen.marked = None;
            }
            (Step::Marked, _) if seen.woke.is_some() && seen.marked.is_none() => {
                seen.marked = Some(self.charged());
            }
            // The guest is entered when this has been executed.
            (Step::Enter, _) => seen.entered = Some(self.charged() + 1),
            (Step::Sleep, _) => {
                *seen = Seen::NOTHING;
                self.follows.store(false, Relaxed);
            }
            _ => {}
        }
        None
    }

    /// What the clock was charged before the instruction that is executed now.
    fn charged(&self) -> u64 {
        let executed = self.executed.load(Relaxed) - self.before_all.load(Relaxed);
        executed.saturating_sub(self.charges.so_far(0))
    }

    fn set_out(&self) {
        self.charges.forget();
        let before = self.executed.load(Relaxed);
        self.before_all.store(before, Relaxed);
        self.follows.store(true, Relaxed);
    }

    /// What is read is the clock behind the instruction that reads it.
    fn arrive(&self, mut seen: MutexGuard<'_, Seen>) -> Passage {
        let follows = self.follows.swap(false, Relaxed);
        let seen = std::mem::replace(&mut *seen, Seen::NOTHING);
        let Some(woke) = seen.woke.filter(|_| follows) else {
            return Passage::default();
        };
        let now = self.charged() + 1;
        Passage {
            woke: Some(now - woke),
            marked: seen.marked.map(|marked| now - marked),
            in_guest: seen.entered.map(|entered| now - entered),
        }
    }
}

impl Default for Follower {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
