//! Driver of a packed virtqueue.

use super::{Driver, Returned};
use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicU16, Ordering};

const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// A queue, at an address of this process.
pub struct PackedDriver {
    descriptors: NonNull<u8>,
    device: NonNull<u16>,
    size: u16,
    next: u16,
    wrap: bool,
    taken: u16,
    taken_wrap: bool,
    /// Position and flags of the first descriptor since [`Driver::publish`], which the device sees last.
    first: Option<(u16, u16)>,
}

// SAFETY: the pointers are to memory that all threads may access.
unsafe impl Send for PackedDriver {}

impl PackedDriver {
    /// Offsets of the event suppression of driver and device, and length of all, for a queue of this size.
    pub const fn layout(size: u16) -> [u64; 3] {
        let end = 16 * size as u64;
        let device = (end + 4).next_multiple_of(4096);
        [end, device, device + 4]
    }

    /// Returns the driver of a queue of zeros at `start`.
    ///
    /// # Safety
    /// [`Self::layout`] bytes from `start`, aligned to 16 bytes, are memory that lives as long as the driver.
    pub unsafe fn new(start: NonNull<u8>, size: u16) -> Self {
        let [_, device, _] = Self::layout(size);
        Self {
            descriptors: start,
            // SAFETY: the offset is in the queue.
            device: unsafe { start.add(device as usize) }.cast(),
            size,
            next: 0,
            wrap: true,
            taken: 0,
            taken_wrap: true,
            first: None,
        }
    }

    fn flags(&self, index: u16) -> &AtomicU16 {
        // SAFETY: the descriptor is in the ring, see `new`.
        unsafe {
            let at = self.descriptors.as_ptr().add(16 * usize::from(index) + 14);
            AtomicU16::from_ptr(at.cast())
        }
    }
}

impl Driver for PackedDriver {
    fn set_notifications(&mut self, are_wanted: bool) {
        let [own, ..] = Self::layout(self.size);
        // SAFETY: the second half of the event suppression is in the queue.
        let flags =
            unsafe { AtomicU16::from_ptr(self.descriptors.as_ptr().add(own as usize + 2).cast()) };
        flags.store(u16::from(!are_wanted), Ordering::SeqCst);
    }

    #[inline]
    fn add(&mut self, id: u16, address: u64, length: u32, is_writable: bool) {
        // SAFETY: the descriptor is in the ring.
        unsafe {
            let at = self.descriptors.as_ptr().add(16 * usize::from(self.next));
            at.cast::<u64>().write_volatile(address);
            at.add(8).cast::<u32>().write_volatile(length);
            at.add(12).cast::<u16>().write_volatile(id);
        }
        let available = if self.wrap { AVAILABLE } else { USED };
        let flags = available | (u16::from(is_writable) * 2);
        match self.first {
            None => self.first = Some((self.next, flags)),
            Some(_) => self.flags(self.next).store(flags, Ordering::Release),
        }
        self.next += 1;
        if self.next == self.size {
            (self.next, self.wrap) = (0, !self.wrap);
        }
    }

    #[inline]
    fn publish(&mut self) {
        if let Some((index, flags)) = self.first.take() {
            self.flags(index).store(flags, Ordering::Release);
        }
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn next(&mut self) -> Option<Returned> {
        let flags = self.flags(self.taken).load(Ordering::Acquire);
        let (available, used) = (flags & AVAILABLE != 0, flags & USED != 0);
        if available != used || used != self.taken_wrap {
            return None;
        }
        // SAFETY: the descriptor is in the ring.
        let returned = unsafe {
            let at = self.descriptors.as_ptr().add(16 * usize::from(self.taken));
            Returned {
                written: at.add(8).cast::<u32>().read_volatile(),
                id: at.add(12).cast::<u16>().read_volatile(),
            }
        };
        self.taken += 1;
        if self.taken == self.size {
            (self.taken, self.taken_wrap) = (0, !self.taken_wrap);
        }
        Some(returned)
    }

    fn wants_notification(&self) -> bool {
        // SAFETY: the second half of the event suppression is in the queue.
        let flags = unsafe { AtomicU16::from_ptr(self.device.as_ptr().add(1)) };
        flags.load(Ordering::Relaxed) & 3 != 1
    }
}
