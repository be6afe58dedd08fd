//! Following an interrupt on its way: how much the machine's clock is charged from the
//! interrupt of its timer until a guest's handler reads the clock.
//!
//! An interrupt of the timer that leads to nothing is forgotten with the next. With a
//! sleep of the machine all is forgotten: its clock jumps then, and nobody here knows
//! how far.

use super::{Place, Role};
use crate::charge::Charges;
use crate::way::{Passage, Step, Way};
use crate::worlds::{Machine, Space};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The windows that count: one, always open.
const OPEN: [bool; 2] = [true, false];

/// Who follows.
pub struct Follower {
    way: OnceLock<Way>,
    /// Whether the machine's timer has interrupted.
    follows: AtomicBool,
    /// Instructions since then.
    executed: AtomicU64,
    charges: Charges,
    seen: Mutex<Seen>,
}

/// What was seen since the machine's timer interrupted. Points are what the clock was
/// charged until then.
struct Seen {
    expired: bool,
    marked: Option<u64>,
    entered: Option<u64>,
    in_handler: bool,
}

impl Seen {
    const NOTHING: Self = Self {
        expired: false,
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
            follows: AtomicBool::new(false),
            executed: AtomicU64::new(0),
            charges: Charges::new(),
            seen: Mutex::new(Seen::NOTHING),
        }
    }

    /// Interrupts are to be followed on this way.
    pub fn follow(&self, way: Way) {
        // There is one way only, and nobody follows another yet.
        let _ = self.way.set(way);
    }

    /// The way, if interrupts are followed.
    pub fn way(&self) -> Option<&Way> {
        self.way.get()
    }

    /// An instruction is executed, by a guest or by the machine itself. The passage of
    /// an interrupt, if this reads the clock for it.
    pub fn execute(&self, place: &Place, in_guest: bool, machine: Machine) -> Option<Passage> {
        let follows = self.follows.load(Relaxed);
        if follows {
            self.charge(place, in_guest);
        }
        match place.role {
            Role::Pass(step) => return self.pass(step, place, in_guest, machine),
            // The guest is entered when this has been executed.
            Role::Enter if follows => self.seen().entered = Some(self.charged() + 1),
            _ if follows && !in_guest && place.shape.halts() => self.forget(),
            _ => {}
        }
        None
    }

    fn charge(&self, place: &Place, in_guest: bool) {
        // One thread writes: no atomic addition is needed.
        self.executed
            .store(self.executed.load(Relaxed) + 1, Relaxed);
        match in_guest {
            true => self.charges.in_guest(place.shape, OPEN),
            false => {
                let leaves = place.role == Role::Leave;
                self.charges.on_machine(place.shape, leaves, OPEN);
            }
        }
    }

    fn pass(&self, step: Step, place: &Place, in_guest: bool, machine: Machine) -> Option<Passage> {
        let by = machine.space(in_guest, place.address);
        let mut seen = self.seen();
        match (step, by) {
            (Step::Handler, Space::Guest) => seen.in_handler = true,
            (Step::Clock, Space::Guest) if seen.in_handler => return Some(self.arrive(&mut seen)),
            (Step::Clock, Space::User) if self.is_handler(&seen) => {
                return Some(self.arrive(&mut seen));
            }
            (_, Space::Guest | Space::User) => {}
            (Step::Woke, _) if !seen.expired => self.begin(place, &mut seen),
            (Step::Expired, _) => seen.expired = self.follows.load(Relaxed),
            (Step::Marked, _) if seen.expired && seen.marked.is_none() => {
                seen.marked = Some(self.charged());
            }
            _ => {}
        }
        None
    }

    /// Whether a program that reads the clock now is the handler.
    fn is_handler(&self, seen: &Seen) -> bool {
        let has_handler = self.way().is_some_and(|way| way.handler.is_some());
        !has_handler && seen.marked.is_some()
    }

    /// What the clock was charged before the instruction that is executed now.
    fn charged(&self) -> u64 {
        let before = self.executed.load(Relaxed) - 1;
        before.saturating_sub(self.charges.so_far(0))
    }

    fn begin(&self, place: &Place, seen: &mut Seen) {
        *seen = Seen::NOTHING;
        self.charges.forget();
        self.executed.store(0, Relaxed);
        self.follows.store(true, Relaxed);
        self.charge(place, false);
    }

    /// What is read is the clock behind the instruction that reads it.
    fn arrive(&self, seen: &mut Seen) -> Passage {
        let follows = self.follows.swap(false, Relaxed);
        let seen = std::mem::replace(seen, Seen::NOTHING);
        if !(follows && seen.expired) {
            return Passage::default();
        }
        let now = self.charged() + 1;
        Passage {
            woke: Some(now),
            marked: seen.marked.map(|marked| now - marked),
            in_guest: seen.entered.map(|entered| now - entered),
        }
    }

    fn forget(&self) {
        self.follows.store(false, Relaxed);
        *self.seen() = Seen::NOTHING;
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
