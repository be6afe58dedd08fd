//! Driver of a split virtqueue.

use super::{Driver, Returned};
use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicU16, Ordering};

/// A queue, at an address of this process.
pub struct SplitDriver {
    descriptors: NonNull<u8>,
    available: NonNull<u16>,
    used: NonNull<u16>,
    size: u16,
    next: u16,
    taken: u16,
    /// Position of the device when it was read last.
    end: u16,
}

// SAFETY: the pointers are to memory that all threads may access.
unsafe impl Send for SplitDriver {}

impl SplitDriver {
    /// Offsets of the available and the used ring, and length of all, for a queue of this size.
    pub const fn layout(size: u16) -> [u64; 3] {
        let size = size as u64;
        let available = 16 * size;
        let used = (available + 6 + 2 * size).next_multiple_of(4096);
        [available, used, used + 6 + 8 * size]
    }

    /// Returns the driver of a queue of zeros at `start`.
    ///
    /// # Safety
    /// [`Self::layout`] bytes from `start`, aligned to 16 bytes, are memory that lives as long as the driver. The size is a
    /// power of two.
    pub unsafe fn new(start: NonNull<u8>, size: u16) -> Self {
        let [available, used, _] = Self::layout(size);
        // SAFETY: both offsets are in the queue.
        let (available, used) =
            unsafe { (start.add(available as usize), start.add(used as usize)) };
        Self {
            descriptors: start,
            available: available.cast(),
            used: used.cast(),
            size,
            next: 0,
            taken: 0,
            end: 0,
        }
    }

    fn word(at: NonNull<u16>, index: usize) -> &'static AtomicU16 {
        // SAFETY: the callers' indices are in the ring, see `new`. The reference is not kept.
        unsafe { AtomicU16::from_ptr(at.as_ptr().add(index)) }
    }
}

impl Driver for SplitDriver {
    fn set_notifications(&mut self, are_wanted: bool) {
        Self::word(self.available, 0).store(u16::from(!are_wanted), Ordering::SeqCst);
    }

    #[inline]
    fn add(&mut self, id: u16, address: u64, length: u32, is_writable: bool) {
        debug_assert!(id < self.size);
        // SAFETY: the descriptor is in the table.
        unsafe {
            let at = self.descriptors.as_ptr().add(16 * usize::from(id));
            at.cast::<u64>().write_volatile(address);
            at.add(8).cast::<u32>().write_volatile(length);
            at.add(12)
                .cast::<u32>()
                .write_volatile(u32::from(is_writable) * 2);
        }
        let slot = 2 + usize::from(self.next % self.size);
        Self::word(self.available, slot).store(id, Ordering::Relaxed);
        self.next = self.next.wrapping_add(1);
    }

    #[inline]
    fn publish(&mut self) {
        Self::word(self.available, 1).store(self.next, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn next(&mut self) -> Option<Returned> {
        if self.end == self.taken {
            self.end = Self::word(self.used, 1).load(Ordering::Acquire);
        }
        if self.end == self.taken {
            return None;
        }
        let slot = 4 + 8 * usize::from(self.taken % self.size);
        self.taken = self.taken.wrapping_add(1);
        // SAFETY: the element is in the ring.
        unsafe {
            let element = self.used.as_ptr().byte_add(slot).cast::<u32>();
            Some(Returned {
                id: element.read_volatile() as u16,
                written: element.add(1).read_volatile(),
            })
        }
    }

    fn wants_notification(&self) -> bool {
        Self::word(self.used, 0).load(Ordering::Relaxed) & 1 == 0
    }
}
