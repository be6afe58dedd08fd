//! Frames of processes, with the number of page tables that map each.
//!
//! They are one run of RAM, so that each has a number. The run is identity-mapped in every address
//! space, for the kernel only, so that it can access the frames of any process.

use crate::memory::FRAME;
use core::ptr;

/// Number of frames.
pub const FRAMES: usize = 2048;

/// Length of the run, in bytes.
pub const BYTES: u64 = FRAMES as u64 * FRAME;

/// Free and counted frames.
pub struct Pool {
    /// Address of frame 0.
    first: u64,
    /// References to each frame: fewer than 256, because each process has one at most.
    counts: [u8; FRAMES],
    /// Stack of free frames, of which the first `free_count` are valid.
    free: [u16; FRAMES],
    free_count: usize,
}

impl Pool {
    /// Creates an empty pool. It is all zero, so that it is not part of the image file.
    pub const fn new() -> Self {
        Self {
            first: 0,
            counts: [0; FRAMES],
            free: [0; FRAMES],
            free_count: 0,
        }
    }

    /// Takes over [`FRAMES`] frames, the lowest of which is allocated first.
    ///
    /// # Safety
    /// The run at `first` is page-aligned RAM, identity-mapped, and otherwise unused.
    pub unsafe fn open(&mut self, first: u64) {
        self.first = first;
        self.counts.fill(0);
        for (slot, number) in self.free.iter_mut().zip((0..FRAMES as u16).rev()) {
            *slot = number;
        }
        self.free_count = FRAMES;
    }

    /// Returns the number of free frames.
    pub fn free_count(&self) -> usize {
        self.free_count
    }

    /// Allocates a frame with one reference. Its content is undefined.
    pub fn take(&mut self) -> Option<u64> {
        let left = self.free_count.checked_sub(1)?;
        self.free_count = left;
        let number = usize::from(self.free[left]);
        self.counts[number] = 1;
        Some(self.first + number as u64 * FRAME)
    }

    /// Allocates a frame of zeros.
    pub fn take_zeroed(&mut self) -> Option<u64> {
        let frame = self.take()?;
        // SAFETY: the frame was just allocated, and is identity-mapped by the contract of `open`.
        unsafe { ptr::write_bytes(frame as *mut u8, 0, FRAME as usize) };
        Some(frame)
    }

    /// Allocates a copy of `frame`.
    pub fn take_copy(&mut self, frame: u64) -> Option<u64> {
        let copy = self.take()?;
        // SAFETY: both are different frames of the run, identity-mapped by the contract of `open`.
        unsafe {
            ptr::copy_nonoverlapping(frame as *const u8, copy as *mut u8, FRAME as usize);
        }
        Some(copy)
    }

    fn number(&self, frame: u64) -> usize {
        ((frame - self.first) / FRAME) as usize
    }

    /// Adds a reference.
    pub fn share(&mut self, frame: u64) {
        self.counts[self.number(frame)] += 1;
    }

    /// Returns true if `frame` has more than one reference.
    pub fn is_shared(&self, frame: u64) -> bool {
        self.counts[self.number(frame)] > 1
    }

    /// Removes a reference. The last one frees the frame.
    pub fn release(&mut self, frame: u64) {
        let number = self.number(frame);
        self.counts[number] -= 1;
        if self.counts[number] == 0 {
            self.free[self.free_count] = number as u16;
            self.free_count += 1;
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::alloc::{alloc, dealloc, Layout};
    use std::boxed::Box;

    /// Runs `test` with a pool of host memory, which is as if identity-mapped. All frames are free
    /// again afterwards.
    pub fn with_pool(test: impl FnOnce(&mut Pool)) {
        let layout = Layout::from_size_align(BYTES as usize, FRAME as usize).unwrap();
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc(layout) };
        let mut pool = Box::new(Pool::new());
        // SAFETY: the memory is the test's own and outlives the pool.
        unsafe { pool.open(memory as u64) };
        test(&mut pool);
        assert_eq!(pool.free_count(), FRAMES, "a frame is lost");
        // SAFETY: allocated above with this layout.
        unsafe { dealloc(memory, layout) };
    }

    #[test]
    fn a_frame_is_free_after_its_last_release() {
        with_pool(|pool| {
            let frame = pool.take().unwrap();
            assert_eq!(frame, pool.first, "the lowest first");
            assert!(!pool.is_shared(frame));
            pool.share(frame);
            assert!(pool.is_shared(frame));
            pool.release(frame);
            assert_eq!(pool.free_count(), FRAMES - 1);
            pool.release(frame);
            assert_eq!(pool.take(), Some(frame), "the last freed is reused");
            pool.release(frame);
        });
    }

    #[test]
    fn an_exhausted_pool_allocates_nothing() {
        with_pool(|pool| {
            let frames: std::vec::Vec<_> = std::iter::from_fn(|| pool.take()).collect();
            assert_eq!(frames.len(), FRAMES);
            assert_eq!(pool.take_zeroed(), None);
            assert_eq!(pool.take_copy(frames[0]), None);
            frames.into_iter().for_each(|frame| pool.release(frame));
        });
    }
}
