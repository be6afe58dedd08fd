//! What the machine's clock does not charge: an instruction that was begun and
//! could not be completed. It is seen when it begins, and again when it is tried
//! once more.
//!
//! What was begun is told from what comes next. A fault of data leads from the
//! instruction itself into the kernel, and back to the same instruction; where only
//! the *next* instruction could not be fetched, the one before was completed. The
//! same holds for a guest that is left: by what it did, or because an interrupt
//! came or a page of its code was not there yet. Only behind the last instruction
//! of a block of translation can anything but the instruction itself be the reason.
//!
//! An instruction that QEMU refuses when it translates it, because whoever executes it
//! has no privilege, is charged like one that was completed.

use crate::worlds::{Machine, Space};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is known of an instruction, beside its length in the lowest byte.
const KNOWN: u64 = 1 << 8;
/// It is the last of its block.
const ENDS: u64 = 1 << 9;
/// A hypervisor may take it.
const INTERCEPTED: u64 = 1 << 10;
/// Anything may follow.
const JUMP: u64 = 1 << 11;
/// The kernel follows.
const CALLS_KERNEL: u64 = 1 << 12;
/// What was interrupted follows.
const RETURNS: u64 = 1 << 13;
/// Nothing follows before an interrupt.
const HALTS: u64 = 1 << 14;
/// It takes privilege.
const REFUSED: u64 = 1 << 17;
/// It is executed by who owns the machine.
const PRIVILEGED: u64 = 1 << 15;
/// It is a program's.
const PROGRAM: u64 = 1 << 16;

/// An instruction as far as what follows it can be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    address: u64,
    traits: u64,
}

impl Shape {
    /// The instruction of these bytes on a machine; `ends` if it is the last of its
    /// block.
    pub fn of(machine: Machine, address: u64, bytes: &[u8], ends: bool) -> Self {
        let privileged = machine.is_privileged(address);
        let program = machine.space(false, address) == Space::User;
        let further = [(ends, ENDS), (privileged, PRIVILEGED), (program, PROGRAM)];
        let further = further.into_iter().filter(|(is, _)| *is);
        let further = further.fold(0, |all, (_, bit)| all | bit);
        Self {
            address,
            traits: KNOWN | bytes.len() as u64 | way(bytes) | further,
        }
    }

    /// Whether it is a way to let the machine sleep until an interrupt.
    pub fn halts(self) -> bool {
        self.is(PRIVILEGED) && self.is(HALTS)
    }

    fn is(self, wanted: u64) -> bool {
        self.traits & wanted != 0
    }

    /// Whether `next` is where this goes by itself.
    fn goes_to(self, next: u64) -> bool {
        self.is(JUMP | RETURNS)
            || next == self.address
            || next == self.address.wrapping_add(self.traits & 0xff)
    }

    /// Whether nothing but this very instruction can be why another came next.
    fn is_the_reason(self) -> bool {
        !self.is(ENDS) || self.is(INTERCEPTED)
    }
}

