//! Instructions that began and did not retire, so that the machine's clock does not count them.
//! The plugin sees them when they begin, and again when they are retried.
//!
//! Whether an instruction retired follows from its successor. A data fault leads into the
//! kernel and back to the same instruction; if only the *next* instruction could not be fetched,
//! this one retired. The same holds for a guest that exits: because of its instruction, because
//! of an interrupt, or because a page of its code is absent. Only after the last instruction of
//! a translation block can anything but the instruction itself be the cause.
//!
//! An instruction that QEMU refuses at translation, for lack of privilege, counts as retired.

use crate::insn::InsnTraits;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The window kinds that are open.
pub type OpenWindows = [bool; 2];

/// Last instruction of one address space. Only one thread writes.
struct LastInsn {
    address: AtomicU64,
    bits: AtomicU64,
}

impl LastInsn {
    const fn none() -> Self {
        Self {
            address: AtomicU64::new(0),
            bits: AtomicU64::new(0),
        }
    }

    fn replace(&self, insn: InsnTraits) -> InsnTraits {
        let (address, bits) = (self.address.load(Relaxed), self.bits.load(Relaxed));
        self.address.store(insn.address, Relaxed);
        self.bits.store(insn.bits(), Relaxed);
        InsnTraits::from_bits(address, bits)
    }

    fn take(&self) -> InsnTraits {
        self.replace(InsnTraits::default())
    }
}

/// A trap or exit whose cause depends on where execution continues: if at `retried`, the
/// instruction there did not retire.
#[derive(Clone, Copy, Debug)]
struct PendingTrap {
    entry: u64,
    retried: Option<u64>,
}

#[derive(Default)]
struct State {
    /// Faults and interrupts of programs, the innermost last.
    traps: Vec<PendingTrap>,
    exit: Option<PendingTrap>,
    /// Unretired instructions by the address they led to, for each window kind.
    sums: [BTreeMap<u64, u64>; 2],
}

/// Tracks execution and counts instructions that did not retire.
pub struct Retirement {
    host: LastInsn,
    guest: LastInsn,
    is_exit_pending: AtomicBool,
    state: Mutex<Option<State>>,
}

impl Retirement {
    /// Creates a tracker of a machine that has executed nothing.
    pub const fn new() -> Self {
        Self {
            host: LastInsn::none(),
            guest: LastInsn::none(),
            is_exit_pending: AtomicBool::new(false),
            state: Mutex::new(None),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state: MutexGuard<'_, Option<State>> =
            self.state.lock().unwrap_or_else(PoisonError::into_inner);
        act(state.get_or_insert_with(State::default))
    }

    /// Discards all state, after a time without tracking.
    pub fn reset(&self) {
        self.host.take();
        self.guest.take();
        self.is_exit_pending.store(false, Relaxed);
        self.with(|state| *state = State::default());
    }

    /// Removes and returns the counts of a window kind, by the address that execution led to.
    pub fn take(&self, kind: usize) -> BTreeMap<u64, u64> {
        self.with(|state| std::mem::take(&mut state.sums[kind]))
    }

    /// Returns the number of unretired instructions in the open window of a kind.
    pub fn unretired(&self, kind: usize) -> u64 {
        self.with(|state| state.sums[kind].values().sum())
    }

    /// Records `insn` as the last one after a sequence without traps.
    pub fn skip_to(&self, insn: InsnTraits, in_guest: bool) {
        match in_guest {
            true => self.guest.replace(insn),
            false => self.host.replace(insn),
        };
    }

    /// Records an instruction in guest mode.
    pub fn execute_in_guest(&self, insn: InsnTraits, open: OpenWindows) {
        self.guest.replace(insn);
        if self.is_exit_pending.load(Relaxed) {
            self.is_exit_pending.store(false, Relaxed);
            self.with(|state| {
                let exit = state.exit.take();
                state.resolve(exit, insn.address, open);
            });
        }
    }

    /// Records an instruction in host mode; `after_exit` if #VMEXIT led to it.
    pub fn execute_on_host(&self, insn: InsnTraits, after_exit: bool, open: OpenWindows) {
        let last = self.host.replace(insn);
        if after_exit {
            self.exit(self.guest.take(), insn.address, open);
        } else if insn.is_privileged() && last.is_known() && last.traps_to(insn.address) {
            self.trap(last, insn.address, open);
        } else if insn.is_program() && last.returns_from_trap() {
            self.with(|state| {
                let trap = state.traps.pop();
                state.resolve(trap, insn.address, open);
            });
        }
    }

    fn exit(&self, last: InsnTraits, entry: u64, open: OpenWindows) {
        if !last.is_known() {
            // The guest's first instruction could not be fetched.
            return;
        }
        if last.causes_trap() {
            self.with(|state| state.add(entry, open));
        } else {
            let retried = Some(last.address);
            self.with(|state| state.exit = Some(PendingTrap { entry, retried }));
            self.is_exit_pending.store(true, Relaxed);
        }
    }

    fn trap(&self, last: InsnTraits, entry: u64, open: OpenWindows) {
        if last.is_refused() {
            return;
        }
        // Kernel code is always present.
        let is_certain = !last.is_program() || last.causes_trap();
        self.with(|state| {
            if is_certain {
                state.add(entry, open);
            }
            if last.is_program() {
                let retried = (!is_certain).then_some(last.address);
                state.traps.push(PendingTrap { entry, retried });
            }
        });
    }
}

impl State {
    fn resolve(&mut self, trap: Option<PendingTrap>, next: u64, open: OpenWindows) {
        if let Some(trap) = trap.filter(|trap| trap.retried == Some(next)) {
            self.add(trap.entry, open);
        }
    }

    fn add(&mut self, entry: u64, open: OpenWindows) {
        for (sums, is_open) in self.sums.iter_mut().zip(open) {
            if is_open {
                *sums.entry(entry).or_default() += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
