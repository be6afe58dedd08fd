//! A block device (virtio 1.2, section 5.2).
//!
//! A request is checked ([`request`]) and becomes an [`Order`] for the owner of the file. Orders complete in any order,
//! by their tag ([`Block::landed`]); the next [`Block::serve`] returns their requests to the driver. After a reset
//! outstanding orders still complete, without effect on the new driver.

mod config;
mod request;

use self::config::configuration;
use self::request::{Parsed, Request};
use crate::virtio::chain::{slices, Part};
use crate::virtio::{Chain, Device, DriverError, Memory, Progress, Ring};
use alloc::vec::Vec;

const KIND: u32 = 2;

/// Limit of requests in flight.
pub const MAX: u16 = 128;
const QUEUES: [u16; 1] = [MAX];

/// Sector size in bytes, independent of the block size.
pub const SECTOR: u64 = 512;

/// `seg_max`: the ring without header and status descriptors.
const MAX_PARTS: u32 = MAX as u32 - 2;

/// Longest discard or write-zeroes range in sectors: 1 GiB.
const MAX_CLEARED: u32 = 1 << 21;

/// Length of the device ID string.
pub const IDENTITY: usize = 20;

// Features (section 5.2.3).
const SEG_MAX: u64 = 1 << 2;
const READ_ONLY: u64 = 1 << 5;
const BLK_SIZE: u64 = 1 << 6;
/// VIRTIO_BLK_F_FLUSH: writes are stable after a flush. Without it, every write is stable on completion.
pub const FLUSH: u64 = 1 << 9;
const TOPOLOGY: u64 = 1 << 10;
const DISCARD: u64 = 1 << 13;
const WRITE_ZEROES: u64 = 1 << 14;

/// Properties of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Geometry {
    /// Length in sectors.
    pub sectors: u64,
    /// Writes are rejected.
    pub read_only: bool,
    /// Discard and write-zeroes are supported.
    pub clears: bool,
    /// Block size in bytes, a power of 2 from one sector.
    pub block: u32,
    /// Device ID, padded with zeroes.
    pub identity: [u8; IDENTITY],
}

/// Status of a completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Success.
    Done = 0,
    /// VIRTIO_BLK_S_IOERR.
    Failed = 1,
    /// VIRTIO_BLK_S_UNSUPP.
    Unsupported = 2,
}

/// A disk operation.
#[derive(Debug)]
pub struct Order<'a> {
    /// Identifies the order at completion.
    pub tag: u16,
    /// Operation.
    pub work: Work<'a>,
    /// The data must be stable at completion.
    pub stable: bool,
}

/// Kind of operation, from byte `offset`.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Work<'a> {
    Read {
        offset: u64,
        into: Data<'a>,
    },
    Write {
        offset: u64,
        from: Data<'a>,
    },
    /// Make stable what came back before.
    Flush,
    /// Deallocates a range.
    Discard {
        offset: u64,
        length: u64,
    },
    /// Zeroes a range, and deallocates it if `unmap` is set.
    Clear {
        offset: u64,
        length: u64,
        unmap: bool,
    },
}

/// Guest memory of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    parts: &'a [Part],
    skip: usize,
    length: usize,
}

impl<'a> Data<'a> {
    /// Length in bytes: a positive multiple of the sector size.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Ranges of memory, fewer than [`MAX`].
    pub fn parts(&self) -> impl Iterator<Item = Part> + 'a {
        // The range was checked when the order was made.
        let parts = slices(self.parts, self.skip, self.length);
        parts.into_iter().flatten()
    }
}

/// State of a tag.
#[derive(Debug, Default)]
enum RequestState {
    #[default]
    None,
    /// In flight.
    Out(Chain, Request),
    /// In flight, but the driver was reset.
    Orphaned(Request),
    /// Complete, not yet returned to the driver.
    Landed(Chain, Request, Status),
}

/// The device.
#[derive(Debug)]
pub struct Block {
    geometry: Geometry,
    configuration: [u8; 60],
    features: u64,
    flights: Vec<RequestState>,
    /// Free tags.
    free: Vec<u16>,
    landed: Vec<u16>,
    out: usize,
    orphaned: usize,
    /// A flush failed; the kernel reports lost writes only once.
    lost: bool,
}

impl Device for Block {
    fn kind(&self) -> u32 {
        KIND
    }

    fn features(&self) -> u64 {
        let read_only = if self.geometry.read_only {
            READ_ONLY
        } else {
            0
        };
        let clears = if self.geometry.clears {
            DISCARD | WRITE_ZEROES
        } else {
            0
        };
        SEG_MAX | BLK_SIZE | FLUSH | TOPOLOGY | read_only | clears
    }

    fn queues(&self) -> &[u16] {
        &QUEUES
    }

    fn configuration(&self) -> &[u8] {
        &self.configuration
    }

    fn activate(&mut self, features: u64) {
        self.features = features;
    }

    fn reset(&mut self) {
        for (flight, tag) in self.flights.iter_mut().zip(0..) {
            *flight = match core::mem::take(flight) {
                RequestState::Out(_, request) => {
                    self.orphaned += 1;
                    RequestState::Orphaned(request)
                }
                RequestState::Landed(..) => {
                    self.free.push(tag);
                    RequestState::None
                }
                same => same,
            };
        }
        self.landed.clear();
        self.features = 0;
    }

    fn in_flight(&self) -> usize {
        self.out
    }
}

