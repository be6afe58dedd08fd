//! Instructions that began and did not retire, so that the machine's clock does not count them.
//! The plugin sees them when they begin, and again when they are retried.
//!
//! The successor of an instruction shows whether it retired. A data fault leads into the
//! kernel and back to the same instruction; if only the *next* instruction could not be fetched,
//! this one retired. The same holds for a guest that exits: because of its instruction, because
//! of an interrupt, or because a page of its code is absent. Only after the last instruction of
//! a translation block can anything but the instruction itself be the cause.
//!
//! In a guest that is a process a trap may lead to the handler of signals first, and the VMM decides where the guest
//! continues: at the instruction, or at the guest's own handler, which returns to the instruction. The guest handles
//! one signal at a time, so its last trap stays pending until then.
//!
//! An instruction that QEMU refuses at translation, for lack of privilege, counts as retired.

use crate::insn::InsnTraits;
use crate::levels::MAX_LEVELS;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use trapline_abi::platform::{HYPERCALL_ENTRY, PAGE};

/// The window kinds that are open.
pub type OpenWindows = [bool; 2];

/// Last instruction of one level. Only one thread writes.
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
    entry: CodeAddress,
    /// Address of the last instruction before it.
    last: u64,
    retried: Option<u64>,
}

/// Traps of one level that are not resolved.
#[derive(Default)]
struct LevelState {
    /// Faults and interrupts of programs, the innermost last.
    traps: Vec<PendingTrap>,
    /// Last trap that led to the handler of signals of a guest that is a process.
    signal: Option<PendingTrap>,
    exit: Option<PendingTrap>,
}

#[derive(Default)]
struct State {
    levels: [LevelState; MAX_LEVELS],
    /// Unretired instructions by the level and address they led to, for each window kind.
    sums: [BTreeMap<CodeAddress, u64>; 2],
}

/// Level of virtualization and virtual address.
pub type CodeAddress = (u8, u64);

/// Tracks execution and counts instructions that did not retire.
pub struct Retirement {
    last: [LastInsn; MAX_LEVELS],
    is_exit_pending: [AtomicBool; MAX_LEVELS],
    state: Mutex<Option<State>>,
}

impl Retirement {
    /// Creates a tracker of a machine that has executed nothing.
    pub const fn new() -> Self {
        Self {
            last: [const { LastInsn::none() }; MAX_LEVELS],
            is_exit_pending: [const { AtomicBool::new(false) }; MAX_LEVELS],
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
        for (last, is_exit_pending) in self.last.iter().zip(&self.is_exit_pending) {
            last.take();
            is_exit_pending.store(false, Relaxed);
        }
        self.with(|state| *state = State::default());
    }

    /// Removes and returns the counts of a window kind, by the code that execution led to.
    pub fn take(&self, kind: usize) -> BTreeMap<CodeAddress, u64> {
        self.with(|state| std::mem::take(&mut state.sums[kind]))
    }

    /// Returns the number of unretired instructions in the open window of a kind.
    pub fn unretired(&self, kind: usize) -> u64 {
        self.with(|state| state.sums[kind].values().sum())
    }

    /// Records `insn` as the last one at `level` after a sequence without traps.
    pub fn skip_to(&self, insn: InsnTraits, level: u8) {
        self.last[usize::from(level)].replace(insn);
    }

    /// Records an instruction of the innermost guest, at `level`.
    pub fn execute_in_guest(&self, insn: InsnTraits, level: u8, open: OpenWindows) {
        self.last[usize::from(level)].replace(insn);
        self.resolve_exit(insn, level, open);
    }

    /// Records an instruction of a Linux or hypervisor at `level`; `exited` is the level that a
    /// physical #VMEXIT led from, if one led to it.
    pub fn execute_on_host(
        &self,
        insn: InsnTraits,
        level: u8,
        exited: Option<u8>,
        open: OpenWindows,
    ) {
        let last = self.last[usize::from(level)].replace(insn);
        self.resolve_exit(insn, level, open);
        let entry = (level, insn.address);
        if let Some(exited) = exited {
            self.exit(exited, entry, open);
        } else if insn.is_privileged() && last.is_known() && last.traps_to(insn.address) {
            self.trap(last, entry, open);
        } else if insn.is_program() && last.returns_from_trap() {
            self.with(|state| state.return_to(insn.address, level, open));
        }
    }

    /// Decides whether the last instruction before an exit of `level` retired, which now
    /// continues at `insn`.
    fn resolve_exit(&self, insn: InsnTraits, level: u8, open: OpenWindows) {
        let is_pending = &self.is_exit_pending[usize::from(level)];
        if is_pending.load(Relaxed) {
            is_pending.store(false, Relaxed);
            self.with(|state| {
                let exit = state.levels[usize::from(level)].exit.take();
                state.resolve(exit, insn.address, open);
            });
        }
    }

    fn exit(&self, exited: u8, entry: CodeAddress, open: OpenWindows) {
        let exited = usize::from(exited);
        let last = self.last[exited].take();
        if !last.is_known() {
            // The guest's first instruction could not be fetched.
            return;
        }
        if last.causes_trap() {
            self.with(|state| state.add(entry, open));
        } else {
            let pending = PendingTrap {
                entry,
                last: last.address,
                retried: Some(last.address),
            };
            self.with(|state| state.levels[exited].exit = Some(pending));
            self.is_exit_pending[exited].store(true, Relaxed);
        }
    }

    fn trap(&self, last: InsnTraits, entry: CodeAddress, open: OpenWindows) {
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
                let level = &mut state.levels[usize::from(entry.0)];
                level.traps.push(PendingTrap {
                    entry,
                    last: last.address,
                    retried,
                });
            }
        });
    }
}

/// Returns whether an address is in the page with the handler of signals of a guest that is a process.
fn is_signal_handler(address: u64) -> bool {
    address / PAGE == HYPERCALL_ENTRY / PAGE
}

impl State {
    /// Records that a program continues at `address` after a trap.
    fn return_to(&mut self, address: u64, level: u8, open: OpenWindows) {
        let level = &mut self.levels[usize::from(level)];
        let trap = level.traps.pop();
        if is_signal_handler(address) {
            // Otherwise an interrupt of the handler.
            if let Some(trap) = trap.filter(|trap| !is_signal_handler(trap.last)) {
                level.signal = Some(trap);
            }
            return;
        }
        let is_retried = |trap: &PendingTrap| trap.retried == Some(address);
        let signal = level.signal.take_if(|signal| is_retried(signal));
        self.resolve(trap.filter(is_retried).or(signal), address, open);
    }

    fn resolve(&mut self, trap: Option<PendingTrap>, next: u64, open: OpenWindows) {
        if let Some(trap) = trap.filter(|trap| trap.retried == Some(next)) {
            self.add(trap.entry, open);
        }
    }

    fn add(&mut self, entry: CodeAddress, open: OpenWindows) {
        for (sums, is_open) in self.sums.iter_mut().zip(open) {
            if is_open {
                *sums.entry(entry).or_default() += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