/// Opcodes after prefixes (Intel SDM volume 2, appendix A). What a guest's
/// hypervisor takes is what KVM and Xen intercept on AMD with nested paging: ports, hlt,
/// cpuid, model-specific registers, control registers but CR3, hypercalls.
fn way(bytes: &[u8]) -> u64 {
    let is_prefix = |byte: &&u8| matches!(**byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    let prefixes = bytes.iter().take_while(is_prefix).count();
    match bytes.get(prefixes..).unwrap_or_default() {
        [0x6c..=0x6f | 0xe4..=0xe7 | 0xec..=0xef, ..] => INTERCEPTED,
        [0xf4, ..] => INTERCEPTED | HALTS | REFUSED,
        [0x0f, 0x30 | 0x32, ..] => INTERCEPTED | REFUSED,
        [0x0f, 0xa2, ..] | [0x0f, 0x01, 0xc1 | 0xd9, ..] => INTERCEPTED,
        [0x0f, 0x20 | 0x22, register, ..] if register >> 3 & 7 != 3 => INTERCEPTED | REFUSED,
        [0x0f, 0x06 | 0x08 | 0x09 | 0x20..=0x23, ..] | [0xfa | 0xfb, ..] => REFUSED,
        [0x0f, 0x05 | 0x34, ..] | [0xcd, ..] => CALLS_KERNEL,
        [0xcf, ..] => RETURNS,
        [0x0f, 0x07 | 0x35 | 0x80..=0x8f, ..] => JUMP,
        [0x70..=0x7f | 0xc2 | 0xc3 | 0xca | 0xcb | 0x9a | 0xea, ..] => JUMP,
        [0xe0..=0xe3 | 0xe8 | 0xe9 | 0xeb, ..] => JUMP,
        [0xff, operand, ..] if matches!(operand >> 3 & 7, 2..=5) => JUMP,
        _ => 0,
    }
}

/// The instruction before, in one world. One thread writes.
struct Last {
    address: AtomicU64,
    traits: AtomicU64,
}

impl Last {
    const fn none() -> Self {
        Self {
            address: AtomicU64::new(0),
            traits: AtomicU64::new(0),
        }
    }

    fn replace(&self, shape: Shape) -> Shape {
        let before = Shape {
            address: self.address.load(Relaxed),
            traits: self.traits.load(Relaxed),
        };
        self.address.store(shape.address, Relaxed);
        self.traits.store(shape.traits, Relaxed);
        before
    }

    fn forget(&self) -> Shape {
        let nothing = Shape {
            address: 0,
            traits: 0,
        };
        self.replace(nothing)
    }
}

/// Where the kernel was entered, and from where if that decides: if the same
/// instruction comes next, it was not completed.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    entered: u64,
    retried: Option<u64>,
}

#[derive(Default)]
struct Found {
    /// Faults and interrupts of programs, the innermost last.
    traps: Vec<Doubt>,
    exit: Option<Doubt>,
    /// Instructions that were not charged, by where they led to, for each kind of
    /// window.
    sums: [BTreeMap<u64, u64>; 2],
}

/// Follows what is executed and finds what is not charged.
pub struct Charges {
    machine: Last,
    guest: Last,
    doubts_exit: AtomicBool,
    found: Mutex<Option<Found>>,
}

impl Charges {
    /// Nothing has been executed.
    pub const fn new() -> Self {
        Self {
            machine: Last::none(),
            guest: Last::none(),
            doubts_exit: AtomicBool::new(false),
            found: Mutex::new(None),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Found) -> T) -> T {
        let mut found: MutexGuard<'_, Option<Found>> =
            self.found.lock().unwrap_or_else(PoisonError::into_inner);
        act(found.get_or_insert_with(Found::default))
    }

    /// What follows is not what came before: nobody watched for a while.
    pub fn forget(&self) {
        self.machine.forget();
        self.guest.forget();
        self.doubts_exit.store(false, Relaxed);
        self.with(|found| *found = Found::default());
    }

    /// What was not charged in the window of this kind, by where it led to.
    pub fn take(&self, kind: usize) -> BTreeMap<u64, u64> {
        self.with(|found| std::mem::take(&mut found.sums[kind]))
    }

    /// An instruction was executed behind others that needed no look: each of them went
    /// where it goes by itself.
    pub fn reached(&self, shape: Shape, in_guest: bool) {
        match in_guest {
            true => self.guest.replace(shape),
            false => self.machine.replace(shape),
        };
    }

    /// How many were not charged so far in the window of this kind.
    pub fn so_far(&self, kind: usize) -> u64 {
        self.with(|found| found.sums[kind].values().sum())
    }

    /// A guest executes an instruction. `open` says which windows count it.
    pub fn in_guest(&self, shape: Shape, open: [bool; 2]) {
        self.guest.replace(shape);
        if self.doubts_exit.load(Relaxed) {
            self.doubts_exit.store(false, Relaxed);
            self.with(|found| {
                let doubt = found.exit.take();
                found.resolve(doubt, shape.address, open);
            });
        }
    }

