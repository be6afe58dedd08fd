//! A disk (virtio 1.2, section 5.2): sectors that a driver reads, writes, flushes and
//! gives up.
//!
//! What a driver asks for is checked ([`request`]) and becomes an [`Order`] for whoever
//! has the file. Orders come back in whatever order, by their tickets ([`Block::landed`]),
//! and the next [`Block::serve`] gives their requests back. A reset in between
//! disowns what is out: it still has to land, and nobody is told of it.

mod request;

use self::request::{Asked, Request};
use crate::virtio::chain::{slices, Part};
use crate::virtio::{Broken, Chain, Device, Memory, Ring, Served};

const KIND: u32 = 2;

/// How many requests can be under way.
pub const MOST: u16 = 128;
const QUEUES: [u16; 1] = [MOST];

/// Bytes of a sector, whatever blocks a disk has.
pub const SECTOR: u64 = 512;

/// In how many pieces of memory the driver may put data (`seg_max`): the rest of a ring,
/// without what comes before and behind it.
const MOST_PARTS: u32 = MOST as u32 - 2;

/// The longest range that is given up or cleared by one request, in sectors: 1 GiB.
const MOST_CLEARED: u32 = 1 << 21;

/// Length of what identifies a disk.
pub const IDENTITY: usize = 20;

// Features (section 5.2.3).
const SEG_MAX: u64 = 1 << 2;
const READ_ONLY: u64 = 1 << 5;
const BLK_SIZE: u64 = 1 << 6;
/// Feature: what was written is stable once it was flushed. To a driver that does
/// not know of it, a write comes back when it is stable.
pub const FLUSH: u64 = 1 << 9;
const TOPOLOGY: u64 = 1 << 10;
const DISCARD: u64 = 1 << 13;
const WRITE_ZEROES: u64 = 1 << 14;

/// What a disk is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Its length in sectors.
    pub sectors: u64,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Ranges can be given up and cleared.
    pub clears: bool,
    /// What is best accessed as one: a power of 2, in bytes, from one sector on.
    pub block: u32,
    /// What identifies it, with zeroes behind.
    pub identity: [u8; IDENTITY],
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// As it was asked for.
    Done = 0,
    /// It makes no sense, or the disk could not do it.
    Failed = 1,
    /// This disk does not do that.
    Unsupported = 2,
}

/// Something to be done to the disk.
#[derive(Debug)]
pub struct Order<'a> {
    /// By which it comes back.
    pub ticket: u16,
    /// What.
    pub work: Work<'a>,
    /// It has to be stable before it comes back.
    pub stable: bool,
}

/// What is to be done, from byte `offset` on.
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
    /// Nobody needs this range any more.
    Discard {
        offset: u64,
        length: u64,
    },
    /// This range is to read as zeroes, and need not take room if `unmap` is set.
    Clear {
        offset: u64,
        length: u64,
        unmap: bool,
    },
}

/// Guest memory that data comes from or goes to.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    parts: &'a [Part],
    skip: usize,
    length: usize,
}

impl<'a> Data<'a> {
    /// How many bytes: never 0, always whole sectors.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Where: fewer than [`MOST`] pieces, for no chain is longer than its ring.
    pub fn parts(&self) -> impl Iterator<Item = Part> + 'a {
        // It was made of as many as are there.
        let parts = slices(self.parts, self.skip, self.length);
        parts.into_iter().flatten()
    }
}

/// A request that was taken.
#[derive(Debug, Default)]
enum Flight {
    #[default]
    None,
    /// Its order is out.
    Out(Chain, Request),
    /// So it is, but its driver is gone.
    Disowned(Request),
    /// Its order has come back.
    Landed(Chain, Request, Status),
}

/// The device.
#[derive(Debug)]
pub struct Block {
    shape: Shape,
    configuration: [u8; 60],
    features: u64,
    flights: Vec<Flight>,
    /// Tickets that nobody has.
    free: Vec<u16>,
    landed: Vec<u16>,
    out: usize,
    disowned: usize,
    /// A flush failed: what the kernel then forgot it will not tell again.
    lost: bool,
}

impl Device for Block {
    fn kind(&self) -> u32 {
        KIND
    }

