//! Buffers of disk requests: aligned for O_DIRECT, and populated before the first request.

use super::units;
use std::ptr::{self, NonNull};
use trapline_abi::block::{LARGE, SMALL};
use trapline_workloads::block::{fill, holds, is_stamped, stamp, WORDS};

/// Slots of equal size.
pub struct Buffers {
    start: NonNull<u8>,
    slots: usize,
    bytes: usize,
    /// Slots of large requests that need only new stamps.
    filled: Vec<bool>,
}

// SAFETY: it owns its memory, like a `Vec`.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Allocates `slots` of `bytes` each, a multiple of [`SMALL`]; `None` if memory is exhausted.
    pub fn new(slots: usize, bytes: u32) -> Option<Self> {
        let bytes = bytes as usize;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let length = slots.checked_mul(bytes)?;
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let start = NonNull::new(start.cast())?;
        Some(Self {
            start,
            slots,
            bytes,
            filled: vec![false; slots],
        })
    }

    /// Returns the address of a slot.
    pub fn address(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.slots, "slot out of range");
        self.start.as_ptr().wrapping_add(slot * self.bytes)
    }

    /// Returns the bytes of a slot.
    pub fn bytes(&self, slot: usize) -> &[u8] {
        // SAFETY: a slot of the mapping, which is valid as long as `self`; the bytes are read only after
        // the kernel has completed a request.
        unsafe { std::slice::from_raw_parts(self.address(slot), self.bytes) }
    }

    /// Returns the bytes of a slot.
    pub fn bytes_mut(&mut self, slot: usize) -> &mut [u8] {
        // SAFETY: as above, exclusive because of the borrow.
        unsafe { std::slice::from_raw_parts_mut(self.address(slot), self.bytes) }
    }

    fn unit(&self, slot: usize, unit: u64) -> *mut [u64; WORDS] {
        let at = unit as usize * SMALL as usize;
        self.address(slot).wrapping_add(at).cast()
    }

    /// Fills `slot` with the content of `place`, in multiples of the slot size. No other code
    /// writes to the slot.
    pub fn fill(&mut self, slot: usize, place: u64, generation: u8) {
        let is_large = self.bytes == LARGE as usize;
        let put = if is_large && self.filled[slot] {
            stamp
        } else {
            fill
        };
        self.filled[slot] = true;
        let units = units(self.bytes as u32);
        for unit in 0..units {
            // SAFETY: a page-aligned unit of the slot, exclusive because of the borrow.
            let words = unsafe { &mut *self.unit(slot, unit) };
            put(words, place * units + unit, generation);
        }
    }

    /// Returns true if `slot` has the content of [`Self::fill`].
    pub fn hold(&self, slot: usize, place: u64, generation: u8) -> bool {
        self.are(slot, place, |words, number| {
            holds(words, number, generation)
        })
    }

    /// Returns true if `slot` has the stamps of [`Self::fill`].
    pub fn are_stamped(&self, slot: usize, place: u64, generation: u8) -> bool {
        self.are(slot, place, |words, number| {
            is_stamped(words, number, generation)
        })
    }

    fn are(&self, slot: usize, place: u64, right: impl Fn(&[u64; WORDS], u64) -> bool) -> bool {
        let units = units(self.bytes as u32);
        (0..units).all(|unit| {
            // SAFETY: as in `bytes`.
            let words = unsafe { &*self.unit(slot, unit) };
            right(words, place * units + unit)
        })
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, no longer used.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.slots * self.bytes) };
    }
}