    /// The machine executes an instruction; `leaves` if a guest was left to it.
    pub fn on_machine(&self, shape: Shape, leaves: bool, open: [bool; 2]) {
        let last = self.machine.replace(shape);
        if leaves {
            self.left(self.guest.forget(), shape.address, open);
        } else if shape.is(PRIVILEGED) && last.is(KNOWN) && is_trap(last, shape.address) {
            self.trapped(last, shape.address, open);
        } else if shape.is(PROGRAM) && last.is(RETURNS) {
            self.returned(shape.address, open);
        }
    }

    fn left(&self, last: Shape, entered: u64, open: [bool; 2]) {
        if !last.is(KNOWN) {
            // It did nothing: its first instruction could not be fetched.
            return;
        }
        if last.is_the_reason() {
            self.with(|found| found.add(entered, open));
        } else {
            let retried = Some(last.address);
            self.with(|found| found.exit = Some(Doubt { entered, retried }));
            self.doubts_exit.store(true, Relaxed);
        }
    }

    fn trapped(&self, last: Shape, entered: u64, open: [bool; 2]) {
        if last.is(REFUSED) && !last.is(PRIVILEGED) {
            return;
        }
        // A kernel's own code is always there.
        let certain = !last.is(PROGRAM) || last.is_the_reason();
        self.with(|found| {
            if certain {
                found.add(entered, open);
            }
            if last.is(PROGRAM) {
                let retried = (!certain).then_some(last.address);
                found.traps.push(Doubt { entered, retried });
            }
        });
    }

    fn returned(&self, to: u64, open: [bool; 2]) {
        self.with(|found| {
            let doubt = found.traps.pop();
            found.resolve(doubt, to, open);
        });
    }
}

/// Whether the privileged code at `entered` was not where `last` goes by itself.
fn is_trap(last: Shape, entered: u64) -> bool {
    match last.is(PRIVILEGED) {
        true => !last.goes_to(entered),
        false => !last.is(CALLS_KERNEL),
    }
}

impl Found {
    fn resolve(&mut self, doubt: Option<Doubt>, next: u64, open: [bool; 2]) {
        if let Some(doubt) = doubt.filter(|doubt| doubt.retried == Some(next)) {
            self.add(doubt.entered, open);
        }
    }