    fn features(&self) -> u64 {
        let read_only = if self.shape.read_only { READ_ONLY } else { 0 };
        let clears = if self.shape.clears {
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
        for (flight, ticket) in self.flights.iter_mut().zip(0..) {
            *flight = match std::mem::take(flight) {
                Flight::Out(_, request) => {
                    self.disowned += 1;
                    Flight::Disowned(request)
                }
                Flight::Landed(..) => {
                    self.free.push(ticket);
                    Flight::None
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
    /// A disk of this shape.
    pub fn new(shape: Shape) -> Self {
        let most = usize::from(MOST);
        Self {
            configuration: configuration(&shape),
            shape,
            features: 0,
            flights: std::iter::repeat_with(Flight::default).take(most).collect(),
            free: (0..MOST).rev().collect(),
            landed: Vec::with_capacity(most),
            out: 0,
            disowned: 0,
            lost: false,
        }
    }

    /// An order has come back.
    pub fn landed(&mut self, ticket: u16, status: Status) {
        let Some(flight) = self.flights.get_mut(usize::from(ticket)) else {
            return;
        };
        match std::mem::take(flight) {
            Flight::Out(chain, request) => {
                self.lost |= lost(request, status);
                *flight = Flight::Landed(chain, request, status);
                self.landed.push(ticket);
                self.out -= 1;
            }
            Flight::Disowned(request) => {
                self.lost |= lost(request, status);
                self.free.push(ticket);
                self.disowned -= 1;
                self.out -= 1;
            }
            // It was not out.
            other => *flight = other,
        }
    }

    /// Gives back what has landed, and takes what waits: `submit` gets the orders that
    /// come of it, and `tell` how each request ended and how many bytes it moved.
    ///
    /// # Errors
    /// The rings make no sense, or a request has no place for its status.
    pub fn serve(
        &mut self,
        rings: &mut [Ring],
        memory: &Memory,
        submit: &mut impl FnMut(Order<'_>),
        tell: &mut impl FnMut(Ended),
    ) -> Result<Served, Broken> {
        let [ring] = rings else {
            return Err(Broken::Ring);
        };
        let mut given = self.give_back(ring, memory, tell)?;
        ring.deafen(memory)?;
        let (mut taken, mut more) = (0, true);
        // What lands makes room, and then this is called again.
        while more && self.has_room() {
            if taken == MOST {
                break;
            }
            let Some(chain) = ring.take(memory)? else {
                more = ring.listen(memory)?;
                continue;
            };
            taken += 1;
            if let Some((chain, request, status)) = self.order(chain, memory, submit)? {
                give(ring, memory, &chain, request, status, tell)?;
                given += 1;
            }
        }
        Ok(Served {
            interrupt: given > 0 && ring.must_interrupt(memory)?,
            more: more && self.has_room(),
        })
    }

    /// Nothing is taken for a driver while its predecessor's orders are out.
    fn has_room(&self) -> bool {
        self.disowned == 0 && !self.free.is_empty()
    }

    fn give_back(
        &mut self,
        ring: &mut Ring,
        memory: &Memory,
        tell: &mut impl FnMut(Ended),
    ) -> Result<usize, Broken> {
        let count = self.landed.len();
        for ticket in self.landed.drain(..) {
            let flight = std::mem::take(&mut self.flights[usize::from(ticket)]);
            self.free.push(ticket);
            if let Flight::Landed(chain, request, status) = flight {
                give(ring, memory, &chain, request, status, tell)?;
            }
        }
        Ok(count)
    }

    /// Sends out what a request asks for; gives it back where there is nothing to be sent.
    fn order(
        &mut self,
        chain: Chain,
        memory: &Memory,
        submit: &mut impl FnMut(Order<'_>),
    ) -> Result<Option<(Chain, Request, Status)>, Broken> {
        let request = match request::read(&chain, memory, &self.shape, self.features)? {
            Asked::Refused(status) => return Ok(Some((chain, Request::Nothing, status))),
            Asked::For(Request::Identity { length }) => {
                chain.write(memory, 0, &self.shape.identity[..length])?;
                return Ok(Some((chain, Request::Identity { length }, Status::Done)));
            }
            Asked::For(Request::Flush) if self.lost => {
                return Ok(Some((chain, Request::Flush, Status::Failed)))
            }
            Asked::For(request) => request,
        };
        let Some(work) = request.work(&chain) else {
            return Ok(Some((chain, request, Status::Done)));
        };
        let Some(ticket) = self.free.pop() else {
            return Ok(Some((chain, request, Status::Failed)));
        };
        submit(Order {
            ticket,
            work,
            stable: self.features & FLUSH == 0,
        });
        self.flights[usize::from(ticket)] = Flight::Out(chain, request);
        self.out += 1;
        Ok(None)
    }
}

/// Whether what was written may be gone, though it came back as written.
fn lost(request: Request, status: Status) -> bool {
    request == Request::Flush && status != Status::Done
}

/// A request that went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How.
    pub status: Status,
    /// Bytes that the guest got.
    pub read: usize,
    /// Bytes that the guest gave.
    pub written: usize,
}

/// Writes the status behind all else that is written, and gives the request back.
fn give(
    ring: &mut Ring,
    memory: &Memory,
    chain: &Chain,
    request: Request,
    status: Status,
    tell: &mut impl FnMut(Ended),
) -> Result<(), Broken> {
    let room = chain.writable_length();
    let last = room.checked_sub(1).ok_or(Broken::Request)?;
    chain.write(memory, last, &[status as u8])?;
    let (read, written) = match (status, request) {
        (Status::Done, Request::Read { length, .. } | Request::Identity { length }) => (length, 0),
        (Status::Done, Request::Write { length, .. }) => (0, length),
        _ => (0, 0),
    };
    tell(Ended {
        status,
        read,
        written,
    });
    // What is counted begins at the first byte: there must be no gap before the status.
    let counted = if read == last { room } else { read };
    ring.give(memory, chain.head(), counted)
}

/// Section 5.2.4.
fn configuration(shape: &Shape) -> [u8; 60] {
    let mut bytes = [0; 60];
    let block = shape.block.max(SECTOR as u32);
    let exponent = (block / SECTOR as u32).ilog2() as u8;
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &shape.sectors.to_le_bytes());
    put(12, &MOST_PARTS.to_le_bytes());
    put(20, &(SECTOR as u32).to_le_bytes());
    put(24, &[exponent, 0]);
    put(26, &((block / SECTOR as u32) as u16).to_le_bytes());
    if shape.clears {
        for most in [36, 48] {
            put(most, &MOST_CLEARED.to_le_bytes());
            // Ranges in one request.
            put(most + 4, &1_u32.to_le_bytes());
        }
        put(44, &(block / SECTOR as u32).to_le_bytes());
        put(56, &[1]);
    }
    bytes
}

#[cfg(test)]
mod tests;
