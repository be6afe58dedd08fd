//! Counting, while the machine runs: the plugin's own part. Every instruction has a
//! [`Place`]; while a window is open, executing it adds one. When a window closes,
//! all that was counted is written and the places are empty again.
//!
//! Which world an instruction runs in follows from `vmrun`: behind it runs the
//! guest, until the instruction after it is executed, where #VMEXIT leads. Which
//! functions called it is kept by [`stacks`], if somebody asks.

mod chains;
mod contexts;
mod flow;
mod stacks;

pub use chains::Slot;
pub use flow::Flow;

use crate::wire::{self, Line, Window};
use stacks::{Share, Stacks};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use trapline_abi::mark;

/// The instruction that enters a guest (AMD APM volume 3).
const VMRUN: [u8; 3] = [0x0f, 0x01, 0xd8];

/// Addresses from here on are a kernel's.
const KERNEL: u64 = 1 << 63;

/// What an instruction means to the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Ordinary,
    Turn(Flow),
    Begin,
    End,
    Enter,
    Leave,
}

/// An instruction at its address.
#[derive(Debug)]
pub struct Place {
    address: u64,
    /// The address behind it.
    behind: u64,
    role: Role,
    /// Executions in this window: on the machine itself, in a guest.
    counts: [AtomicU64; 2],
    share: Share,
}

impl Place {
    /// Whether it stores or loads a return address.
    pub fn flow(&self) -> Option<Flow> {
        match self.role {
            Role::Turn(flow) => Some(flow),
            _ => None,
        }
    }
}

/// All places, and where the machine is.
pub struct Tally {
    in_guest: AtomicBool,
    counting: AtomicBool,
    stacks: Stacks,
    known: Mutex<Option<Known>>,
}

#[derive(Default)]
struct Known {
    /// By address, and by where its byte really is: guest and VMM may use the
    /// same addresses.
    places: HashMap<(u64, usize), &'static Place>,
    /// Where #VMEXIT leads.
    leaves: HashSet<u64>,
    output: Option<File>,
}

impl Tally {
    /// A machine of which nothing is known.
    pub const fn new() -> Self {
        Self {
            in_guest: AtomicBool::new(false),
            counting: AtomicBool::new(false),
            stacks: Stacks::new(),
            known: Mutex::new(None),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Known) -> T) -> T {
        let mut known: MutexGuard<'_, Option<Known>> =
            self.known.lock().unwrap_or_else(PoisonError::into_inner);
        act(known.get_or_insert_with(Known::default))
    }

    /// Windows go to `file` from here on.
    pub fn write_to(&self, file: File) {
        self.with(|known| known.output = Some(file));
    }

    /// Windows tell call paths, too. Only then need [`Self::touch`] be called.
    pub fn keep_stacks(&self) {
        self.stacks.keep();
    }

    /// Whether windows tell call paths.
    pub fn keeps_stacks(&self) -> bool {
        self.stacks.are_kept()
    }

