//! Table of address spaces: which top-level page table each process of a guest has loaded.
//!
//! It is in the control page. The processes change it, too ([`crate::handover`]), so all of it is untrusted: the VMM
//! checks each index, and uses the tables only as a guest's CR3, which it could set to any value.

// Code of optimisation spaces.

use crate::layout::CONTROL;
use crate::pages::{futex_word, set_word, word};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use trapline_abi::spaces::SHARED_END;
use trapline_interface::Region;

/// Maximum number of processes of a guest.
pub(crate) const MOST_SPACES: usize = 16;

/// Offsets in the control page: bits of the processes that have reported a stop since the VMM has read them.
pub(crate) const REPORTS: u64 = 0;
/// Number of the process that runs.
pub(crate) const CURRENT: u64 = 8;
/// Number of processes between which the guest switches itself.
pub(crate) const COUNT: u64 = 16;
/// Stack pointer that the next process continues with.
pub(crate) const STACK_POINTER: u64 = 24;
/// Number of loads so far.
pub(crate) const CLOCK: u64 = 32;
/// Entries of the table.
pub(crate) const ENTRIES: u64 = 64;
/// Bytes of an entry.
pub(crate) const ENTRY_SIZE: u64 = 32;

/// Offsets in an entry: the top-level table, with bit [`DISCARDED`] if its translations are not needed any more.
pub(crate) const ROOT: u64 = 0;
/// State of the turn: the process has it, or waits for it in a system call at this word ([`crate::handover::GIVEN`]).
pub(crate) const TURN: u64 = 8;
/// 1 more than the lowest address whose mappings the process drops before it continues; 0: none.
pub(crate) const STALE: u64 = 16;
/// Time of the last load, by [`CLOCK`].
pub(crate) const USED: u64 = 24;

/// See [`ROOT`].
pub(crate) const DISCARDED: u64 = 1;

/// The table.
pub(crate) struct SpaceTable {
    /// Region with the control page.
    control: Arc<Region>,
    length: usize,
}

impl SpaceTable {
    /// Creates the table for a number of processes, the first of which runs with table `root`.
    pub fn new(control: Arc<Region>, length: usize, root: u64) -> Self {
        let table = Self { control, length };
        table.set(0, ROOT, root);
        for index in 1..length {
            table.set(index, ROOT, DISCARDED);
        }
        table
    }

    /// Returns the region with the control page.
    pub fn control(&self) -> &Region {
        &self.control
    }

    fn entry(index: usize, field: u64) -> u64 {
        CONTROL + ENTRIES + ENTRY_SIZE * index as u64 + field
    }

    fn get(&self, index: usize, field: u64) -> u64 {
        word(&self.control, Self::entry(index, field))
    }

    fn set(&self, index: usize, field: u64, value: u64) {
        set_word(&self.control, Self::entry(index, field), value);
    }

    /// Permits the guest to switch between the processes.
    pub fn permit_switches(&self) {
        set_word(&self.control, CONTROL + COUNT, self.length as u64);
    }

    /// Returns and clears the bits of the processes that have reported a stop.
    pub fn take_reports(&self) -> u32 {
        let word = futex_word(&self.control, CONTROL + REPORTS).as_ptr();
        // SAFETY: the word is in the control page, which lives as long as `self`, and is accessed atomically only.
        unsafe { AtomicU32::from_ptr(word) }.swap(0, Ordering::SeqCst)
    }

    /// Returns the process that runs, as the guest says; the first if there is no such process.
    pub fn current(&self) -> usize {
        running(&self.control, self.length)
    }

    /// Sets the process that runs.
    pub fn set_current(&self, index: usize) {
        set_word(&self.control, CONTROL + CURRENT, index as u64);
    }

    /// Returns the top-level table of a process.
    pub fn root(&self, index: usize) -> u64 {
        self.get(index, ROOT) & !DISCARDED
    }

