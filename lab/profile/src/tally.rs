//! Counting, while the machine runs: the plugin's own part. Every instruction has a
//! [`Place`]; while a window is open, executing it adds one. When a window closes,
//! all that was counted in it is written. There are windows of two kinds, which do
//! not know of each other: around a batch, and from one stage of a start to the next.
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

use crate::charge::{Charges, Shape};
use crate::wire::{self, Astray, Line, Span, Window};
use crate::worlds::{Machine, Space};
use stacks::{Share, Stacks};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use trapline_abi::{mark, Stage};

/// The instruction that enters a guest (AMD APM volume 3).
const VMRUN: [u8; 3] = [0x0f, 0x01, 0xd8];

/// The kinds of windows, as places in arrays.
const BATCH: usize = 0;
const STAGE: usize = 1;

/// The number of no stage.
const NO_STAGE: u8 = u8::MAX;

/// What an instruction means to the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Ordinary,
    Turn(Flow),
    Begin,
    End,
    Enter,
    Leave,
    Reach(Stage),
}

/// An instruction at its address.
#[derive(Debug)]
pub struct Place {
    address: u64,
    /// The address behind it.
    behind: u64,
    role: Role,
    shape: Shape,
    /// What its page holds, where that says whose it is.
    page: Option<u64>,
    /// Executions in the window of each kind: on the machine itself, in a guest.
    counts: [[AtomicU64; 2]; 2],
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

/// An instruction that has been translated.
#[derive(Clone, Copy, Debug)]
pub struct Insn<'a> {
    /// Its virtual address.
    pub address: u64,
    /// Where its first byte really is.
    pub physical: usize,
    /// It.
    pub bytes: &'a [u8],
    /// Whether it is the last of its block.
    pub ends: bool,
    /// [`page::fingerprint`](crate::page::fingerprint) of the page that it is in,
    /// where [`Tally::asks_page`].
    pub page: Option<u64>,
}

/// All places, and where the machine is.
pub struct Tally {
    has_xen: AtomicBool,
    in_guest: AtomicBool,
    in_batch: AtomicBool,
    /// The stage that was reached last, in a start that is watched.
    stage: AtomicU8,
    charges: Charges,
    stacks: Stacks,
    known: Mutex<Option<Known>>,
}

#[derive(Default)]
struct Known {
    /// By address; by where its byte really is, for guest and VMM may use the same
    /// addresses; and by whether it is the last of a block.
    places: HashMap<Key, &'static Place>,
    /// Where #VMEXIT leads.
    leaves: HashSet<u64>,
    output: Option<File>,
}

type Key = (u64, usize, bool);

