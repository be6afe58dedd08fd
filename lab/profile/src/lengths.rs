//! Counts instructions that find the length of an intercepted instruction.
//!
//! Processors report that length (AMD APM volume 2, 15.7.1, next sequential instruction pointer), and QEMU's do not: the
//! hypervisor decodes the instruction instead. The init of a system announces the calls that do so
//! ([`trapline_abi::marker::announcement`]), or the function that they call. An interval is from such a call to the instruction
//! after it. If an interrupt, a fault or a guest came in between, the interval has the length of the one before it of the
//! same call.

use crate::insn::{self, Event, Flow};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use trapline_abi::marker;

/// What an instruction means for intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A call that finds a length, and returns to this address.
    Call(u64),
    /// Follows such a call.
    Return,
    /// Shows that something else was executed in between: returns from a trap, or enters a guest.
    Disturbance,
}

/// Number of instructions in intervals. Only one thread executes instructions.
pub struct Lengths {
    is_enabled: AtomicBool,
    /// Number of instructions of kernels and hypervisors, those of a block when it begins.
    executed: OnceLock<&'static AtomicU64>,
    /// Sum of all intervals.
    total: AtomicU64,
    /// True from the begin of an interval until its end or a disturbance.
    is_finding: AtomicBool,
    state: Mutex<Option<State>>,
}

#[derive(Default)]
struct State {
    /// Addresses of calls, or of the functions that they call.
    announced: HashSet<u64>,
    returns: HashSet<u64>,
    /// The intervals that have begun, the innermost last.
    open: Vec<Interval>,
    /// Length of the last undisturbed interval by return address.
    last: HashMap<u64, u64>,
}

struct Interval {
    return_address: u64,
    executed_before: u64,
    is_disturbed: bool,
}

/// Bytes of a direct call.
const CALL: usize = 5;

/// Most intervals within each other: one for each level.
const MOST_OPEN: usize = 8;

impl Lengths {
    /// Returns a counter that is not enabled.
    pub const fn new() -> Self {
        Self {
            is_enabled: AtomicBool::new(false),
            executed: OnceLock::new(),
            total: AtomicU64::new(0),
            is_finding: AtomicBool::new(false),
            state: Mutex::new(None),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state: MutexGuard<'_, Option<State>> =
            self.state.lock().unwrap_or_else(PoisonError::into_inner);
        act(state.get_or_insert_with(State::default))
    }

    /// Enables the counter.
    pub fn enable(&self) {
        self.is_enabled.store(true, Relaxed);
    }

    /// Returns true if it is enabled.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Relaxed)
    }

    /// Sets the number that the emulator increments by the number of instructions when a block of a kernel or hypervisor
    /// begins. Only the first call has an effect.
    pub fn set_executed(&self, executed: &'static AtomicU64) {
        let _ = self.executed.set(executed);
    }

    /// Returns true if calls were announced.
    pub fn is_known(&self) -> bool {
        self.with(|state| !state.announced.is_empty())
    }

    /// Adds a call, or the function that calls have as their target.
    pub fn announce(&self, address: u64) {
        self.with(|state| {
            state.announced.insert(address);
            state.returns.insert(address.wrapping_add(CALL as u64));
        });
    }

    /// Returns what the instruction `bytes` at `address` means.
    pub(crate) fn point(&self, address: u64, bytes: &[u8], is_privileged: bool) -> Option<Point> {
        if !self.is_enabled() {
            return None;
        }
        if let Some(announced) = marker::announced(bytes) {
            self.announce(announced);
        }
        if !is_privileged {
            return None;
        }
        if matches!(
            Event::of(bytes),
            Some(Event::TrapReturn | Event::GuestEntry)
        ) {
            return Some(Point::Disturbance);
        }
        let next = address.wrapping_add(bytes.len() as u64);
        self.with(|state| {
            let is_call = insn::flow(bytes) == Some(Flow::Call);
            let is_announced = |address| state.announced.contains(&address);
            if is_call && (is_announced(address) || target(bytes, next).is_some_and(is_announced)) {
                state.returns.insert(next);
                Some(Point::Call(next))
            } else {
                state.returns.contains(&address).then_some(Point::Return)
            }
        })
    }

    /// Records that the instruction at `address` is about to be executed, and that it and those behind it in its block, as
    /// many as `counted_ahead`, are counted already.
    pub(crate) fn reach(&self, address: u64, point: Point, counted_ahead: u64) {
        let executed = self.executed.get();
        let now = executed.map_or(0, |executed| executed.load(Relaxed));
        let now = now.saturating_sub(counted_ahead);
        self.with(|state| match point {
            Point::Call(return_address) => {
                if state.open.len() == MOST_OPEN {
                    // Their returns were never reached.
                    state.open.clear();
                }
                state.open.push(Interval {
                    return_address,
                    executed_before: now,
                    is_disturbed: false,
                });
                self.is_finding.store(true, Relaxed);
            }
            Point::Disturbance => {
                self.is_finding.store(false, Relaxed);
                for interval in &mut state.open {
                    interval.is_disturbed = true;
                }
            }
            Point::Return => {
                // What follows an announced function is no return.
                if let Some(length) = state.close(address, now) {
                    self.total.store(self.total() + length, Relaxed);
                    self.is_finding.store(false, Relaxed);
                }
            }
        });
    }

    /// Returns true if what is executed belongs to an interval.
    pub(crate) fn is_finding(&self) -> bool {
        self.is_finding.load(Relaxed)
    }

    /// Returns the sum of all intervals so far.
    pub fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }
}

