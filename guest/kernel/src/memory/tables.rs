//! Page tables.
//!
//! Ring 3 cannot flush the TLB. That is not needed as long as an address is never mapped twice: CPUs
//! do not cache translations of absent pages, and a stale translation of a removed page is never
//! used. So addresses are used once (see space.rs), and an empty table is reused only as a table,
//! because the CPU may still cache the entries that lead to it.

use super::entry::{
    index, Table, ACCESSED, ADDRESS, DIRTY, ENTRIES, PRESENT, REACH, TABLE, USER, WRITABLE,
};
use super::frames::{Frames, Run, FRAME};
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Page, neither accessed nor dirty, so that the CPU records whether it is touched.
const PAGE: u64 = PRESENT | WRITABLE | USER;
/// Page of 2 MiB, accessed and dirty, so that the CPU does not write the entry.
const LARGE: u64 = PRESENT | WRITABLE | USER | ACCESSED | DIRTY | 1 << 7;

/// Levels above the lowest tables.
const UPPER_LEVELS: u32 = 3;

/// Hierarchy of page tables.
pub struct Tables {
    top: *mut Table,
    /// Empty tables, for reuse as tables only.
    spare: *mut Table,
}

impl Tables {
    /// Creates an empty hierarchy. It is all zero, so that it is not part of the image file.
    pub const fn none() -> Self {
        Self {
            top: ptr::null_mut(),
            spare: ptr::null_mut(),
        }
    }

    /// Takes over the tables below `top`.
    ///
    /// # Safety
    /// `top` and all tables below it are identity-mapped, and no other code changes them.
    pub const unsafe fn new(top: *mut Table) -> Self {
        Self {
            top,
            spare: ptr::null_mut(),
        }
    }

    /// Maps `run` at `address`, both whole pages, where nothing was ever mapped.
    ///
    /// Returns `None` if there is no frame for a table; part of the run may be mapped then.
    ///
    /// # Safety
    /// The frames of `run` belong to the caller, and those in `frames` are free and identity-mapped.
    #[inline(always)]
    pub unsafe fn map(&mut self, address: u64, run: Run, frames: &mut Frames) -> Option<()> {
        let mut at = address;
        let mut frame = run.start;
        while frame < run.end {
            // SAFETY: same contract.
            let table = unsafe { self.reach(at, frames)? };
            let first = index(at, 0);
            let pages = (((run.end - frame) / FRAME) as usize).min(ENTRIES - first);
            for entry in &mut table[first..first + pages] {
                *entry = frame | PAGE;
                frame += FRAME;
            }
            at += pages as u64 * FRAME;
        }
        Some(())
    }

    /// Identity-maps `range`, whole pages of 2 MiB, where nothing was ever mapped.
    ///
    /// Returns the entry of its first page; `None` if there is no frame for a table, part of the
    /// range may be mapped then.
    ///
    /// # Safety
    /// No other code uses the range as memory, and the frames in `frames` are free and
    /// identity-mapped.
    pub unsafe fn map_large(
        &mut self,
        range: Range<u64>,
        frames: &mut Frames,
    ) -> Option<*const u64> {
        let first = range.start;
        for address in range.step_by(REACH as usize) {
            // SAFETY: same contract.
            let table = unsafe { self.descend(address, 1, frames)? };
            table[index(address, 1)] = address | LARGE;
        }
        // SAFETY: same contract.
        let table = unsafe { self.descend(first, 1, frames)? };
        Some(&raw const table[index(first, 1)])
    }

    /// Returns the lowest-level table of `address`, created if absent.
    ///
    /// # Safety
    /// Same contract as [`Self::map`].
    #[inline]
    unsafe fn reach(&mut self, address: u64, frames: &mut Frames) -> Option<&mut Table> {
        // SAFETY: same contract.
        unsafe { self.descend(address, 0, frames) }
    }

    /// Returns the table of level `lowest` of `address`, created if absent.
    ///
    /// # Safety
    /// Same contract as [`Self::map`].
    #[inline(always)]
    unsafe fn descend(
        &mut self,
        address: u64,
        lowest: u32,
        frames: &mut Frames,
    ) -> Option<&mut Table> {
        let mut table = self.top;
        for level in (lowest + 1..=UPPER_LEVELS).rev() {
            // SAFETY: `table` is the top or the target of an entry, and all tables are
            // identity-mapped.
            let entry = unsafe { &mut (*table)[index(address, level)] };
            if *entry & PRESENT == 0 {
                // SAFETY: same contract.
                *entry = unsafe { self.fresh_table(frames)? } as u64 | TABLE;
            }
            table = (*entry & ADDRESS) as *mut Table;
        }
        // SAFETY: as above; the borrow of `self` makes it exclusive.
        Some(unsafe { &mut *table })
    }

