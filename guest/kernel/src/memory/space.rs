//! Blocks: fresh virtual addresses, mapped to frames.
//!
//! Every block gets addresses that were never used before. Its pages are mapped when it is
//! allocated, so that the first touch costs only what the hypervisor adds. Addresses range from
//! 256 GiB to the end of the lower half, 128 TiB.

use super::entry::{Table, REACH};
use super::frames::{Frames, Run, Runs, FRAME};
use super::tables::Tables;
use super::zero::Stores;
use core::ops::Range;

/// First address of blocks.
const FIRST: u64 = 256 << 30;
/// First address that is not canonical.
const LAST: u64 = 1 << 47;

/// Maximum number of upper-level tables that a block may need.
const UPPER_TABLES: u64 = 4;

/// Maximum number of runs of zeroed frames. They are few, because frames are freed in whole blocks.
const MOST_ZEROED: usize = 16;

/// Virtual addresses, page tables and frames.
pub struct Space {
    tables: Tables,
    frames: Frames,
    /// Bytes of used addresses, from [`FIRST`] on.
    used: u64,
    /// Frames of zeros, for [`Self::allocate_zeroed`].
    zeroed: Runs<MOST_ZEROED>,
}

impl Space {
    /// Creates an empty space. It is all zero, so that it is not part of the image file.
    pub const fn new() -> Self {
        Self {
            tables: Tables::none(),
            frames: Frames::new(),
            used: 0,
            zeroed: Runs::new(),
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
        self.allocate_from(bytes, guard, 0, |space, bytes| space.frames.take(bytes))
    }

    /// Allocates a block of zeros like [`Self::allocate`], of frames that [`Self::zero_ahead`] has zeroed, and of
    /// others, which it zeroes.
    pub fn allocate_zeroed(&mut self, bytes: u64, stores: Stores) -> Option<Range<u64>> {
        let ready = self.zeroed.bytes();
        self.allocate_from(bytes, 0, ready, |space, bytes| {
            space
                .zeroed
                .take(bytes)
                .or_else(|| space.take_zeroed(bytes, stores))
        })
    }

    /// Zeroes frames, until there are `bytes` for [`Self::allocate_zeroed`], or memory is exhausted or too
    /// scattered. Returns the number of bytes zeroed.
    pub fn zero_ahead(&mut self, bytes: u64, stores: Stores) -> u64 {
        let before = self.zeroed.bytes();
        let mut ready = before;
        while ready < bytes && !self.zeroed.is_full() {
            let Some(run) = self.take_zeroed(bytes - ready, stores) else {
                break;
            };
            ready += run.end - run.start;
            self.zeroed.add(run);
        }
        ready - before
    }

    /// Allocates a run of at most `bytes` and zeroes it.
    #[inline(never)]
    fn take_zeroed(&mut self, bytes: u64, stores: Stores) -> Option<Run> {
        let run = self.frames.take_to_write(bytes)?;
        // SAFETY: just allocated, and identity-mapped by the contract of `open`.
        unsafe { stores.zero(run.clone()) };
        Some(run)
    }

    /// Allocates a block of the runs that `take` returns, of which it has `ready` bytes beside [`Self::frames`].
    #[inline(always)]
    fn allocate_from(
        &mut self,
        bytes: u64,
        guard: u64,
        ready: u64,
        take: impl Fn(&mut Self, u64) -> Option<Run>,
    ) -> Option<Range<u64>> {
        let length = bytes.checked_next_multiple_of(FRAME)?.max(FRAME);
        let start = (FIRST + self.used).checked_add(guard * FRAME)?;
        let end = start.checked_add(length).filter(|end| *end <= LAST)?;
        let for_tables = (length / REACH + 1 + UPPER_TABLES) * FRAME;
        if self.frames.free_bytes() < length.saturating_sub(ready).checked_add(for_tables)? {
            return None;
        }
        self.used = end - FIRST;
        let mut at = start;
        while at < end {
            let run = take(self, end - at)?;
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

    /// Maps registers of a device, in whole pages, at fresh addresses. Returns the first; `None` if memory for tables or
    /// addresses are exhausted.
    ///
    /// # Safety
    /// The range is not memory.
    pub unsafe fn map_registers(&mut self, range: Run) -> Option<u64> {
        let bytes = range.end - range.start;
        let block = self.allocate_from(bytes, 0, bytes, |_, _| Some(range.clone()))?;
        Some(block.start)
    }

    /// Allocates `bytes` of the last frames, without addresses. Returns the first.
    pub fn take_last(&mut self, bytes: u64) -> Option<u64> {
        self.frames.take_last(bytes).map(|run| run.start)
    }

    /// Exchanges the frames of two pages. TLBs may keep the old translations.
    ///
    /// # Safety
    /// The pages are of blocks that are not released. Other CPUs only read them.
    pub unsafe fn exchange(&mut self, one: u64, other: u64) {
        // SAFETY: same contract.
        unsafe { self.tables.exchange(one, other) }
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
        // SAFETY: the layout is not empty, and the memory has its length.
        let ram = unsafe {
            let ram = std::alloc::alloc(layout);
            ram.write_bytes(0xa5, layout.size());
            ram
        };
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
    fn frames_of_pages_in_different_tables_are_exchanged() {
        with_space(|space| {
            let block = space.allocate(2 * FRAME, REACH / FRAME - 1).unwrap();
            let pages = [block.start, block.start + FRAME];
            assert_eq!(pages[1] % REACH, 0);
            let before = pages.map(|page| space.tables.frame(page));
            // SAFETY: allocated above and not used.
            unsafe { space.exchange(pages[0], pages[1]) };
            let after = pages.map(|page| space.tables.frame(page));
            assert_eq!([after[1], after[0]], before);
        });
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

    /// Returns true if all bytes of the block's frames are zero.
    fn is_zero(space: &Space, block: Range<u64>) -> bool {
        block.step_by(FRAME as usize).all(|page| {
            // SAFETY: the page is mapped, and frames are the test's own.
            unsafe {
                *space.tables.frame(page).cast::<[u8; FRAME as usize]>() == [0; FRAME as usize]
            }
        })
    }

    #[test]
    fn zeroed_blocks_are_zero_whenever_their_frames_were_zeroed() {
        with_space(|space| {
            for ahead in [0, 3 * FRAME, 8 * FRAME, 100 * FRAME] {
                let free = space.frames.free_bytes();
                let zeroed = space.zero_ahead(ahead, Stores::Ordinary);
                assert!(space.zeroed.bytes() >= ahead);
                assert_eq!(free - space.frames.free_bytes(), zeroed);
                let block = space
                    .allocate_zeroed(8 * FRAME, Stores::NonTemporal)
                    .unwrap();
                assert!(is_zero(space, block.clone()), "{ahead} bytes ahead");
                for page in block.clone().step_by(FRAME as usize) {
                    // SAFETY: as in `is_zero`.
                    unsafe { space.tables.frame(page).write_bytes(0xa5, FRAME as usize) };
                }
                // SAFETY: allocated above, no longer used.
                unsafe { space.release(block) };
            }
        });
    }

    #[test]
    fn zeroed_frames_count_as_memory_of_zeroed_blocks_only() {
        with_space(|space| {
            let all = space.frames.free_bytes();
            assert_eq!(space.zero_ahead(2 * all, Stores::Ordinary), all);
            assert_eq!(space.allocate(FRAME, 0), None);
            assert_eq!(
                space.allocate_zeroed(FRAME, Stores::Ordinary),
                None,
                "no table"
            );
        });
        with_space(|space| {
            let tables = (1 + UPPER_TABLES) * FRAME;
            space.zero_ahead(space.frames.free_bytes() - tables, Stores::Ordinary);
            let ready = space.zeroed.bytes();
            assert_eq!(
                space.zero_ahead(ready, Stores::Ordinary),
                0,
                "already zeroed"
            );
            assert!(space.allocate_zeroed(8 * FRAME, Stores::Ordinary).is_some());
            assert_eq!(space.zeroed.bytes(), ready - 8 * FRAME);
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
    fn registers_are_mapped_at_fresh_addresses() {
        with_space(|space| {
            let free = space.frames.free_bytes();
            let registers = 256 << 30..(256 << 30) + 2 * FRAME;
            let block = space.allocate(FRAME, 0).unwrap();
            // SAFETY: never accessed.
            let first = unsafe { space.map_registers(registers.clone()) }.unwrap();
            assert_eq!(first, block.end);
            for (page, frame) in (first..)
                .step_by(FRAME as usize)
                .zip(registers.step_by(FRAME as usize))
            {
                assert_eq!(space.tables.frame(page) as u64, frame);
            }
            assert_eq!(
                free - space.frames.free_bytes(),
                4 * FRAME,
                "a page and three tables"
            );
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