    /// Sets the top-level table of a process.
    pub fn set_root(&self, index: usize, root: u64) {
        self.set(index, ROOT, root & !DISCARDED);
    }

    /// Returns the process for a top-level table: the one that has it, or else a process whose table is discarded, or
    /// else the one that was loaded least recently and is not `current`.
    pub fn assign(&self, root: u64, current: usize) -> usize {
        let clock = word(&self.control, CONTROL + CLOCK).wrapping_add(1);
        set_word(&self.control, CONTROL + CLOCK, clock);
        let mut all = 0..self.length;
        let index = match all.clone().find(|index| self.get(*index, ROOT) == root) {
            Some(index) => index,
            None => {
                let discarded = all
                    .clone()
                    .find(|index| self.get(*index, ROOT) & DISCARDED != 0);
                let others = all.by_ref().filter(|index| *index != current);
                let oldest = others.min_by_key(|index| self.get(*index, USED));
                let index = discarded.or(oldest).unwrap_or(current);
                self.set_root(index, root);
                self.set_stale(index, SHARED_END);
                index
            }
        };
        self.set(index, USED, clock);
        index
    }

    /// Marks a top-level table as discarded.
    pub fn discard(&self, root: u64) {
        for index in 0..self.length {
            if self.get(index, ROOT) == root {
                self.set(index, ROOT, root | DISCARDED);
                self.set_stale(index, SHARED_END);
            }
        }
    }

    /// Makes a process drop its mappings from an address on before it continues.
    pub fn set_stale(&self, index: usize, from: u64) {
        let present = self.get(index, STALE);
        if present == 0 || present > from {
            self.set(index, STALE, from + 1);
        }
    }

    /// Returns and clears the address from which on a process shall drop its mappings.
    pub fn take_stale(&self, index: usize) -> Option<u64> {
        let from = self.get(index, STALE).checked_sub(1)?;
        self.set(index, STALE, 0);
        Some(from)
    }
}

/// Returns the process of a guest that runs, as the guest says; the first if there is no such process.
pub(crate) fn running(control: &Region, length: usize) -> usize {
    let index = word(control, CONTROL + CURRENT);
    usize::try_from(index)
        .ok()
        .filter(|index| *index < length)
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::Pages;

    fn table(length: usize) -> SpaceTable {
        SpaceTable::new(Pages::new().unwrap().common, length, 0x1000)
    }

    #[test]
    fn discarded_tables_are_replaced_first_and_then_the_oldest() {
        let table = table(3);
        assert_eq!(table.assign(0x1000, 0), 0);
        assert_eq!(table.assign(0x2000, 0), 1);
        assert_eq!(table.assign(0x3000, 1), 2);
        table.discard(0x2000);
        assert_eq!(table.assign(0x4000, 2), 1);
        assert_eq!(table.assign(0x1000, 1), 0);
        assert_eq!(table.assign(0x5000, 0), 2, "the oldest");
        assert_eq!(table.assign(0x6000, 2), 1, "not the current one");
        assert_eq!(table.root(1), 0x6000);
    }

    #[test]
    fn the_only_process_takes_every_table() {
        let table = table(1);
        assert_eq!(table.assign(0x2000, 0), 0);
        assert_eq!(table.root(0), 0x2000);
        assert_eq!(table.take_stale(0), Some(SHARED_END));
        assert_eq!(table.take_stale(0), None);
    }

    #[test]
    fn stale_range_only_grows() {
        let table = table(2);
        table.set_stale(1, 0);
        table.set_stale(1, SHARED_END);
        assert_eq!(table.take_stale(1), Some(0));
    }

    #[test]
    fn index_of_the_guest_is_checked() {
        let table = table(2);
        for (index, expected) in [(1, 1), (2, 0), (u64::MAX, 0)] {
            set_word(&table.control, CONTROL + CURRENT, index);
            assert_eq!(table.current(), expected);
        }
    }
}
