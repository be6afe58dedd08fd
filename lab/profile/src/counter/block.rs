//! Instructions that are counted together, and their executions.

use super::InsnSite;
use crate::levels::MAX_LEVELS;
use crate::retirement::OpenWindows;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Executions by window kind and place: a level, or [`MAX_LEVELS`] more for instructions that find a length.
type Executions = [[AtomicU64; PLACES]; 2];

const PLACES: usize = 2 * MAX_LEVELS;

/// A translation block, or one instruction of a block that has to be watched instruction by instruction.
#[derive(Debug)]
pub struct Block {
    sites: Box<[&'static InsnSite]>,
    /// For each instruction, how often it was the last one that began.
    executions: Box<[Executions]>,
    /// True if it was executed in the open window of a kind.
    is_counted: [AtomicBool; 2],
}

impl Block {
    /// Creates the block of these instructions, which follow each other in memory.
    pub(super) fn new(sites: Vec<&'static InsnSite>) -> Self {
        Self {
            executions: sites.iter().map(|_| Executions::default()).collect(),
            sites: sites.into(),
            is_counted: Default::default(),
        }
    }

    /// Returns the first of its instructions.
    pub fn first(&self) -> &'static InsnSite {
        self.sites[0]
    }

    /// Returns the last of the first `executed` instructions. There are at most as many as the block has.
    pub(super) fn last(&self, executed: u64) -> Option<(usize, &'static InsnSite)> {
        let index = usize::try_from(executed.checked_sub(1)?).ok()?;
        self.sites.get(index).map(|site| (index, *site))
    }

    /// Counts an execution at `level` that ended with the instruction at `last`, and whether it finds a length. Returns for each
    /// window kind whether it is the first one in its window.
    pub(super) fn count(
        &self,
        last: usize,
        (level, finds_length): (u8, bool),
        open: OpenWindows,
    ) -> [bool; 2] {
        let place = usize::from(level) + if finds_length { MAX_LEVELS } else { 0 };
        let mut is_first = [false; 2];
        for kind in 0..open.len() {
            if open[kind] {
                // Only one thread writes, so no atomic addition is needed.
                let count = &self.executions[last][kind][place];
                count.store(count.load(Relaxed) + 1, Relaxed);
                is_first[kind] = !self.is_counted[kind].load(Relaxed);
                self.is_counted[kind].store(true, Relaxed);
            }
        }
        is_first
    }

    /// Takes the executions of the instructions in the window of a kind: the instruction, the level and whether it finds a
    /// length, and their number.
    pub(super) fn take(
        &self,
        kind: usize,
        mut add: impl FnMut(&'static InsnSite, (u8, bool), u64),
    ) {
        self.is_counted[kind].store(false, Relaxed);
        // An instruction began whenever it or a later one was the last.
        let mut sums = [0; PLACES];
        for (site, executions) in self.sites.iter().zip(&self.executions).rev() {
            for (place, sum) in sums.iter_mut().enumerate() {
                *sum += executions[kind][place].swap(0, Relaxed);
                if *sum != 0 {
                    let level = (place % MAX_LEVELS) as u8;
                    add(site, (level, place >= MAX_LEVELS), *sum);
                }
            }
        }
    }
}
