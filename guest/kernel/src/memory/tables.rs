//! Page tables: where in them an address is looked up, and small pages added and
//! removed.
//!
//! At ring 3 nothing can flush a translation. That is no loss as long as an
//! address never gets a second meaning: a page that is not present is not
//! remembered by the processor, and what it remembers of a page that was taken
//! away is never asked for again. So addresses are used once (see space.rs); and
//! a table that has become empty is only ever used as a table again, because the
//! processor may still remember the way to it.

use super::frames::{Frames, Run, FRAME};
use core::ops::Range;
use core::ptr;

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
/// Set by the processor when a page is written.
const DIRTY: u64 = 1 << 6;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// A page: neither accessed nor dirty, so that it shows whether it was touched.
const PAGE: u64 = PRESENT | WRITABLE | USER;
/// A page of 2 MiB, with nothing left to mark.
const LARGE: u64 = PRESENT | WRITABLE | USER | ACCESSED | DIRTY | 1 << 7;
const TABLE: u64 = PRESENT | WRITABLE | USER | ACCESSED;

/// Entries of a table.
const ENTRIES: usize = 512;

/// Levels above the tables that hold pages.
const UPPER_LEVELS: u32 = 3;

/// Bytes that one table of pages maps.
pub const REACH: u64 = ENTRIES as u64 * FRAME;

/// A table of any level.
pub type Table = [u64; ENTRIES];

/// Index of `address` in its table of `level`; 0 is the level of pages.
fn index(address: u64, level: u32) -> usize {
    (address >> (12 + 9 * level)) as usize % ENTRIES
}

/// The tables below one top-level table.
pub struct Tables {
    top: *mut Table,
    /// Tables that hold nothing, and whose frames are tables for ever.
    spare: *mut Table,
}

impl Tables {
    /// No tables; all zero, so that it takes no room in the image.
    pub const fn none() -> Self {
        Self {
            top: ptr::null_mut(),
            spare: ptr::null_mut(),
        }
    }

    /// The tables below the one at `top`.
    ///
    /// # Safety
    /// `top` and all tables below it are at addresses that are mapped to
    /// themselves, and nobody else changes them.
    pub const unsafe fn new(top: *mut Table) -> Self {
        Self {
            top,
            spare: ptr::null_mut(),
        }
    }

