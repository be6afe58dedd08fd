//! Buffers of disk requests.

use super::disk::SECTOR;
use super::ring::{Kind, Request};
use trapline_abi::block::{LARGE, SMALL};
use trapline_workloads::block::{fill, holds, is_stamped, stamp, WORDS};

/// Maximum number of buffers.
pub const MAX_BUFFERS: usize = 64;

/// Buffers of equal size in the memory of the target.
pub struct Buffers {
    start: *mut u8,
    bytes: u32,
    count: usize,
    /// Buffers of large requests that need only new stamps.
    filled: [bool; MAX_BUFFERS],
}

impl Buffers {
    /// Divides memory into buffers of `bytes`, a multiple of [`SMALL`].
    ///
    /// # Safety
    /// `start` is page-aligned, exclusive memory of `length` bytes, and its physical address is the
    /// same. It outlives the buffers.
    pub unsafe fn new(start: *mut u8, length: usize, bytes: u32) -> Self {
        Self {
            start,
            bytes,
            count: (length / bytes as usize).min(MAX_BUFFERS),
            filled: [false; MAX_BUFFERS],
        }
    }

    fn address(&self, buffer: usize) -> *mut u8 {
        assert!(buffer < self.count, "buffer out of range");
        self.start.wrapping_add(buffer * self.bytes as usize)
    }

    /// Returns the request of a buffer at `place`, in multiples of its size.
    pub fn request(&self, buffer: usize, place: u64, kind: Kind) -> Request {
        Request {
            kind,
            sector: place * (u64::from(self.bytes) / SECTOR),
            address: self.address(buffer) as u64,
            bytes: self.bytes,
            tag: buffer as u16,
        }
    }

    /// Returns the number of units in a buffer.
    fn units(&self) -> u64 {
        u64::from(self.bytes / SMALL)
    }

    fn unit(&self, buffer: usize, unit: u64) -> *mut [u64; WORDS] {
        let offset = unit as usize * SMALL as usize;
        self.address(buffer).wrapping_add(offset).cast()
    }

    /// Fills a buffer with the content of `place`. Its request is not in flight.
    pub fn fill(&mut self, buffer: usize, place: u64, generation: u8) {
        let is_large = self.bytes == LARGE;
        let put = if is_large && self.filled[buffer] {
            stamp
        } else {
            fill
        };
        self.filled[buffer] = true;
        for unit in 0..self.units() {
            // SAFETY: a page-aligned unit of the buffer, which is exclusive.
            let words = unsafe { &mut *self.unit(buffer, unit) };
            put(words, place * self.units() + unit, generation);
        }
    }

    /// Returns true if a buffer has the content of `place`, or its stamps. Its request is completed.
    pub fn hold(&self, buffer: usize, place: u64, generation: u8, stamps_only: bool) -> bool {
        let check = if stamps_only { is_stamped } else { holds };
        (0..self.units()).all(|unit| {
            // SAFETY: as in `fill`.
            let words = unsafe { &*self.unit(buffer, unit) };
            check(words, place * self.units() + unit, generation)
        })
    }
}
