//! The count by call path, beside the count by instruction: what each instruction
//! asks of the [`Chains`] is almost always nothing, and this finds that out
//! without looking at them.

use super::chains::{Chains, Slot, Turn};
use super::contexts::ROOT;
use super::flow::Flow;
use super::Place;
use crate::wire::Context;
use crate::worlds::KERNEL;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Of an instruction that no path of this window has counted.
const NOWHERE: u32 = u32::MAX;

/// The stacks of a machine. Nothing is done before [`Self::keep`].
pub struct Stacks {
    kept: AtomicBool,
    /// Whether a call or return waits for the instruction behind it.
    turning: AtomicBool,
    in_guest: AtomicBool,
    in_kernel: AtomicBool,
    last: AtomicU64,
    context: AtomicU32,
    chains: Mutex<Option<Chains>>,
}

/// How often an instruction was executed on the path that it was last on.
#[derive(Debug)]
pub struct Share {
    context: AtomicU32,
    count: AtomicU64,
}

impl Share {
    pub const fn new() -> Self {
        Self {
            context: AtomicU32::new(NOWHERE),
            count: AtomicU64::new(0),
        }
    }
}

impl Stacks {
    /// Stacks that are not kept.
    pub const fn new() -> Self {
        Self {
            kept: AtomicBool::new(false),
            turning: AtomicBool::new(false),
            in_guest: AtomicBool::new(false),
            in_kernel: AtomicBool::new(false),
            last: AtomicU64::new(0),
            context: AtomicU32::new(ROOT),
            chains: Mutex::new(None),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Chains) -> T) -> T {
        let mut chains = self.chains.lock().unwrap_or_else(PoisonError::into_inner);
        act(chains.get_or_insert_with(Chains::new))
    }

    /// Keeps stacks from here on, best from the machine's first instruction.
    pub fn keep(&self) {
        self.kept.store(true, Relaxed);
    }

    /// Whether stacks are kept.
    pub fn are_kept(&self) -> bool {
        self.kept.load(Relaxed)
    }

    /// A call or return has touched `slot`. QEMU 7.2 tells of some accesses of
    /// later instructions, too: only the first of the last instruction is true.
    pub fn turn(&self, flow: Flow, site: u64, behind: u64, slot: Slot) {
        if self.last.load(Relaxed) != site || self.turning.swap(true, Relaxed) {
            return;
        }
        self.with(|chains| {
            chains.turn(Turn {
                flow,
                site,
                behind,
                slot,
            })
        });
    }

    /// The next instruction is at `address`.
    pub fn reach(&self, address: u64, in_guest: bool) {
        if !self.are_kept() {
            return;
        }
        let in_kernel = address >= KERNEL;
        let stays = self.in_guest.load(Relaxed) == in_guest
            && self.in_kernel.load(Relaxed) == in_kernel
            && !self.turning.load(Relaxed);
        let last = self.last.load(Relaxed);
        self.last.store(address, Relaxed);
        if stays {
            return;
        }
        self.turning.store(false, Relaxed);
        self.in_guest.store(in_guest, Relaxed);
        self.in_kernel.store(in_kernel, Relaxed);
        self.with(|chains| {
            chains.reach(address, in_guest, last);
            self.context.store(chains.context(), Relaxed);
        });
    }

    /// A window opens.
    pub fn open(&self) {
        if self.are_kept() {
            self.with(|chains| {
                chains.open();
                self.context.store(chains.context(), Relaxed);
            });
        }
    }

    /// Counts one execution of `place` on the path that the machine is on.
    pub fn count(&self, place: &Place) {
        if !self.are_kept() {
            return;
        }
        let (share, context) = (&place.share, self.context.load(Relaxed));
        if share.context.load(Relaxed) != context {
            self.with(|chains| collect(chains, place));
            share.context.store(context, Relaxed);
        }
        // One thread writes: no atomic addition is needed.
        share.count.store(share.count.load(Relaxed) + 1, Relaxed);
    }

    /// A window is over: its paths, with what was counted at all `places`.
    pub fn close<'p>(&self, places: impl Iterator<Item = &'p Place>) -> Vec<Context> {
        if !self.are_kept() {
            return Vec::new();
        }
        self.with(|chains| {
            places.for_each(|place| collect(chains, place));
            chains.close()
        })
    }
}

fn collect(chains: &mut Chains, place: &Place) {
    let context = place.share.context.swap(NOWHERE, Relaxed);
    let count = place.share.count.swap(0, Relaxed);
    if count != 0 {
        chains.count(context, place.address, count);
    }
}
