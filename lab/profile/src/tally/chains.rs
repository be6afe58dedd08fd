//! Who called whom, at every moment: the chain of frames of the machine, and that
//! of a guest on top of it.
//!
//! A frame is known by the word of memory that its call stored the return address
//! in. A return pops the frame of the word that it loads, and everything above
//! that. So a switch to another thread needs no rule of its own: the return that
//! ends it loads a word of the other thread's stack, whose frame remembers what it
//! was called from. Words are told apart by where they really are, because
//! programs, and guests, use the same virtual addresses.

use super::contexts::{Contexts, ROOT};
use super::flow::Flow;
use crate::wire::{Context, Kind, Step};
use crate::worlds::KERNEL;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// Stacks are farther apart than this: a page between them is never mapped.
const NEAR: u64 = 4096;

/// Frames of a chain. One that is deeper begins anew, as if nothing had called it.
const DEEPEST: u32 = 2048;

/// A word of memory that holds a return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its virtual address.
    pub address: u64,
    /// Where it really is.
    pub physical: u64,
}

/// A call or return whose other end is not yet known.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Which of the two.
    pub flow: Flow,
    /// Its address.
    pub site: u64,
    /// The address behind it.
    pub behind: u64,
    /// The word that it stored or loaded.
    pub slot: Slot,
}

/// A call that has not returned, or a kernel that was entered from a program.
#[derive(Debug)]
struct Frame {
    below: Link,
    step: Step,
    /// Of a call: the word with its return address, and that address.
    slot: u64,
    behind: u64,
    depth: u32,
    /// The path that ends here, and the round that it was found in.
    context: AtomicU64,
}

type Link = Option<Arc<Frame>>;

impl Frame {
    fn is_call(&self) -> bool {
        self.step.kind == Kind::Call
    }

    /// Of two words the upper is nearer to where its stack began.
    fn is_left_at(&self, slot: u64) -> bool {
        self.is_call() && slot >= self.slot && slot - self.slot < NEAR
    }

    fn continues_at(&self, slot: u64) -> bool {
        !self.is_call() || (slot < self.slot && self.slot - slot < NEAR)
    }
}

/// The machine itself, or the guest on it.
#[derive(Debug, Default)]
struct World {
    top: Link,
    in_kernel: bool,
    /// Its last instruction, where the other world goes on.
    last: u64,
    /// The path that its frames stand on, and the round that it holds in.
    base: u32,
    round: u32,
}

/// Both worlds, and the paths of the window that is open.
#[derive(Debug)]
pub struct Chains {
    worlds: [World; 2],
    in_guest: bool,
    slots: HashMap<u64, Arc<Frame>>,
    turn: Option<Turn>,
    contexts: Option<Contexts>,
    rounds: u32,
}

impl Chains {
    /// A machine that has executed nothing.
    pub fn new() -> Self {
        Self {
            worlds: <[World; 2]>::default(),
            in_guest: false,
            slots: HashMap::new(),
            turn: None,
            contexts: None,
            rounds: 0,
        }
    }

    /// A call has stored, or a return has loaded. Where it leads is known when
    /// the next instruction is reached.
    pub fn turn(&mut self, turn: Turn) {
        self.turn = Some(turn);
    }

    /// The next instruction is at `address`; the one before it was at `last`.
    pub fn reach(&mut self, address: u64, in_guest: bool, last: u64) {
        let in_kernel = address >= KERNEL;
        if let Some(turn) = self.turn.take() {
            let stays = in_guest == self.in_guest && in_kernel == self.world().in_kernel;
            self.take(turn, stays.then_some(address));
        }
        self.world().last = last;
        if in_guest != self.in_guest {
            self.in_guest = in_guest;
            self.stand_on(last);
        }
        let world = self.world();
        if in_kernel != world.in_kernel {
            world.in_kernel = in_kernel;
            if in_kernel {
                self.enter_kernel(address);
            } else {
                self.leave_kernel();
            }
        }
    }

    fn world(&mut self) -> &mut World {
        &mut self.worlds[usize::from(self.in_guest)]
    }

    /// `next` is where a turn led, unless an exit or interrupt came between.
    fn take(&mut self, turn: Turn, next: Option<u64>) {
        match turn.flow {
            Flow::Call => self.call(turn, next.unwrap_or(0)),
            Flow::Return => self.give_back(turn.slot, next),
        }
    }

    fn call(&mut self, turn: Turn, target: u64) {
        // What lies below the new word has been left without a return: by an
        // exception, or by adding to the stack pointer.
        let at = turn.slot.address;
        while let Some(left) = self.world().top.take_if(|top| top.is_left_at(at)) {
            self.world().top = left.below.clone();
        }
        let step = Step {
            kind: Kind::Call,
            site: turn.site,
            target,
        };
        let frame = self.push(step, at, turn.behind);
        self.slots.insert(turn.slot.physical, frame);
    }