    /// Allocates an empty table.
    ///
    /// # Safety
    /// Same contract as [`Self::map`].
    #[inline(always)]
    unsafe fn fresh_table(&mut self, frames: &mut Frames) -> Option<*mut Table> {
        if !self.spare.is_null() {
            let table = self.spare;
            // SAFETY: the first word of a spare table links to the next one, and is cleared here,
            // so that the table is empty.
            self.spare = unsafe { core::mem::take(&mut (*table)[0]) } as *mut Table;
            return Some(table);
        }
        let table = frames.take_for_table()? as *mut Table;
        // SAFETY: the frame is free and identity-mapped.
        unsafe { table.write([0; ENTRIES]) };
        Some(table)
    }

    /// Unmaps the pages of `range` and frees their frames, as touched or untouched according to the
    /// dirty bit. Empty tables below `done` become spare: no page will be added there.
    ///
    /// # Safety
    /// The range was mapped by [`Self::map`], and is no longer used.
    pub unsafe fn unmap(&mut self, range: Range<u64>, done: u64, frames: &mut Frames) {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / REACH + 1) * REACH);
            // SAFETY: the range is mapped, so its tables exist.
            let parent = unsafe { &mut *self.parent(at) };
            // SAFETY: as above; the entry points to the table of `at`.
            let table = unsafe { &mut *((*parent & ADDRESS) as *mut Table) };
            let first = index(at, 0);
            let pages = ((end - at) / FRAME) as usize;
            collect(&mut table[first..first + pages], frames);
            let complete = (at / REACH + 1) * REACH <= done;
            if complete && table.iter().all(|entry| *entry == 0) {
                *parent = 0;
                table[0] = self.spare as u64;
                self.spare = table;
            }
            at = end;
        }
    }

    /// Exchanges the frames of two pages. TLBs may keep the old translations.
    ///
    /// # Safety
    /// Both pages were mapped by [`Self::map`]. Other CPUs only read them.
    pub unsafe fn exchange(&mut self, one: u64, other: u64) {
        // SAFETY: the pages are mapped, so their tables exist, and are identity-mapped.
        let mut entry = |page| unsafe {
            let table = (*self.parent(page) & ADDRESS) as *mut Table;
            AtomicU64::from_ptr(&raw mut (*table)[index(page, 0)])
        };
        let (one, other) = (entry(one), entry(other));
        let frame = one.swap(other.load(SeqCst), SeqCst);
        other.store(frame, SeqCst);
    }

    /// Returns the entry that points to the lowest-level table of `address`.
    ///
    /// # Safety
    /// That table exists.
    unsafe fn parent(&mut self, address: u64) -> *mut u64 {
        let mut table = self.top;
        for level in (2..=UPPER_LEVELS).rev() {
            // SAFETY: as in `reach`; the entries exist, by contract.
            table = unsafe { (*table)[index(address, level)] & ADDRESS } as *mut Table;
        }
        // SAFETY: as above.
        unsafe { &raw mut (*table)[index(address, 1)] }
    }
}

/// Clears `entries` and frees their frames, in runs of the same kind.
fn collect(entries: &mut [u64], frames: &mut Frames) {
    let mut run = 0..0;
    let mut run_touched = false;
    for entry in entries.iter_mut().map(core::mem::take) {
        let (frame, touched) = (entry & ADDRESS, entry & DIRTY != 0);
        if frame != run.end || touched != run_touched {
            free(frames, run, run_touched);
            run = frame..frame;
            run_touched = touched;
        }
        run.end = frame + FRAME;
    }
    free(frames, run, run_touched);
}

fn free(frames: &mut Frames, run: Run, touched: bool) {
    if !run.is_empty() {
        frames.free(run, touched);
    }
}

