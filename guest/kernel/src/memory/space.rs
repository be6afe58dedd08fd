//! Blocks: fresh addresses with frames behind them.
//!
//! Every block gets addresses that were never used before, mapped page by page
//! when it is allocated, not when it is touched: what the first touch then
//! costs is what the machine below charges. There are addresses enough: 256 GiB
//! up to the end of the lower half, 128 TiB.

use super::frames::{Frames, Run, FRAME};
use super::tables::{Table, Tables, REACH};
use core::ops::Range;

/// The first address of blocks.
const FIRST: u64 = 256 << 30;
/// The first address that is not canonical.
const LAST: u64 = 1 << 47;

/// Tables on the way down that a block may need beside those of its pages.
const UPPER_TABLES: u64 = 4;

/// Addresses, tables and frames.
pub struct Space {
    tables: Tables,
    frames: Frames,
    /// Bytes of addresses used, from [`FIRST`] on.
    used: u64,
}

impl Space {
    /// A space with nothing in it; all zero, so that it takes no room in the image.
    pub const fn new() -> Self {
        Self {
            tables: Tables::none(),
            frames: Frames::new(),
            used: 0,
        }
    }

    /// Gives RAM to the space, and the top-level table to map it in.
    ///
    /// # Safety
    /// `range` is RAM in whole pages, mapped to itself, and nobody else's. `top`
    /// is as [`Tables::new`] asks for.
    pub unsafe fn open(&mut self, top: *mut Table, range: Run) {
        // SAFETY: passed on.
        self.tables = unsafe { Tables::new(top) };
        self.frames.give(range, false);
    }

    /// A block of at least `bytes`, rounded up to pages, and behind `guard` pages
    /// that are not mapped. `None` if there is not enough memory; then nothing has
    /// changed.
    pub fn allocate(&mut self, bytes: u64, guard: u64) -> Option<Range<u64>> {
        let length = bytes.checked_next_multiple_of(FRAME)?.max(FRAME);
        let start = (FIRST + self.used).checked_add(guard * FRAME)?;
        let end = start.checked_add(length).filter(|end| *end <= LAST)?;
        let for_tables = (length / REACH + 1 + UPPER_TABLES) * FRAME;
        if self.frames.free() < length.checked_add(for_tables)? {
            return None;
        }
        self.used = end - FIRST;
        let mut at = start;
        while at < end {
            let run = self.frames.take(end - at)?;
            let pages = run.end - run.start;
            // SAFETY: the run was just taken, addresses above the last block's end
            // were never used, and `open` promised that frames are free and mapped
            // to themselves.
            unsafe { self.tables.map(at, run, &mut self.frames)? };
            at += pages;
        }
        Some(start..end)
    }

    /// Maps `range` of physical addresses, whole pages of 2 MiB, to itself. The
    /// entry of its first page; `None` if there is not enough memory for its tables.
    ///
    /// # Safety
    /// The range is below [`FIRST`], was never mapped, and nobody takes what is there for
    /// memory of his own.
    pub unsafe fn map(&mut self, range: Range<u64>) -> Option<*const u64> {
        // SAFETY: passed on.
        unsafe { self.tables.map_large(range, &mut self.frames) }
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// `block` came from [`Self::allocate`], was not released before, and nobody
    /// uses it any more.
    pub unsafe fn release(&mut self, block: Range<u64>) {
        // SAFETY: passed on; no block will begin in the used addresses.
        unsafe {
            self.tables
                .unmap(block, FIRST + self.used, &mut self.frames)
        }
    }
}

// Tested through tables.rs and frames.rs; here, that both together lose nothing.
#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    const FRAMES: u64 = 1024;

    #[repr(C, align(4096))]
    struct Ram([u8; FRAMES as usize * FRAME as usize]);

    #[repr(C, align(4096))]
    struct Top([u64; 512]);

    fn with_space(test: impl FnOnce(&mut Space)) {
        let layout = std::alloc::Layout::new::<Ram>();
        // SAFETY: the layout is not empty.
        let ram = unsafe { std::alloc::alloc(layout) };
        let mut top = Box::new(Top([0; 512]));
        let mut space = Space::new();
        let start = ram as u64;
        // SAFETY: table and memory are the test's own and outlive the space.
        unsafe { space.open(&raw mut top.0, start..start + FRAMES * FRAME) };
        test(&mut space);
        // SAFETY: allocated above with this layout.
        unsafe { std::alloc::dealloc(ram, layout) };
    }

    #[test]
    fn blocks_have_fresh_addresses_and_their_frames_come_back() {
        with_space(|space| {
            let mut last = 0;
            for round in 0..2000 {
                let block = space.allocate(1 << 20, round % 2).unwrap();
                assert!(block.start >= last, "addresses are used once");
                assert_eq!(block.end - block.start, 1 << 20);
                last = block.end;
                // SAFETY: allocated above and not used.
                unsafe { space.release(block) };
            }
            let tables = FRAMES * FRAME - space.frames.free();
            assert!(tables <= 12 * FRAME, "tables are used again: {tables}");
        });
    }

    #[test]
    fn a_window_takes_its_tables_and_nothing_else() {
        with_space(|space| {
            let free = space.frames.free();
            // SAFETY: far from blocks, and never accessed.
            assert!(unsafe { space.map(4 << 30..5 << 30) }.is_some());
            assert_eq!(free - space.frames.free(), 2 * FRAME);
        });
    }

    #[test]
    fn too_much_is_refused_and_changes_nothing() {
        with_space(|space| {
            let free = space.frames.free();
            assert_eq!(space.allocate(FRAMES * FRAME, 0), None);
            assert_eq!(space.allocate(u64::MAX, 0), None);
            assert_eq!(space.allocate(1 << 46, 0), None);
            assert_eq!(space.frames.free(), free);
            let most = (FRAMES - 8) * FRAME;
            assert!(space.allocate(most, 0).is_some());
        });
    }
}
