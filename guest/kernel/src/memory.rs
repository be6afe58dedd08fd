//! Memory: RAM as frames, frames behind addresses, addresses as blocks.
//!
//! [`frames`] knows which frames are free, [`tables`] maps them, [`space`] makes
//! blocks of both. Blocks are what the workloads measure. The little memory that
//! the kernel itself needs comes from [`small`], which cuts blocks up.

mod frames;
#[cfg(trapline_image)]
mod small;
mod space;
mod tables;

#[cfg(trapline_image)]
pub use image::{allocate, allocate_guarded, give, map_window, release};

#[cfg(trapline_image)]
mod image {
    use super::space::Space;
    use crate::cpu::Global;
    use core::ops::Range;
    use core::ptr::NonNull;
    use trapline_abi::platform::{WINDOW, WINDOW_SIZE};
    use trapline_workloads::Block;

    extern "C" {
        /// The top-level table; see tables.s.
        static mut trapline_page_table: [u64; 512];
    }

    static SPACE: Global<Space> = Global::new(Space::new());

    /// Gives `range` of RAM to blocks. Called once, at boot.
    pub fn give(range: Range<u64>) {
        // SAFETY: boot.rs found the range to be RAM above the image and below
        // 4 GiB, and what the VMM had put there has been copied. tables.s maps all
        // of it, and the tables, to themselves; from here on only this space
        // changes them.
        unsafe { SPACE.get().open(&raw mut trapline_page_table, range) }
    }

    /// Maps the window in which a VMM gives memory, to itself. Called once. The entry
    /// of its first page; `None` if there is not enough memory for its tables.
    pub fn map_window() -> Option<*const u64> {
        // SAFETY: tables.s maps nothing behind 4 GiB and blocks begin far above; what is
        // there is the VMM's to give, and never RAM that was given out.
        unsafe { SPACE.get().map(WINDOW..WINDOW + WINDOW_SIZE) }
    }

    /// A block of at least `bytes`; `None` if there is not enough memory.
    #[inline]
    pub fn allocate(bytes: usize) -> Option<Block> {
        allocate_behind(bytes, 0)
    }

    /// The same, with a page before it that faults: for stacks.
    pub fn allocate_guarded(bytes: usize) -> Option<Block> {
        allocate_behind(bytes, 1)
    }

    fn allocate_behind(bytes: usize, guard: u64) -> Option<Block> {
        // SAFETY: nothing in there calls back.
        let range = unsafe { SPACE.get() }.allocate(bytes as u64, guard)?;
        Some(Block {
            start: NonNull::new(range.start as *mut u8)?,
            length: (range.end - range.start) as usize,
        })
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// `block` came from here, was not released before, and nobody uses it.
    pub unsafe fn release(block: Block) {
        let start = block.start.as_ptr() as u64;
        // SAFETY: passed on.
        unsafe { SPACE.get().release(start..start + block.length as u64) }
    }
}
