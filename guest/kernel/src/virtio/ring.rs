//! Block requests (virtio 1.2, section 5.2.6) in a [`Queue`].
//!
//! Each request in flight has a slot: three consecutive descriptors for header, data and status. So
//! there is no list of free descriptors, and the device's answers are checked against the slots.

use super::queue::{self, Queue, MAX_SIZE, NEXT, WRITE};
use trapline_workloads::Reason;

/// Descriptors of a slot.
pub const CHAIN: u16 = 3;
/// Maximum number of slots.
pub const MAX_SLOTS: usize = (MAX_SIZE / CHAIN) as usize;
/// Bytes of a ring in memory: the queue, and a page for headers and statuses.
pub const BYTES: usize = queue::BYTES + 4096;

/// Offsets in the memory of a ring.
const HEADERS: usize = queue::BYTES;
const STATUSES: usize = HEADERS + MAX_SLOTS * HEADER as usize;

/// Bytes of a request header.
const HEADER: u32 = 16;

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
    /// Its queue.
    pub queue: Queue,
    pending: [Option<Pending>; MAX_SLOTS],
    in_flight: u16,
    free: [u8; MAX_SLOTS],
    free_count: usize,
}

impl Ring {
    /// Creates a ring of `size` descriptors, a power of two from [`CHAIN`] to [`MAX_SIZE`].
    ///
    /// # Safety
    /// Same contract as of [`Queue::new`] for `base` with [`BYTES`].
    pub unsafe fn new(base: *mut u8, size: u16, event_index: bool) -> Self {
        let slots = usize::from(size / CHAIN);
        let mut ring = Self {
            // SAFETY: same contract.
            queue: unsafe { Queue::new(base, BYTES, size, event_index) },
            pending: [None; MAX_SLOTS],
            in_flight: 0,
            free: [0; MAX_SLOTS],
            free_count: slots,
        };
        for slot in 0..slots {
            ring.free[slot] = slot as u8;
            let first = CHAIN * slot as u16;
            let header = ring.queue.address(HEADERS + slot * HEADER as usize);
            let status = ring.queue.address(STATUSES + slot);
            ring.queue.describe(first, header, HEADER, NEXT, first + 1);
            ring.queue.describe(first + 2, status, 1, WRITE, 0);
        }
        ring
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
        self.queue.write(header, request.kind as u32);
        self.queue.write(header + 8, request.sector);
        self.queue.write(STATUSES + slot, NO_STATUS);
        let data = if request.bytes == 0 { 2 } else { 1 };
        self.queue.link(first, first + data);
        self.queue.describe(
            first + 1,
            request.address,
            request.bytes,
            write | NEXT,
            first + 2,
        );
        self.in_flight += 1;
        self.queue.push(first);
        true
    }

    /// Takes the next completion. Returns the tag of its request; `None` if there is none.
    ///
    /// # Errors
    /// The request failed, or what the device reports is impossible.
    pub fn complete(&mut self) -> Result<Option<u16>, Reason> {
        let Some((id, length)) = self.queue.completion(self.in_flight)? else {
            return Ok(None);
        };
        let slot = (id / u32::from(CHAIN)) as usize;
        let is_first = id % u32::from(CHAIN) == 0;
        let place = self.pending.get_mut(slot).filter(|_| is_first);
        let Some(pending) = place.and_then(Option::take) else {
            return Err("the disk completed a request that is not in flight");
        };
        self.queue.take();
        self.in_flight -= 1;
        self.free[self.free_count] = slot as u8;
        self.free_count += 1;
        match self.queue.read::<u8>(STATUSES + slot) {
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
}