    fn push(&mut self, step: Step, slot: u64, behind: u64) -> Arc<Frame> {
        let world = self.world();
        let below = world.top.take().filter(|below| below.depth < DEEPEST);
        let frame = Arc::new(Frame {
            depth: below.as_ref().map_or(0, |below| below.depth + 1),
            below,
            step,
            slot,
            behind,
            context: AtomicU64::new(0),
        });
        world.top = Some(frame.clone());
        frame
    }

    fn give_back(&mut self, slot: Slot, next: Option<u64>) {
        let found = self.slots.remove(&slot.physical);
        let world = self.world();
        let is_top = |frame: &Arc<Frame>| {
            let top = world.top.as_ref();
            top.is_some_and(|top| Arc::ptr_eq(top, frame))
        };
        let leads_back = |frame: &Frame| next.is_none_or(|next| next == frame.behind);
        // A thunk overwrites its own return address and returns to what it calls.
        if let Some(frame) = found.filter(|frame| leads_back(frame) || is_top(frame)) {
            world.top = frame.below.clone();
            return;
        }
        // The address was not stored by a call. It may be a copy, or pushed in
        // order to jump; else this is the first instruction of a thread.
        world.top = match world.top.take() {
            Some(top) if top.is_call() && Some(top.behind) == next => top.below.clone(),
            top => top.filter(|top| top.continues_at(slot.address)),
        };
    }

    fn enter_kernel(&mut self, target: u64) {
        let step = Step {
            kind: Kind::Kernel,
            site: self.world().last,
            target,
        };
        self.push(step, 0, 0);
    }

    /// A thread goes on where it entered its kernel; a new one has not.
    fn leave_kernel(&mut self) {
        let world = self.world();
        while let Some(top) = world.top.take() {
            world.top = top.below.clone();
            if !top.is_call() {
                break;
            }
        }
    }

    /// The paths of a window begin: nothing is known of them yet.
    pub fn open(&mut self) {
        self.contexts = Some(Contexts::new());
        for world in 0..self.worlds.len() {
            self.worlds[world].base = ROOT;
            self.worlds[world].round = self.next_round();
        }
        if self.in_guest {
            self.stand_on(self.worlds[0].last);
        }
    }

    fn next_round(&mut self) -> u32 {
        self.rounds += 1;
        self.rounds
    }

    /// The guest runs on top of what entered it at `site`.
    fn stand_on(&mut self, site: u64) {
        if !self.in_guest || self.contexts.is_none() {
            return;
        }
        let host = self.path(0);
        let step = Step {
            kind: Kind::Guest,
            site,
            target: 0,
        };
        let base = self.child(host, step);
        if base != self.worlds[1].base {
            self.worlds[1].base = base;
            self.worlds[1].round = self.next_round();
        }
    }

    /// The path that the machine is on; the root while no window is open.
    pub fn context(&mut self) -> u32 {
        match self.contexts {
            Some(_) => self.path(usize::from(self.in_guest)),
            None => ROOT,
        }
    }

    fn path(&mut self, world: usize) -> u32 {
        let World {
            top, base, round, ..
        } = &self.worlds[world];
        let (mut path, round) = (*base, *round);
        let (mut unknown, mut frame) = (Vec::new(), top.clone());
        while let Some(next) = frame {
            let (known_in, context) = unpack(next.context.load(Relaxed));
            if known_in == round {
                path = context;
                break;
            }
            frame = next.below.clone();
            unknown.push(next);
        }
        for frame in unknown.into_iter().rev() {
            path = self.child(path, frame.step);
            frame.context.store(pack(round, path), Relaxed);
        }
        path
    }

    fn child(&mut self, parent: u32, step: Step) -> u32 {
        let contexts = self.contexts.as_mut();
        contexts.map_or(ROOT, |contexts| contexts.child(parent, step))
    }

    /// An instruction was executed `count` times on a path of this window.
    pub fn count(&mut self, context: u32, address: u64, count: u64) {
        if let Some(contexts) = &mut self.contexts {
            contexts.count(context, address, count);
        }
    }

    /// The paths of the window, which is over.
    pub fn close(&mut self) -> Vec<Context> {
        let contexts = self.contexts.take();
        contexts.map_or_else(Vec::new, Contexts::into_canonical)
    }
}

/// Rounds count from 1, so that what was never set is of none.
fn pack(round: u32, context: u32) -> u64 {
    u64::from(round) << 32 | u64::from(context)
}

fn unpack(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

#[cfg(test)]
mod tests;
