//! Driver's side of a split virtqueue (virtio 1.2, section 2.7) for block requests (5.2.6).
//!
//! Each request in flight has a slot: three consecutive descriptors for header, data and status. So
//! there is no list of free descriptors, and the device's answers are checked against the slots.

use core::sync::atomic::{fence, AtomicU16, Ordering};
use trapline_workloads::Reason;

/// Maximum size of a queue.
pub const MAX_SIZE: u16 = 128;
/// Descriptors of a slot.
pub const CHAIN: u16 = 3;
/// Maximum number of slots.
pub const MAX_SLOTS: usize = (MAX_SIZE / CHAIN) as usize;
/// Bytes of a ring in memory: a page for descriptors and available ring, one for the used ring, one
/// for headers and statuses.
pub const BYTES: usize = 3 * 4096;

/// Offsets in the memory of a ring.
pub const DESCRIPTORS: usize = 0;
pub const AVAILABLE: usize = 2048;
pub const USED: usize = 4096;
const HEADERS: usize = 8192;
const STATUSES: usize = HEADERS + MAX_SLOTS * HEADER as usize;

/// Bytes of a descriptor, of an element of the used ring, and of a request header.
const DESCRIPTOR: usize = 16;
const ELEMENT: usize = 8;
const HEADER: u32 = 16;

/// Flags of a descriptor.
const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// Flag of the available ring: no interrupts.
const NO_INTERRUPT: u16 = 1;
/// Flag of the used ring: no notifications.
const NO_NOTIFY: u16 = 1;

/// Status that no device writes.
const NO_STATUS: u8 = 0xff;

/// Kind of a request, as in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// VIRTIO_BLK_T_IN.
    Read = 0,
    /// VIRTIO_BLK_T_OUT.
    Write = 1,
    /// VIRTIO_BLK_T_FLUSH.
    Flush = 4,
}

/// A block request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Kind.
    pub kind: Kind,
    /// First sector of 512 bytes; 0 for a flush.
    pub sector: u64,
    /// Physical address of the data.
    pub address: u64,
    /// Length of the data in bytes; 0 for a flush.
    pub bytes: u32,
    /// Number that the completion returns.
    pub tag: u16,
}

/// State of a slot whose request is in flight.
#[derive(Clone, Copy)]
struct Pending {
    tag: u16,
    /// Bytes that the device writes before the status.
    reads: u32,
}

/// The ring and its slots.
pub struct Ring {
    base: *mut u8,
    size: u16,
    /// Event index was negotiated (2.7.7.2, 2.7.10).
    event_index: bool,
    /// Next index of the available ring, and its value at the last notification.
    available: u16,
    notified: u16,
    /// Next index of the used ring.
    used: u16,
    pending: [Option<Pending>; MAX_SLOTS],
    in_flight: u16,
    free: [u8; MAX_SLOTS],
    free_count: usize,
}

impl Ring {
    /// Creates a ring of `size` descriptors, a power of two from [`CHAIN`] to [`MAX_SIZE`].
    ///
    /// # Safety
    /// `base` is page-aligned memory of [`BYTES`] whose physical address is the same, and which is
    /// not accessed otherwise as long as the device is running.
    pub unsafe fn new(base: *mut u8, size: u16, event_index: bool) -> Self {
        let slots = usize::from(size / CHAIN);
        let mut ring = Self {
            base,
            size,
            event_index,
            available: 0,
            notified: 0,
            used: 0,
            pending: [None; MAX_SLOTS],
            in_flight: 0,
            free: [0; MAX_SLOTS],
            free_count: slots,
        };
        // SAFETY: the memory is exclusive, by contract.
        unsafe { base.write_bytes(0, BYTES) };
        for slot in 0..slots {
            ring.free[slot] = slot as u8;
            let first = CHAIN * slot as u16;
            ring.describe(first, ring.header(slot), HEADER, NEXT, first + 1);
            ring.describe(first + 2, ring.status(slot), 1, WRITE, 0);
        }
        ring
    }