    /// The place of an instruction that has been translated. Places are never
    /// freed: QEMU keeps them in its translations.
    pub fn place(&self, address: u64, physical: usize, bytes: &[u8]) -> &'static Place {
        self.with(|known| {
            let role = known.role(address, bytes);
            match known.places.get(&(address, physical)) {
                Some(place) if place.role == role => place,
                _ => {
                    let counts = [AtomicU64::new(0), AtomicU64::new(0)];
                    let place: &'static Place = Box::leak(Box::new(Place {
                        address,
                        behind: address.wrapping_add(bytes.len() as u64),
                        role,
                        counts,
                        share: Share::new(),
                    }));
                    known.replace((address, physical), place);
                    place
                }
            }
        })
    }

    /// Counts one execution.
    ///
    /// # Errors
    /// A window is over and cannot be written.
    pub fn count(&self, place: &Place) -> Result<(), String> {
        if place.role == Role::Leave {
            self.in_guest.store(false, Relaxed);
        }
        let in_guest = self.in_guest.load(Relaxed);
        self.stacks.reach(place.address, in_guest);
        match place.role {
            Role::Ordinary | Role::Turn(_) | Role::Leave => self.add(place),
            Role::Enter => {
                self.add(place);
                self.in_guest.store(true, Relaxed);
            }
            Role::Begin => self.open(),
            Role::End => return self.close(),
        }
        Ok(())
    }

    /// A place with a [`Place::flow`] has stored or loaded a return address in
    /// `slot`.
    pub fn touch(&self, place: &Place, slot: Slot) {
        if let Some(flow) = place.flow() {
            self.stacks.turn(flow, place.address, place.behind, slot);
        }
    }

    fn add(&self, place: &Place) {
        if self.counting.load(Relaxed) {
            let count = &place.counts[usize::from(self.in_guest.load(Relaxed))];
            // One thread writes: no atomic addition is needed.
            count.store(count.load(Relaxed) + 1, Relaxed);
            self.stacks.count(place);
        }
    }

    fn open(&self) {
        self.counting.store(true, Relaxed);
        self.stacks.open();
    }

    fn close(&self) -> Result<(), String> {
        if !self.counting.swap(false, Relaxed) {
            return Ok(());
        }
        self.with(|known| {
            let places = known.places.values().copied();
            let text = wire::write(&Window {
                contexts: self.stacks.close(places),
                lines: known.take_lines(),
            });
            match &mut known.output {
                Some(file) => file.write_all(text.as_bytes()),
                None => Ok(()),
            }
        })
        .map_err(|error| format!("a window cannot be written: {error}"))
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

impl Known {
    fn role(&mut self, address: u64, bytes: &[u8]) -> Role {
        let in_kernel = address >= KERNEL;
        if in_kernel && bytes == VMRUN {
            self.leaves.insert(address + VMRUN.len() as u64);
            return Role::Enter;
        }
        if in_kernel && self.leaves.contains(&address) {
            return Role::Leave;
        }
        match mark::kind(bytes) {
            Some(mark::BEGIN) => Role::Begin,
            Some(mark::END) => Role::End,
            _ => flow::of(bytes).map_or(Role::Ordinary, Role::Turn),
        }
    }

    /// A place whose bytes have changed gives way to a new one; what it has
    /// counted stays, under a key that no instruction has.
    fn replace(&mut self, key: (u64, usize), place: &'static Place) {
        if let Some(old) = self.places.insert(key, place) {
            let unused = std::ptr::from_ref(old) as usize;
            self.places.insert((key.0, unused), old);
        }
    }

    /// What was counted, in an order that does not depend on that of translation.
    fn take_lines(&mut self) -> Vec<Line> {
        let mut sums: BTreeMap<(bool, u64), (u64, bool)> = BTreeMap::new();
        for place in self.places.values() {
            for (count, in_guest) in place.counts.iter().zip([false, true]) {
                let count = count.swap(0, Relaxed);
                if count != 0 {
                    let sum = sums.entry((in_guest, place.address)).or_default();
                    sum.0 += count;
                    sum.1 |= place.role == Role::Leave;
                }
            }
        }
        let lines = sums.into_iter();
        lines
            .map(|((in_guest, address), (count, leaves))| Line {
                in_guest,
                address,
                count,
                leaves,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};

    const NOP: [u8; 1] = [0x90];
    const BEGIN: [u8; 8] = [0x0f, 0x1f, 0x84, 0, mark::BEGIN, 0, 0x70, 0x7a];
    const END: [u8; 8] = [0x0f, 0x1f, 0x84, 0, mark::END, 0, 0x70, 0x7a];

    /// A tally, and what it writes when `run` has let it count.
    fn windows(run: impl FnOnce(&Tally)) -> Vec<wire::Window> {
        let tally = Tally::new();
        let mut file = tempfile::tempfile().unwrap();
        tally.write_to(file.try_clone().unwrap());
        run(&tally);
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        wire::read(&text).unwrap()
    }

    fn step(tally: &Tally, address: u64, bytes: &[u8]) {
        let place = tally.place(address, address as usize, bytes);
        tally.count(place).unwrap();
    }

    #[test]
    fn only_what_is_between_the_marks_is_counted_and_each_window_anew() {
        let found = windows(|tally| {
            for _ in 0..2 {
                step(tally, 0x10, &NOP);
                step(tally, 0x11, &BEGIN);
                step(tally, 0x20, &NOP);
                step(tally, 0x19, &NOP);
                step(tally, 0x20, &NOP);
                step(tally, 0x21, &END);
            }
            step(tally, 0x21, &END);
        });
        let told: Vec<_> = found[0]
            .lines
            .iter()
            .map(|l| (l.address, l.count))
            .collect();
        assert_eq!(told, [(0x19, 1), (0x20, 2)]);
        assert_eq!(found.len(), 2, "an end without a beginning is no window");
        assert_eq!(found[0], found[1]);
    }

    #[test]
    fn behind_vmrun_runs_the_guest_until_the_machine_is_left_to() {
        let found = windows(|tally| {
            step(tally, KERNEL, &VMRUN);
            step(tally, 0x11, &BEGIN);
            step(tally, 0x20, &NOP);
            step(tally, KERNEL + 3, &NOP);
            step(tally, 0x20, &NOP);
            step(tally, KERNEL, &VMRUN);
            step(tally, 0x21, &END);
        });
        let lines = &found[0].lines;
        let told: Vec<_> = lines
            .iter()
            .map(|l| (l.in_guest, l.address, l.leaves))
            .collect();
        let expected = [
            (false, 0x20, false),
            (false, KERNEL, false),
            (false, KERNEL + 3, true),
            (true, 0x20, false),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn an_instruction_that_changed_keeps_what_it_had_counted() {
        let found = windows(|tally| {
            step(tally, 0x11, &BEGIN);
            step(tally, 0x20, &NOP);
            step(tally, 0x20, &END);
        });
        assert_eq!(found[0].lines[0].count, 1);
    }

    /// A call, its target, and the return, between the marks; with a system call.
    fn work(tally: &Tally) {
        let call = [0xe8, 0, 0, 0, 0];
        let slot = Slot {
            address: 0x800,
            physical: 0x800,
        };
        let touch = |address, bytes: &[u8]| {
            step(tally, address, bytes);
            tally.touch(tally.place(address, address as usize, bytes), slot);
        };
        step(tally, 0x11, &BEGIN);
        for _ in 0..3 {
            touch(0x20, &call);
            step(tally, 0x30, &NOP);
            step(tally, KERNEL, &NOP);
            touch(0x31, &[0xc3]);
            step(tally, 0x25, &NOP);
        }
        step(tally, 0x26, &END);
    }

    #[test]
    fn stacks_are_told_if_asked_for_and_hold_all_that_was_counted() {
        let told = windows(|tally| {
            tally.keep_stacks();
            work(tally);
            work(tally);
        });
        assert_eq!(told[0], told[1], "a window knows nothing of the one before");
        let paths: Vec<_> = told[0]
            .contexts
            .iter()
            .map(|context| (context.depth, context.counts.clone()))
            .collect();
        let expected = [
            (0, vec![(0x20, 3), (0x25, 3)]),
            (1, vec![(0x30, 3), (0x31, 3)]),
            (2, vec![(KERNEL, 3)]),
        ];
        assert_eq!(paths, expected);
        let without = windows(work);
        assert_eq!(without[0].lines, told[0].lines);
        assert_eq!(without[0].contexts, []);
    }

    #[test]
    fn an_access_of_a_later_instruction_is_not_taken_for_that_of_a_call() {
        let told = windows(|tally| {
            tally.keep_stacks();
            step(tally, 0x11, &BEGIN);
            let call = tally.place(0x20, 0x20, &[0xe8, 0, 0, 0, 0]);
            step(tally, 0x20, &[0xe8, 0, 0, 0, 0]);
            step(tally, 0x21, &NOP);
            let (address, physical) = (0x700, 0x700);
            tally.touch(call, Slot { address, physical });
            step(tally, 0x22, &NOP);
            step(tally, 0x23, &END);
        });
        assert_eq!(told[0].contexts.len(), 1, "{told:?}");
    }
}