impl Default for Lengths {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// Ends the innermost interval that returns to `address`. Returns its length, `None` if there is none.
    fn close(&mut self, address: u64, now: u64) -> Option<u64> {
        let is_it = |interval: &Interval| interval.return_address == address;
        let place = self.open.iter().rposition(is_it)?;
        // Those within it were left without a return.
        let interval = self.open.drain(place..).next()?;
        if interval.is_disturbed {
            return Some(self.last.get(&address).copied().unwrap_or(0));
        }
        let length = now.saturating_sub(interval.executed_before);
        self.last.insert(address, length);
        Some(length)
    }
}

/// Returns the target of a direct call that is followed by `next`.
fn target(bytes: &[u8], next: u64) -> Option<u64> {
    match *bytes {
        [0xe8, a, b, c, d] => {
            let offset = i32::from_le_bytes([a, b, c, d]);
            Some(next.wrapping_add_signed(offset.into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_space::KERNEL;
    use crate::insn::VMRUN;

    const CALLER: u64 = KERNEL + 0x1000;
    const CALLEE: u64 = KERNEL + 0x2000;
    const IRET: [u8; 2] = [0x48, 0xcf];
    const NOP: [u8; 1] = [0x90];

    /// Returns the call at [`CALLER`] plus `offset` of [`CALLEE`].
    fn call(offset: u64) -> [u8; 5] {
        let distance = CALLEE - (CALLER + offset + 5);
        let [a, b, c, d, ..] = distance.to_le_bytes();
        [0xe8, a, b, c, d]
    }

    struct Machine {
        lengths: Lengths,
        executed: &'static AtomicU64,
    }

    impl Machine {
        fn new(announced: u64) -> Self {
            let machine = Self {
                lengths: Lengths::new(),
                executed: Box::leak(Box::default()),
            };
            machine.lengths.set_executed(machine.executed);
            machine.lengths.enable();
            machine.step(0x1000, &marker::announcement(announced));
            machine
        }

        fn step(&self, address: u64, bytes: &[u8]) {
            let is_privileged = address >= KERNEL;
            if let Some(point) = self.lengths.point(address, bytes, is_privileged) {
                self.lengths.reach(address, point, 0);
            }
            self.executed.fetch_add(1, Relaxed);
        }

        /// Executes a block of one-byte instructions with a point at `index`. All are counted when it begins.
        fn block(&self, address: u64, index: u64, insns: u64, point: Point) {
            self.executed.fetch_add(insns, Relaxed);
            self.lengths.reach(address + index, point, insns - index);
        }

        /// Executes a call with `insns` instructions, among them `within`.
        fn find_length(&self, insns: u64, within: Option<(u64, &[u8])>) {
            self.step(CALLER, &call(0));
            for at in 0..insns - 1 {
                self.step(CALLEE + at, &NOP);
            }
            if let Some((address, bytes)) = within {
                self.step(address, bytes);
            }
            self.step(CALLER + 5, &NOP);
        }
    }

    #[test]
    fn instructions_from_a_call_to_its_return_are_counted() {
        for announced in [CALLER, CALLEE] {
            let machine = Machine::new(announced);
            machine.step(CALLER - 1, &NOP);
            assert_eq!(machine.lengths.total(), 0);
            machine.find_length(10, None);
            assert_eq!(machine.lengths.total(), 10);
            machine.step(CALLER + 6, &NOP);
            machine.find_length(12, None);
            assert_eq!(machine.lengths.total(), 22);
        }
    }

    #[test]
    fn instructions_of_blocks_are_counted_from_the_call_to_its_return() {
        let machine = Machine::new(CALLER);
        let after = CALLER + 5;
        machine.block(CALLER - 6, 6, 7, Point::Call(after));
        machine.executed.fetch_add(20, Relaxed);
        machine.block(after, 0, 9, Point::Return);
        assert_eq!(machine.lengths.total(), 21);
    }

    #[test]
    fn code_behind_an_announced_function_ends_no_interval() {
        let machine = Machine::new(CALLEE);
        machine.step(CALLER, &call(0));
        assert!(machine.lengths.is_finding());
        machine.step(CALLEE + 5, &NOP);
        assert!(machine.lengths.is_finding());
        machine.step(CALLER + 5, &NOP);
        assert!(!machine.lengths.is_finding());
    }

    #[test]
    fn only_calls_that_were_announced_are_counted() {
        let machine = Machine::new(CALLER + 0x100);
        machine.find_length(10, None);
        assert_eq!(machine.lengths.total(), 0);
        assert!(machine.lengths.is_known());
        assert!(!Lengths::new().is_known());
    }

    #[test]
    fn disturbed_intervals_have_the_length_of_the_one_before() {
        let iret = Some((CALLEE + 0x500, &IRET[..]));
        let machine = Machine::new(CALLER);
        machine.find_length(500, iret);
        assert_eq!(machine.lengths.total(), 0);
        machine.find_length(10, None);
        machine.find_length(500, iret);
        assert_eq!(machine.lengths.total(), 20);
        machine.find_length(500, Some((CALLEE + 0x600, &VMRUN)));
        assert_eq!(machine.lengths.total(), 30);
    }

    #[test]
    fn calls_within_each_other_and_without_return_are_no_error() {
        let machine = Machine::new(CALLEE);
        // The second returns, the first does not, and begins again.
        machine.step(CALLER, &call(0));
        machine.step(CALLER + 0x100, &call(0x100));
        machine.step(CALLER + 0x105, &NOP);
        assert_eq!(machine.lengths.total(), 1);
        machine.find_length(10, None);
        assert_eq!(machine.lengths.total(), 11);
        for _ in 0..100 {
            machine.step(CALLER, &call(0));
        }
        machine.find_length(10, None);
        assert_eq!(machine.lengths.total(), 21);
    }
}
