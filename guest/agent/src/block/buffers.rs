//! Memory that requests are made with: aligned as a disk wants it, and there before the
//! first request is.

use super::units;
use std::ptr::{self, NonNull};
use trapline_abi::block::{LARGE, SMALL};
use trapline_workloads::block::{fill, holds, is_stamped, stamp, WORDS};

/// As many bytes for each of some slots.
pub struct Buffers {
    start: NonNull<u8>,
    slots: usize,
    bytes: usize,
    /// Slots of large requests that lack only stamps.
    filled: Vec<bool>,
}

// SAFETY: it is the only one who knows its memory, like a `Vec`.
unsafe impl Send for Buffers {}

impl Buffers {
    /// `slots` of `bytes` each, a multiple of [`SMALL`]; `None` if memory is too small.
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

    /// The first byte of a slot.
    pub fn address(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.slots, "there is no such slot");
        self.start.as_ptr().wrapping_add(slot * self.bytes)
    }

    /// A slot's bytes.
    pub fn bytes(&self, slot: usize) -> &[u8] {
        // SAFETY: a slot of the mapping, which lives as long as `self`; who lets the
        // kernel write to it looks at it only when the kernel is done.
        unsafe { std::slice::from_raw_parts(self.address(slot), self.bytes) }
    }

    /// The same, to be written to.
    pub fn bytes_mut(&mut self, slot: usize) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed for it alone.
        unsafe { std::slice::from_raw_parts_mut(self.address(slot), self.bytes) }
    }

    fn unit(&self, slot: usize, unit: u64) -> *mut [u64; WORDS] {
        let at = unit as usize * SMALL as usize;
        self.address(slot).wrapping_add(at).cast()
    }

    /// Puts into `slot` what is at `place`, counted in slots. Nobody else writes to it
    /// in between.
    pub fn fill(&mut self, slot: usize, place: u64, generation: u8) {
        let is_large = self.bytes == LARGE as usize;
        let put = match is_large && self.filled[slot] {
            true => stamp,
            false => fill,
        };
        self.filled[slot] = true;
        let units = units(self.bytes as u32);
        for unit in 0..units {
            // SAFETY: one of the slot's units, aligned to a page; `self` is borrowed for
            // it alone.
            let words = unsafe { &mut *self.unit(slot, unit) };
            put(words, place * units + unit, generation);
        }
    }

    /// Whether `slot` holds what [`Self::fill`] puts there.
    pub fn hold(&self, slot: usize, place: u64, generation: u8) -> bool {
        self.are(slot, place, |words, number| {
            holds(words, number, generation)
        })
    }

    /// Whether all sectors in `slot` have the right stamps.
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
        // SAFETY: mapped by `new`, and nobody has its memory any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.slots * self.bytes) };
    }
}
