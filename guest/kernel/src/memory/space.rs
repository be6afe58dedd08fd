//! Blocks: fresh virtual addresses, mapped to frames.
//!
//! Every block gets addresses that were never used before. Its pages are mapped when it is
//! allocated, so that the first touch costs only what the hypervisor adds. Addresses range from
//! 256 GiB to the end of the lower half, 128 TiB.

use super::entry::{Table, REACH};
use super::frames::{Frames, Run, FRAME};
use super::tables::Tables;
use core::ops::Range;

/// First address of blocks.
const FIRST: u64 = 256 << 30;
/// First address that is not canonical.
const LAST: u64 = 1 << 47;

/// Maximum number of upper-level tables that a block may need.
const UPPER_TABLES: u64 = 4;

/// Virtual addresses, page tables and frames.
pub struct Space {
    tables: Tables,
    frames: Frames,
    /// Bytes of used addresses, from [`FIRST`] on.
    used: u64,
}

impl Space {
    /// Creates an empty space. It is all zero, so that it is not part of the image file.
    pub const fn new() -> Self {
        Self {
            tables: Tables::none(),
            frames: Frames::new(),
            used: 0,
        }
    }

    /// Adds RAM and the top-level page table.
    ///
    /// # Safety
    /// `range` is RAM in whole pages, identity-mapped, and otherwise unused. `top` satisfies the
    /// contract of [`Tables::new`].
    pub unsafe fn open(&mut self, top: *mut Table, range: Run) {
        // SAFETY: same contract.
        self.tables = unsafe { Tables::new(top) };
        self.frames.free(range, false);
    }

    /// Allocates a block of at least `bytes`, rounded up to pages, after `guard` unmapped pages.
    /// `None`, without any effect, if memory is exhausted.
    pub fn allocate(&mut self, bytes: u64, guard: u64) -> Option<Range<u64>> {
        let length = bytes.checked_next_multiple_of(FRAME)?.max(FRAME);
        let start = (FIRST + self.used).checked_add(guard * FRAME)?;
        let end = start.checked_add(length).filter(|end| *end <= LAST)?;
        let for_tables = (length / REACH + 1 + UPPER_TABLES) * FRAME;
        if self.frames.free_bytes() < length.checked_add(for_tables)? {
            return None;
        }
        self.used = end - FIRST;
        let mut at = start;
        while at < end {
            let run = self.frames.take(end - at)?;
            let pages = run.end - run.start;
            // SAFETY: the run was just allocated, addresses above the end of the last block were
            // never used, and frames are free and identity-mapped by the contract of `open`.
            unsafe { self.tables.map(at, run, &mut self.frames)? };
            at += pages;
        }
        Some(start..end)
    }

    /// Identity-maps `range`, whole pages of 2 MiB. Returns the entry of its first page; `None` if
    /// memory for its tables is exhausted.
    ///
    /// # Safety
    /// The range is below [`FIRST`], was never mapped, and no other code uses it as memory.
    pub unsafe fn map(&mut self, range: Range<u64>) -> Option<*const u64> {
        // SAFETY: same contract.
        unsafe { self.tables.map_large(range, &mut self.frames) }
    }

    /// Allocates `bytes` of the last frames, without addresses. Returns the first.
    pub fn take_last(&mut self, bytes: u64) -> Option<u64> {
        self.frames.take_last(bytes).map(|run| run.start)
    }

    /// Releases a block.
    ///
    /// # Safety
    /// `block` was allocated by [`Self::allocate`], is not released yet, and is no longer used.
    pub unsafe fn release(&mut self, block: Range<u64>) {
        // SAFETY: passed on; no block will begin in the used addresses.
        unsafe {
            self.tables
                .unmap(block, FIRST + self.used, &mut self.frames)
        }
    }
}

// Tests of the combination; tables.rs and frames.rs have their own.
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
    fn blocks_have_fresh_addresses_and_frames_are_reused() {
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
            let tables = FRAMES * FRAME - space.frames.free_bytes();
            assert!(tables <= 12 * FRAME, "tables are reused: {tables}");
        });
    }

    #[test]
    fn a_window_takes_only_its_tables() {
        with_space(|space| {
            let free = space.frames.free_bytes();
            // SAFETY: far from blocks, and never accessed.
            assert!(unsafe { space.map(4 << 30..5 << 30) }.is_some());
            assert_eq!(free - space.frames.free_bytes(), 2 * FRAME);
        });
    }

    #[test]
    fn last_frames_are_taken_from_the_end() {
        with_space(|space| {
            let last = space.take_last(8 * FRAME).unwrap();
            let block = space.allocate(FRAME, 0);
            assert_eq!(space.take_last(FRAME), Some(last - FRAME));
            assert!(block.is_some());
            assert_eq!(space.take_last(FRAMES * FRAME), None);
        });
    }

    #[test]
    fn an_allocation_beyond_memory_fails_without_effect() {
        with_space(|space| {
            let free = space.frames.free_bytes();
            assert_eq!(space.allocate(FRAMES * FRAME, 0), None);
            assert_eq!(space.allocate(u64::MAX, 0), None);
            assert_eq!(space.allocate(1 << 46, 0), None);
            assert_eq!(space.frames.free_bytes(), free);
            let most = (FRAMES - 8) * FRAME;
            assert!(space.allocate(most, 0).is_some());
        });
    }
}