    /// Maps `run` at `address`, both whole pages, where nothing was mapped ever.
    ///
    /// `None` if a table was needed and no frame was left for it: then part of
    /// the run may be mapped.
    ///
    /// # Safety
    /// The frames of `run` are the caller's to map, and those in `frames` are free
    /// and mapped to themselves.
    pub unsafe fn map(&mut self, address: u64, run: Run, frames: &mut Frames) -> Option<()> {
        let mut at = address;
        let mut frame = run.start;
        while frame < run.end {
            // SAFETY: passed on.
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

    /// Maps `range`, whole pages of 2 MiB, to itself, where nothing was mapped ever.
    ///
    /// The entry of its first page; `None` if a table was needed and no frame was left for
    /// it: then part of the range may be mapped.
    ///
    /// # Safety
    /// Nobody takes what is there for memory of his own, and the frames in `frames` are
    /// free and mapped to themselves.
    pub unsafe fn map_large(
        &mut self,
        range: Range<u64>,
        frames: &mut Frames,
    ) -> Option<*const u64> {
        let first = range.start;
        for address in range.step_by(REACH as usize) {
            // SAFETY: passed on.
            let table = unsafe { self.descend(address, 1, frames)? };
            table[index(address, 1)] = address | LARGE;
        }
        // SAFETY: passed on.
        let table = unsafe { self.descend(first, 1, frames)? };
        Some(&raw const table[index(first, 1)])
    }

    /// The table of the page at `address`, made if it is not there.
    ///
    /// # Safety
    /// As for [`Self::map`].
    #[inline]
    unsafe fn reach(&mut self, address: u64, frames: &mut Frames) -> Option<&mut Table> {
        // SAFETY: passed on.
        unsafe { self.descend(address, 0, frames) }
    }

    /// The table of `lowest` level on the way to `address`, made if it is not there.
    ///
    /// # Safety
    /// As for [`Self::map`].
    #[inline(always)]
    unsafe fn descend(
        &mut self,
        address: u64,
        lowest: u32,
        frames: &mut Frames,
    ) -> Option<&mut Table> {
        let mut table = self.top;
        for level in (lowest + 1..=UPPER_LEVELS).rev() {
            // SAFETY: `table` is the top or was found in an entry of a table, and
            // all tables are mapped to themselves.
            let entry = unsafe { &mut (*table)[index(address, level)] };
            if *entry & PRESENT == 0 {
                // SAFETY: passed on.
                *entry = unsafe { self.fresh_table(frames)? } as u64 | TABLE;
            }
            table = (*entry & ADDRESS) as *mut Table;
        }
        // SAFETY: as above; the borrow of `self` keeps it from being used twice.
        Some(unsafe { &mut *table })
    }

    /// An empty table.
    ///
    /// # Safety
    /// As for [`Self::map`].
    unsafe fn fresh_table(&mut self, frames: &mut Frames) -> Option<*mut Table> {
        if !self.spare.is_null() {
            let table = self.spare;
            // SAFETY: a spare table's first word leads to the next one, and is
            // cleared here, so that the table is empty.
            self.spare = unsafe { core::mem::take(&mut (*table)[0]) } as *mut Table;
            return Some(table);
        }
        let table = frames.take_for_table()? as *mut Table;
        // SAFETY: the frame is free and mapped to itself.
        unsafe { table.write([0; ENTRIES]) };
        Some(table)
    }

    /// Takes the pages of `range` away and gives their frames back, each by
    /// whether the processor says it was written. Tables that are empty now and
    /// lie wholly below `done` become spare: no page will be added there.
    ///
    /// # Safety
    /// The range was mapped by [`Self::map`], and nobody uses it from now on.
    pub unsafe fn unmap(&mut self, range: Range<u64>, done: u64, frames: &mut Frames) {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / REACH + 1) * REACH);
            // SAFETY: the range is mapped, so the way to its tables exists.
            let parent = unsafe { &mut *self.parent(at) };
            // SAFETY: as above; the entry leads to the table of `at`.
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

    /// The entry that leads to the table of the page at `address`.
    ///
    /// # Safety
    /// That table exists.
    unsafe fn parent(&mut self, address: u64) -> *mut u64 {
        let mut table = self.top;
        for level in (2..=UPPER_LEVELS).rev() {
            // SAFETY: as in `reach`; the entries exist, by this function's
            // contract.
            table = unsafe { (*table)[index(address, level)] & ADDRESS } as *mut Table;
        }
        // SAFETY: as above.
        unsafe { &raw mut (*table)[index(address, 1)] }
    }
}

/// Clears `entries` and gives back their frames, in runs of the same kind.
fn collect(entries: &mut [u64], frames: &mut Frames) {
    let mut run = 0..0;
    let mut run_touched = false;
    for entry in entries.iter_mut().map(core::mem::take) {
        let (frame, touched) = (entry & ADDRESS, entry & DIRTY != 0);
        if frame != run.end || touched != run_touched {
            give(frames, run, run_touched);
            run = frame..frame;
            run_touched = touched;
        }
        run.end = frame + FRAME;
    }
    give(frames, run, run_touched);
}

fn give(frames: &mut Frames, run: Run, touched: bool) {
    if !run.is_empty() {
        frames.give(run, touched);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    /// Host memory that stands for RAM: tables in it can be followed, because a
    /// process's addresses are mapped to themselves too.
    #[repr(C, align(4096))]
    struct Ram([Table; 16]);

    fn ram() -> (Box<Ram>, Run) {
        let ram = Box::new(Ram([[0xdead_beef; ENTRIES]; 16]));
        let start = &raw const *ram as u64;
        (ram, start..start + 16 * FRAME)
    }

    /// What the entry for `address` holds, or `None` where there is no table.
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
    fn an_address_falls_apart_into_its_four_indices() {
        let address = 5 << 39 | 6 << 30 | 7 << 21 | 8 << 12 | 9;
        assert_eq!(
            [3, 2, 1, 0].map(|level| index(address, level)),
            [5, 6, 7, 8]
        );
    }

    #[test]
    fn pages_are_mapped_across_tables_and_come_back_by_kind() {
        let (_ram, range) = ram();
        let mut frames = Frames::new();
        frames.give(range.clone(), false);
        let mut top: Box<Ram> = Box::new(Ram([[0; ENTRIES]; 16]));
        // SAFETY: the table is the test's own.
        let mut tables = unsafe { Tables::new(&raw mut top.0[0]) };
        let address = 0x40_0020_0000 - 2 * FRAME;
        let run = 0x7000_0000..0x7000_0000 + 4 * FRAME;
        // SAFETY: the run is never accessed, the frames are the test's own.
        unsafe { tables.map(address, run.clone(), &mut frames) }.unwrap();
        assert_eq!(frames.free(), 12 * FRAME, "two upper and two lower tables");
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
    fn a_spare_table_is_used_before_a_frame_and_is_empty() {
        let (_ram, range) = ram();
        let mut frames = Frames::new();
        frames.give(range, false);
        let mut top: Box<Ram> = Box::new(Ram([[0; ENTRIES]; 16]));
        // SAFETY: the table is the test's own.
        let mut tables = unsafe { Tables::new(&raw mut top.0[0]) };
        let (first, second) = (0x40_0000_0000, 0x40_0000_0000 + REACH);
        let run = 0x7000_0000..0x7000_0000 + FRAME;
        // SAFETY: the run is never accessed, the frames are the test's own.
        unsafe {
            tables.map(first, run.clone(), &mut frames).unwrap();
            tables.unmap(first..first + FRAME, second, &mut frames);
            let free = frames.free();
            tables.map(second, run, &mut frames).unwrap();
            assert_eq!(frames.free(), free);
        }
        assert_eq!(entry(&tables, second + FRAME), Some(0));
    }

    #[test]
    fn large_pages_are_mapped_to_themselves_a_table_for_a_gibibyte() {
        let (_ram, range) = ram();
        let mut frames = Frames::new();
        frames.give(range, false);
        let mut top: Box<Ram> = Box::new(Ram([[0; ENTRIES]; 16]));
        // SAFETY: the table is the test's own.
        let mut tables = unsafe { Tables::new(&raw mut top.0[0]) };
        let window = 4 << 30..5 << 30;
        // SAFETY: the window is never accessed, the frames are the test's own.
        let first = unsafe { tables.map_large(window.clone(), &mut frames) }.unwrap();
        // SAFETY: an entry of a table of the test's own.
        assert_eq!(unsafe { *first }, window.start | LARGE);
        assert_eq!(
            frames.free(),
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
    fn no_frame_for_a_table_means_none() {
        let mut top: Box<Ram> = Box::new(Ram([[0; ENTRIES]; 16]));
        // SAFETY: the table is the test's own.
        let mut tables = unsafe { Tables::new(&raw mut top.0[0]) };
        // SAFETY: the run is never accessed.
        let mapped = unsafe { tables.map(0x40_0000_0000, 0..FRAME, &mut Frames::new()) };
        assert_eq!(mapped, None);
    }
}