    /// Returns the physical addresses of descriptor table, available ring and used ring.
    pub fn addresses(&self) -> [u64; 3] {
        [DESCRIPTORS, AVAILABLE, USED].map(|offset| self.base as u64 + offset as u64)
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// Makes a request available to the device. Returns false if all slots are in use.
    pub fn submit(&mut self, request: &Request) -> bool {
        let Some(last) = self.free_count.checked_sub(1) else {
            return false;
        };
        self.free_count = last;
        let slot = usize::from(self.free[last]);
        let first = CHAIN * slot as u16;
        let (reads, write) = match request.kind {
            Kind::Read => (request.bytes, WRITE),
            Kind::Write | Kind::Flush => (0, 0),
        };
        self.pending[slot] = Some(Pending {
            tag: request.tag,
            reads,
        });
        let header = HEADERS + slot * HEADER as usize;
        self.write(header, request.kind as u32);
        self.write(header + 8, request.sector);
        self.write(STATUSES + slot, NO_STATUS);
        let data = if request.bytes == 0 { 2 } else { 1 };
        self.write(
            DESCRIPTORS + usize::from(first) * DESCRIPTOR + 14,
            first + data,
        );
        self.describe(
            first + 1,
            request.address,
            request.bytes,
            write | NEXT,
            first + 2,
        );
        let place = AVAILABLE + 4 + 2 * usize::from(self.available % self.size);
        self.write(place, first);
        self.available = self.available.wrapping_add(1);
        self.in_flight += 1;
        self.index(AVAILABLE + 2)
            .store(self.available, Ordering::Release);
        true
    }

    /// Returns true if the device has to be notified of the requests since the last call.
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
    pub fn has_completion(&self) -> bool {
        self.index(USED + 2).load(Ordering::Acquire) != self.used
    }

    /// Takes the next completion. Returns the tag of its request; `None` if there is none.
    ///
    /// # Errors
    /// The request failed, or what the device reports is impossible.
    pub fn complete(&mut self) -> Result<Option<u16>, Reason> {
        let reported = self.index(USED + 2).load(Ordering::Acquire);
        let new = reported.wrapping_sub(self.used);
        if new == 0 {
            return Ok(None);
        }
        if new > self.in_flight {
            return Err("the disk reports more completions than requests in flight");
        }
        let element = USED + 4 + ELEMENT * usize::from(self.used % self.size);
        let (id, length): (u32, u32) = (self.read(element), self.read(element + 4));
        let slot = (id / u32::from(CHAIN)) as usize;
        let is_first = id % u32::from(CHAIN) == 0;
        let place = self.pending.get_mut(slot).filter(|_| is_first);
        let Some(pending) = place.and_then(Option::take) else {
            return Err("the disk completed a request that is not in flight");
        };
        self.used = self.used.wrapping_add(1);
        self.in_flight -= 1;
        self.free[self.free_count] = slot as u8;
        self.free_count += 1;
        match self.read::<u8>(STATUSES + slot) {
            0 => {}
            NO_STATUS => return Err("the disk completed a request without a status"),
            _ => return Err("the disk refused a request"),
        }
        match length {
            _ if length > pending.reads + 1 => Err("the disk reports more bytes than requested"),
            _ if length < pending.reads => Err("the disk reports fewer bytes than requested"),
            _ => Ok(Some(pending.tag)),
        }
    }

    fn header(&self, slot: usize) -> u64 {
        self.base as u64 + (HEADERS + slot * HEADER as usize) as u64
    }

    fn status(&self, slot: usize) -> u64 {
        self.base as u64 + (STATUSES + slot) as u64
    }

    fn describe(&mut self, number: u16, address: u64, length: u32, flags: u16, next: u16) {
        let place = DESCRIPTORS + usize::from(number) * DESCRIPTOR;
        self.write(place, address);
        self.write(place + 8, length);
        self.write(place + 12, flags);
        self.write(place + 14, next);
    }

    #[inline(always)]
    fn index(&self, offset: usize) -> &AtomicU16 {
        debug_assert!(offset + 2 <= BYTES && offset.is_multiple_of(2));
        // SAFETY: an aligned word of the ring's memory, which is accessed by atomics only.
        unsafe { AtomicU16::from_ptr(self.base.add(offset).cast()) }
    }

    #[inline(always)]
    fn read<T>(&self, offset: usize) -> T {
        debug_assert!(offset + size_of::<T>() <= BYTES);
        // SAFETY: an aligned number in the ring's memory; the device may change it at any time.
        unsafe { self.base.add(offset).cast::<T>().read_volatile() }
    }

    #[inline(always)]
    fn write<T>(&mut self, offset: usize, value: T) {
        debug_assert!(offset + size_of::<T>() <= BYTES);
        // SAFETY: as in `read`.
        unsafe { self.base.add(offset).cast::<T>().write_volatile(value) };
    }
}
