//! Driver's side of a split virtqueue (virtio 1.2, section 2.7), for drivers that own its descriptors.

use core::sync::atomic::{fence, AtomicU16, Ordering};
use trapline_workloads::Reason;

/// Maximum size of a queue.
pub const MAX_SIZE: u16 = 128;
/// Bytes of a queue in memory: a page for descriptors and available ring, one for the used ring.
pub const BYTES: usize = 2 * 4096;

/// Offsets in the memory of a queue.
pub const DESCRIPTORS: usize = 0;
pub const AVAILABLE: usize = 2048;
pub const USED: usize = 4096;

/// Bytes of a descriptor, and of an element of the used ring.
const DESCRIPTOR: usize = 16;
const ELEMENT: usize = 8;

/// Flags of a descriptor.
pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;

/// Flag of the available ring: no interrupts.
const NO_INTERRUPT: u16 = 1;
/// Flag of the used ring: no notifications.
const NO_NOTIFY: u16 = 1;

/// A queue.
pub struct Queue {
    base: *mut u8,
    bytes: usize,
    size: u16,
    /// Event index was negotiated (2.7.7.2, 2.7.10).
    event_index: bool,
    /// Next index of the available ring, and its value at the last notification.
    available: u16,
    notified: u16,
    /// Next index of the used ring.
    used: u16,
}

impl Queue {
    /// Creates a queue of `size` descriptors, a power of two up to [`MAX_SIZE`].
    ///
    /// # Safety
    /// `base` is page-aligned memory of `bytes`, at least [`BYTES`], whose physical address is the same, and
    /// which is not accessed otherwise as long as the device is running.
    pub unsafe fn new(base: *mut u8, bytes: usize, size: u16, event_index: bool) -> Self {
        // SAFETY: the memory is exclusive, by contract.
        unsafe { base.write_bytes(0, bytes) };
        Self {
            base,
            bytes,
            size,
            event_index,
            available: 0,
            notified: 0,
            used: 0,
        }
    }

    /// Returns the physical addresses of descriptor table, available ring and used ring.
    pub fn addresses(&self) -> [u64; 3] {
        [DESCRIPTORS, AVAILABLE, USED].map(|offset| self.address(offset))
    }

    /// Returns the physical address of the memory at `offset`.
    pub fn address(&self, offset: usize) -> u64 {
        self.base as u64 + offset as u64
    }

    /// Returns the number of descriptors.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Makes the chain that begins with descriptor `first` available to the device.
    #[inline(always)]
    pub fn push(&mut self, first: u16) {
        let place = AVAILABLE + 4 + 2 * usize::from(self.available % self.size);
        self.write(place, first);
        self.available = self.available.wrapping_add(1);
        self.index(AVAILABLE + 2)
            .store(self.available, Ordering::Release);
    }

    /// Returns true if the device has to be notified of the chains since the last call.
    #[inline(always)]
    pub fn needs_notification(&mut self) -> bool {
        // The device sees the index before its wish is read.
        fence(Ordering::SeqCst);
        let before = core::mem::replace(&mut self.notified, self.available);
        if !self.event_index {
            return self.index(USED).load(Ordering::Relaxed) & NO_NOTIFY == 0;
        }
        let place = USED + 4 + ELEMENT * usize::from(self.size);
        let event = self.index(place).load(Ordering::Relaxed);
        let since = self.available.wrapping_sub(event).wrapping_sub(1);
        since < self.available.wrapping_sub(before)
    }

    /// Requests an interrupt for the next completion, or none. A completion before this call may
    /// cause none: check [`Self::has_completion`] afterwards.
    #[inline(always)]
    pub fn set_interrupt(&mut self, wanted: bool) {
        if self.event_index {
            let event = if wanted {
                self.used
            } else {
                self.used.wrapping_sub(1)
            };
            let place = AVAILABLE + 4 + 2 * usize::from(self.size);
            self.index(place).store(event, Ordering::Relaxed);
        } else {
            let flags = if wanted { 0 } else { NO_INTERRUPT };
            self.index(AVAILABLE).store(flags, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// Returns true if the device reports a completion.
    #[inline(always)]
    pub fn has_completion(&self) -> bool {
        self.index(USED + 2).load(Ordering::Acquire) != self.used
    }

    /// Returns the first descriptor and the length of the next completed chain as the device reports them,
    /// unchecked; `None` if there is none. [`Self::take`] has to follow.
    ///
    /// # Errors
    /// The device reports more completions than the `in_flight` chains.
    #[inline(always)]
    pub fn completion(&self, in_flight: u16) -> Result<Option<(u32, u32)>, Reason> {
        let reported = self.index(USED + 2).load(Ordering::Acquire);
        let new = reported.wrapping_sub(self.used);
        if new == 0 {
            return Ok(None);
        }
        if new > in_flight {
            return Err("the device reports more completions than requests in flight");
        }
        let element = USED + 4 + ELEMENT * usize::from(self.used % self.size);
        Ok(Some((self.read(element), self.read(element + 4))))
    }

    /// Removes the completion that [`Self::completion`] returned.
    #[inline(always)]
    pub fn take(&mut self) {
        self.used = self.used.wrapping_add(1);
    }

    /// Writes a descriptor.
    #[inline(always)]
    pub fn describe(&mut self, number: u16, address: u64, length: u32, flags: u16, next: u16) {
        let place = DESCRIPTORS + usize::from(number) * DESCRIPTOR;
        self.write(place, address);
        self.write(place + 8, length);
        self.write(place + 12, flags);
        self.write(place + 14, next);
    }

    /// Changes the next descriptor of a chain.
    #[inline(always)]
    pub fn link(&mut self, number: u16, next: u16) {
        self.write(DESCRIPTORS + usize::from(number) * DESCRIPTOR + 14, next);
    }

    #[inline(always)]
    fn index(&self, offset: usize) -> &AtomicU16 {
        debug_assert!(offset + 2 <= self.bytes && offset.is_multiple_of(2));
        // SAFETY: an aligned word of the queue's memory, which is accessed by atomics only.
        unsafe { AtomicU16::from_ptr(self.base.add(offset).cast()) }
    }

    /// Reads a number of the memory.
    #[inline(always)]
    pub fn read<T: Copy>(&self, offset: usize) -> T {
        debug_assert!(offset + size_of::<T>() <= self.bytes);
        // SAFETY: an aligned number in the queue's memory; the device may change it at any time.
        unsafe { self.base.add(offset).cast::<T>().read_volatile() }
    }

    /// Writes a number to the memory.
    #[inline(always)]
    pub fn write<T: Copy>(&mut self, offset: usize, value: T) {
        debug_assert!(offset + size_of::<T>() <= self.bytes);
        // SAFETY: as in `read`.
        unsafe { self.base.add(offset).cast::<T>().write_volatile(value) };
    }
}