impl Block {
    /// Creates a device with these properties.
    pub fn new(geometry: Geometry) -> Self {
        let max = usize::from(MAX);
        Self {
            configuration: configuration(&geometry),
            geometry,
            features: 0,
            flights: core::iter::repeat_with(RequestState::default)
                .take(max)
                .collect(),
            free: (0..MAX).rev().collect(),
            landed: Vec::with_capacity(max),
            out: 0,
            orphaned: 0,
            lost: false,
        }
    }

    /// Completes an order.
    pub fn landed(&mut self, tag: u16, status: Status) {
        let Some(flight) = self.flights.get_mut(usize::from(tag)) else {
            return;
        };
        match core::mem::take(flight) {
            RequestState::Out(chain, request) => {
                self.lost |= lost(request, status);
                *flight = RequestState::Landed(chain, request, status);
                self.landed.push(tag);
                self.out -= 1;
            }
            RequestState::Orphaned(request) => {
                self.lost |= lost(request, status);
                self.free.push(tag);
                self.orphaned -= 1;
                self.out -= 1;
            }
            // The tag is not in flight.
            other => *flight = other,
        }
    }

    /// Returns completed requests and takes new ones. `submit` receives the orders, `on_complete` the status and size of each
    /// completed request.
    ///
    /// # Errors
    /// The rings are malformed, or a request has no status byte.
    pub fn serve(
        &mut self,
        rings: &mut [Ring],
        memory: &Memory,
        submit: &mut impl FnMut(Order<'_>),
        on_complete: &mut impl FnMut(Completion),
    ) -> Result<Progress, DriverError> {
        let [ring] = rings else {
            return Err(DriverError::Ring);
        };
        let mut given = self.give_back(ring, memory, on_complete)?;
        ring.disable_notifications(memory)?;
        let (mut taken, mut more) = (0, true);
        // A completion makes room and serves again.
        while more && self.has_room() {
            if taken == MAX {
                break;
            }
            let Some(chain) = ring.take(memory)? else {
                more = ring.enable_notifications(memory)?;
                continue;
            };
            taken += 1;
            if let Some((chain, request, status)) = self.order(chain, memory, submit)? {
                give(ring, memory, &chain, request, status, on_complete)?;
                given += 1;
            }
        }
        Ok(Progress {
            interrupt: given > 0 && ring.needs_interrupt(memory)?,
            more: more && self.has_room(),
        })
    }

    /// No request is taken while orders of the previous driver are in flight.
    fn has_room(&self) -> bool {
        self.orphaned == 0 && !self.free.is_empty()
    }

    fn give_back(
        &mut self,
        ring: &mut Ring,
        memory: &Memory,
        on_complete: &mut impl FnMut(Completion),
    ) -> Result<usize, DriverError> {
        let count = self.landed.len();
        for tag in self.landed.drain(..) {
            let flight = core::mem::take(&mut self.flights[usize::from(tag)]);
            self.free.push(tag);
            if let RequestState::Landed(chain, request, status) = flight {
                give(ring, memory, &chain, request, status, on_complete)?;
            }
        }
        Ok(count)
    }

    /// Submits the order of a request; returns the request if it completes without an order.
    fn order(
        &mut self,
        chain: Chain,
        memory: &Memory,
        submit: &mut impl FnMut(Order<'_>),
    ) -> Result<Option<(Chain, Request, Status)>, DriverError> {
        let request = match request::read(&chain, memory, &self.geometry, self.features)? {
            Parsed::Refused(status) => return Ok(Some((chain, Request::Nothing, status))),
            Parsed::For(Request::Identity { length }) => {
                chain.write(memory, 0, &self.geometry.identity[..length])?;
                return Ok(Some((chain, Request::Identity { length }, Status::Done)));
            }
            Parsed::For(Request::Flush) if self.lost => {
                return Ok(Some((chain, Request::Flush, Status::Failed)))
            }
            Parsed::For(request) => request,
        };
        let Some(work) = request.work(&chain) else {
            return Ok(Some((chain, request, Status::Done)));
        };
        let Some(tag) = self.free.pop() else {
            return Ok(Some((chain, request, Status::Failed)));
        };
        submit(Order {
            tag,
            work,
            stable: self.features & FLUSH == 0,
        });
        self.flights[usize::from(tag)] = RequestState::Out(chain, request);
        self.out += 1;
        Ok(None)
    }
}

/// Returns true if completed writes may be lost.
fn lost(request: Request, status: Status) -> bool {
    request == Request::Flush && status != Status::Done
}

/// A completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Status.
    pub status: Status,
    /// Bytes written to guest memory.
    pub read: usize,
    /// Bytes read from guest memory.
    pub written: usize,
}

/// Writes the status byte and returns the request.
fn give(
    ring: &mut Ring,
    memory: &Memory,
    chain: &Chain,
    request: Request,
    status: Status,
    on_complete: &mut impl FnMut(Completion),
) -> Result<(), DriverError> {
    let room = chain.writable_length();
    let last = room.checked_sub(1).ok_or(DriverError::Request)?;
    chain.write(memory, last, &[status as u8])?;
    let (read, written) = match (status, request) {
        (Status::Done, Request::Read { length, .. } | Request::Identity { length }) => (length, 0),
        (Status::Done, Request::Write { length, .. }) => (0, length),
        _ => (0, 0),
    };
    on_complete(Completion {
        status,
        read,
        written,
    });
    // The used length counts from the first byte, without a gap before the status.
    let counted = if read == last { room } else { read };
    ring.complete(memory, chain.head(), counted)
}

#[cfg(test)]
mod tests;