#[cfg(test)]
impl Tables {
    /// Returns the frame of a mapped page.
    pub fn frame(&self, page: u64) -> *mut u8 {
        let mut entry = self.top as u64;
        for level in (0..=UPPER_LEVELS).rev() {
            // SAFETY: the page is mapped, and the tables are in the test's own memory.
            entry = unsafe { (*((entry & ADDRESS) as *const Table))[index(page, level)] };
        }
        (entry & ADDRESS) as *mut u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    /// Host memory in place of RAM. Tables in it can be followed as if identity-mapped.
    #[repr(C, align(4096))]
    struct Ram([Table; 16]);

    fn ram() -> (Box<Ram>, Run) {
        let ram = Box::new(Ram([[0xdead_beef; ENTRIES]; 16]));
        let start = &raw const *ram as u64;
        (ram, start..start + 16 * FRAME)
    }

    /// Returns the entry for `address`, or `None` if there is no table.
    fn entry(tables: &Tables, address: u64) -> Option<u64> {
        let mut table = tables.top;
        for level in (0..=UPPER_LEVELS).rev() {
            // SAFETY: all tables are in the test's own memory.
            let entry = unsafe { (*table)[index(address, level)] };
            if level == 0 || entry & PRESENT == 0 {
                return (level == 0).then_some(entry);
            }
            table = (entry & ADDRESS) as *mut Table;
        }
        None
    }

    #[test]
    fn an_address_has_an_index_per_level() {
        let address = 5 << 39 | 6 << 30 | 7 << 21 | 8 << 12 | 9;
        assert_eq!(
            [3, 2, 1, 0].map(|level| index(address, level)),
            [5, 6, 7, 8]
        );
    }

    #[test]
    fn pages_are_mapped_across_tables_and_freed_by_kind() {
        let (_ram, range) = ram();
        let mut frames = Frames::new();
        frames.free(range.clone(), false);
        let mut top: Box<Ram> = Box::new(Ram([[0; ENTRIES]; 16]));
        // SAFETY: the table is the test's own.
        let mut tables = unsafe { Tables::new(&raw mut top.0[0]) };
        let address = 0x40_0020_0000 - 2 * FRAME;
        let run = 0x7000_0000..0x7000_0000 + 4 * FRAME;
        // SAFETY: the run is never accessed, the frames are the test's own.
        unsafe { tables.map(address, run.clone(), &mut frames) }.unwrap();
        assert_eq!(
            frames.free_bytes(),
            12 * FRAME,
            "two upper and two lower tables"
        );
        for page in 0..4 {
            let expected = (run.start + page * FRAME) | PAGE;
            assert_eq!(entry(&tables, address + page * FRAME), Some(expected));
        }
        assert_eq!(
            entry(&tables, address - FRAME),
            Some(0),
            "tables start empty"
        );

        mark_dirty(&mut tables, address + FRAME);
        let done = 0x40_0020_0000;
        // SAFETY: mapped above.
        unsafe { tables.unmap(address..address + 4 * FRAME, done, &mut frames) };
        assert_eq!(frames.take(FRAME), Some(run.start..run.start + FRAME));
        let rest = run.start + 2 * FRAME..run.end;
        assert_eq!(frames.take(2 * FRAME), Some(rest), "untouched frames first");
        assert_eq!(entry(&tables, address), None, "the table below is spare");
        assert_eq!(
            entry(&tables, 0x40_0020_0000),
            Some(0),
            "this one is not done"
        );
    }

    fn mark_dirty(tables: &mut Tables, address: u64) {
        // SAFETY: the page was mapped by the test.
        unsafe {
            let table = (*tables.parent(address) & ADDRESS) as *mut Table;
            (*table)[index(address, 0)] |= DIRTY;
        }
    }

    #[test]
    fn a_spare_table_is_reused_before_a_frame_and_is_empty() {
        let (_ram, range) = ram();
        let mut frames = Frames::new();
        frames.free(range, false);
        let mut top: Box<Ram> = Box::new(Ram([[0; ENTRIES]; 16]));
        // SAFETY: the table is the test's own.
        let mut tables = unsafe { Tables::new(&raw mut top.0[0]) };
        let (first, second) = (0x40_0000_0000, 0x40_0000_0000 + REACH);
        let run = 0x7000_0000..0x7000_0000 + FRAME;
        // SAFETY: the run is never accessed, the frames are the test's own.
        unsafe {
            tables.map(first, run.clone(), &mut frames).unwrap();
            tables.unmap(first..first + FRAME, second, &mut frames);
            let free = frames.free_bytes();
            tables.map(second, run, &mut frames).unwrap();
            assert_eq!(frames.free_bytes(), free);
        }
        assert_eq!(entry(&tables, second + FRAME), Some(0));
    }

    #[test]
    fn large_pages_are_identity_mapped_with_a_table_per_gibibyte() {
        let (_ram, range) = ram();
        let mut frames = Frames::new();
        frames.free(range, false);
        let mut top: Box<Ram> = Box::new(Ram([[0; ENTRIES]; 16]));
        // SAFETY: the table is the test's own.
        let mut tables = unsafe { Tables::new(&raw mut top.0[0]) };
        let window = 4 << 30..5 << 30;
        // SAFETY: the window is never accessed, the frames are the test's own.
        let first = unsafe { tables.map_large(window.clone(), &mut frames) }.unwrap();
        // SAFETY: an entry of a table of the test's own.
        assert_eq!(unsafe { *first }, window.start | LARGE);
        assert_eq!(
            frames.free_bytes(),
            14 * FRAME,
            "one upper table and one of pages"
        );
        for address in [window.start, window.start + 7 * REACH, window.end - REACH] {
            // SAFETY: the tables on the way were made above.
            let entry = unsafe { *tables.parent(address) };
            assert_eq!(entry, address | LARGE);
        }
        assert_eq!(entry(&tables, window.end), None);
    }

    #[test]
    fn mapping_fails_without_a_frame_for_a_table() {
        let mut top: Box<Ram> = Box::new(Ram([[0; ENTRIES]; 16]));
        // SAFETY: the table is the test's own.
        let mut tables = unsafe { Tables::new(&raw mut top.0[0]) };
        // SAFETY: the run is never accessed.
        let mapped = unsafe { tables.map(0x40_0000_0000, 0..FRAME, &mut Frames::new()) };
        assert_eq!(mapped, None);
    }
}