    fn add(&mut self, entered: u64, open: [bool; 2]) {
        for (sums, open) in self.sums.iter_mut().zip(open) {
            if open {
                *sums.entry(entered).or_default() += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worlds::KERNEL;

    const OPEN: [bool; 2] = [true, false];
    const HANDLER: u64 = KERNEL + 0x100;
    const MOV: [u8; 2] = [0x88, 0x07];
    const CALL: [u8; 2] = [0xff, 0xd0];
    const IRET: [u8; 2] = [0x48, 0xcf];
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    const OUT: [u8; 1] = [0xee];

    /// What is not charged when these are executed on the machine, by where it led.
    fn on_machine(steps: &[(u64, &[u8], bool)]) -> Vec<(u64, u64)> {
        let charges = Charges::new();
        for &(address, bytes, ends) in steps {
            charges.on_machine(Shape::of(Machine::Linux, address, bytes, ends), false, OPEN);
        }
        assert!(charges.take(1).is_empty(), "that window is not open");
        charges.take(0).into_iter().collect()
    }

    #[test]
    fn an_instruction_that_is_tried_again_was_not_charged() {
        let again = [
            (0x10, &MOV[..], true),
            (HANDLER, &MOV[..], false),
            (HANDLER + 2, &IRET, true),
            (0x10, &MOV, true),
        ];
        assert_eq!(on_machine(&again), [(HANDLER, 1)]);
        let in_the_middle = [(0x10, &MOV[..], false), (HANDLER, &MOV[..], false)];
        assert_eq!(on_machine(&in_the_middle), [(HANDLER, 1)]);
    }

    #[test]
    fn a_call_of_code_that_is_not_there_yet_was_completed() {
        let fetch = [
            (0x10, &CALL[..], true),
            (HANDLER, &MOV[..], false),
            (HANDLER + 2, &IRET, true),
            (0x5000, &MOV, false),
        ];
        assert_eq!(on_machine(&fetch), []);
    }

    #[test]
    fn the_kernel_copies_and_faults_but_jumps_where_it_likes() {
        let copy = [
            (KERNEL, &[0xf3, 0xa4][..], true),
            (HANDLER, &MOV[..], false),
        ];
        assert_eq!(on_machine(&copy), [(HANDLER, 1)]);
        let jump = [(KERNEL, &CALL[..], true), (HANDLER, &MOV[..], false)];
        assert_eq!(on_machine(&jump), []);
        let call = [(0x10, &SYSCALL[..], true), (HANDLER, &MOV[..], false)];
        assert_eq!(on_machine(&call), []);
    }

    /// What is not charged when a guest executes `last` and is left, and then goes
    /// on at `next`.
    fn left_after(last: Option<Shape>, next: u64) -> u64 {
        let charges = Charges::new();
        if let Some(last) = last {
            charges.in_guest(last, OPEN);
        }
        charges.on_machine(Shape::of(Machine::Linux, KERNEL, &MOV, false), true, OPEN);
        charges.in_guest(Shape::of(Machine::Linux, next, &MOV, false), OPEN);
        charges.take(0).values().sum()
    }

    #[test]
    fn a_guest_is_left_by_what_it_does_or_in_between() {
        let out = Shape::of(Machine::Linux, 0x20, &OUT, true);
        assert_eq!(left_after(Some(out), 0x21), 1, "intercepted");
        let store = Shape::of(Machine::Linux, 0x20, &MOV, false);
        assert_eq!(left_after(Some(store), 0x22), 1, "emulated");
        let store = Shape::of(Machine::Linux, 0x20, &MOV, true);
        assert_eq!(left_after(Some(store), 0x20), 1, "its page was not there");
        assert_eq!(left_after(Some(store), 0x22), 0, "an interrupt");
        assert_eq!(left_after(None, 0x20), 0, "nothing was executed");
    }

    #[test]
    fn the_first_domain_of_xen_is_refused_and_tries_again_like_a_program() {
        let xen = crate::worlds::XEN.start;
        let charged = |last: &[u8], ends| {
            let charges = Charges::new();
            let steps = [(HANDLER, last, ends), (xen, &MOV[..], false)];
            for (address, bytes, ends) in steps {
                let shape = Shape::of(Machine::Xen, address, bytes, ends);
                charges.on_machine(shape, false, OPEN);
            }
            charges.take(0).is_empty()
        };
        assert!(charged(&SYSCALL, true), "a hypercall");
        assert!(!charged(&MOV, false), "a write to a page table");
        assert!(!charged(&OUT, true), "a port");
        let (wrmsr, clts) = ([0x0f, 0x30], [0x0f, 0x06]);
        assert!(charged(&wrmsr, true) && charged(&clts, true), "refused");
    }

    #[test]
    fn instructions_are_known_from_their_bytes() {
        let told: Vec<_> = [
            &[0xf3, 0x6c][..],
            &[0x66, 0xed],
            &[0x0f, 0x20, 0xc0],
            &[0x0f, 0x22, 0xd8],
            &[0x41, 0xff, 0xe3],
            &[0xff, 0xc0],
            &[0x48, 0xcf],
            &[0x41],
        ]
        .map(way)
        .into();
        let expected = [
            INTERCEPTED,
            INTERCEPTED,
            INTERCEPTED | REFUSED,
            REFUSED,
            JUMP,
            0,
            RETURNS,
            0,
        ];
        assert_eq!(told, expected);
    }
}