impl Tally {
    /// A machine of which nothing is known.
    pub const fn new() -> Self {
        Self {
            has_xen: AtomicBool::new(false),
            in_guest: AtomicBool::new(false),
            in_batch: AtomicBool::new(false),
            stage: AtomicU8::new(NO_STAGE),
            charges: Charges::new(),
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

    /// The machine has a Xen.
    pub fn expect_xen(&self) {
        self.has_xen.store(true, Relaxed);
    }

    fn machine(&self) -> Machine {
        match self.has_xen.load(Relaxed) {
            true => Machine::Xen,
            false => Machine::Linux,
        }
    }

    /// Whether what the page of an instruction holds is to be told. The first domain of
    /// a Xen has many programs, which lie at the same addresses.
    pub fn asks_page(&self, address: u64) -> bool {
        self.has_xen.load(Relaxed) && self.machine().space(false, address) == Space::User
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
    pub fn place(&self, insn: &Insn<'_>) -> &'static Place {
        let Insn { address, page, .. } = *insn;
        let machine = self.machine();
        self.with(|known| {
            let role = known.role(machine.is_privileged(address), address, insn.bytes);
            let shape = Shape::of(machine, address, insn.bytes, insn.ends);
            let key = (address, insn.physical, insn.ends);
            let is_it =
                |place: &Place| (place.role, place.shape, place.page) == (role, shape, page);
            match known.places.get(&key) {
                Some(place) if is_it(place) => place,
                _ => {
                    let place: &'static Place = Box::leak(Box::new(Place {
                        address,
                        behind: address.wrapping_add(insn.bytes.len() as u64),
                        role,
                        shape,
                        page,
                        counts: Default::default(),
                        share: Share::new(),
                    }));
                    known.replace(key, place);
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
            // A mark is in no batch, but in its stage; that of a stage in the one that
            // it begins.
            Role::Begin => {
                self.add(place);
                return self.begin_batch();
            }
            Role::End => {
                let closed = self.end_batch();
                self.add(place);
                return closed;
            }
            Role::Reach(stage) => {
                let closed = self.reach(stage);
                self.add(place);
                return closed;
            }
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

    /// Which windows are open.
    fn open(&self) -> [bool; 2] {
        let in_stage = self.stage.load(Relaxed) != NO_STAGE;
        [self.in_batch.load(Relaxed), in_stage]
    }

    fn add(&self, place: &Place) {
        let open = self.open();
        if open == [false; 2] {
            return;
        }
        let in_guest = self.in_guest.load(Relaxed);
        for (counts, _) in place.counts.iter().zip(open).filter(|(_, open)| *open) {
            let count = &counts[usize::from(in_guest)];
            // One thread writes: no atomic addition is needed.
            count.store(count.load(Relaxed) + 1, Relaxed);
        }
        if open[BATCH] {
            self.stacks.count(place);
        }
        if in_guest {
            self.charges.in_guest(place.shape, open);
        } else {
            let leaves = place.role == Role::Leave;
            self.charges.on_machine(place.shape, leaves, open);
        }
    }

    fn watch_anew(&self) {
        if self.open() == [false; 2] {
            self.charges.forget();
        }
    }

    fn begin_batch(&self) -> Result<(), String> {
        self.watch_anew();
        let nested = self.in_batch.swap(true, Relaxed);
        self.stacks.open();
        match nested {
            true => self.write(Astray::Nested.line()),
            false => Ok(()),
        }
    }

    fn end_batch(&self) -> Result<(), String> {
        match self.in_batch.swap(false, Relaxed) {
            true => self.close(BATCH, Span::Batch),
            false => self.write(Astray::Unbegun.line()),
        }
    }

    /// A start is watched from its exec until it is reaped. One that was never
    /// reaped is forgotten with the next.
    fn reach(&self, stage: Stage) -> Result<(), String> {
        self.watch_anew();
        let number = usize::from(self.stage.load(Relaxed));
        match Stage::ALL.get(number) {
            Some(_) if stage == Stage::Exec => drop(self.take(STAGE)),
            Some(before) => self.close(STAGE, Span::Stage(*before, stage))?,
            None if stage == Stage::Exec => {}
            None => return Ok(()),
        }
        let next = match stage {
            Stage::Reaped => NO_STAGE,
            _ => stage as u8,
        };
        self.stage.store(next, Relaxed);
        Ok(())
    }

    /// What was counted in the window of this kind.
    fn take(&self, kind: usize) -> Vec<Line> {
        let mut uncharged = self.charges.take(kind);
        let mut lines = self.with(|known| known.take_lines(kind));
        for line in lines.iter_mut().filter(|line| !line.in_guest) {
            line.uncharged = uncharged.remove(&line.address).unwrap_or(0);
        }
        lines
    }

    fn close(&self, kind: usize, span: Span) -> Result<(), String> {
        let lines = self.take(kind);
        let contexts = self.with(|known| match span {
            Span::Batch => self.stacks.close(known.places.values().copied()),
            Span::Stage(..) => Vec::new(),
        });
        self.write(&wire::write(&Window {
            span,
            lines,
            contexts,
        }))
    }

    /// Writes a line that is no window's.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, text: &str) -> Result<(), String> {
        self.with(|known| match &mut known.output {
            Some(file) => file.write_all(text.as_bytes()),
            None => Ok(()),
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
    fn role(&mut self, is_privileged: bool, address: u64, bytes: &[u8]) -> Role {
        if is_privileged && bytes == VMRUN {
            self.leaves.insert(address + VMRUN.len() as u64);
            return Role::Enter;
        }
        if is_privileged && self.leaves.contains(&address) {
            return Role::Leave;
        }
        match mark::kind(bytes) {
            Some(mark::BEGIN) => Role::Begin,
            Some(mark::END) => Role::End,
            _ => match mark::stage(bytes) {
                Some(stage) => Role::Reach(stage),
                None => flow::of(bytes).map_or(Role::Ordinary, Role::Turn),
            },
        }
    }

    /// A place whose bytes have changed gives way to a new one; what it has
    /// counted stays, under a key that no instruction has.
    fn replace(&mut self, key: Key, place: &'static Place) {
        if let Some(old) = self.places.insert(key, place) {
            let unused = std::ptr::from_ref(old) as usize;
            self.places.insert((key.0, unused, key.2), old);
        }
    }

    /// What was counted, in an order that does not depend on that of translation.
    fn take_lines(&mut self, kind: usize) -> Vec<Line> {
        // Whose, where, and in what page; how often, whether it leaves, and halts.
        type Sums = BTreeMap<(bool, u64, Option<u64>), (u64, bool, bool)>;
        let mut sums = Sums::new();
        for place in self.places.values() {
            for (count, in_guest) in place.counts[kind].iter().zip([false, true]) {
                let count = count.swap(0, Relaxed);
                if count != 0 {
                    let page = place.page.filter(|_| !in_guest);
                    let sum = sums.entry((in_guest, place.address, page)).or_default();
                    sum.0 += count;
                    sum.1 |= place.role == Role::Leave;
                    sum.2 |= !in_guest && place.shape.halts();
                }
            }
        }
        let lines = sums.into_iter();
        lines
            .map(|((in_guest, address, page), (count, leaves, halts))| Line {
                in_guest,
                address,
                page,
                count,
                uncharged: 0,
                leaves,
                halts,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
