//! Reception of frames into the driver's buffers.

use super::{FrameBuffer, Header, Network, Offloads, HEADER, MAX_FRAME};
use crate::virtio::chain::{slices, Chain, Part};
use crate::virtio::{DriverError, Memory, Progress, Ring};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Limit of memory ranges per frame: IOV_MAX without header and remainder.
const MAX_PARTS: usize = 1_022;

/// Negotiated parameters.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Negotiated offloads.
    pub offloads: Offloads,
    /// Mergeable buffers: a frame may span several requests.
    pub merge: bool,
    /// Longest expected frame.
    pub longest: usize,
}

/// Result of gathering buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    /// Sufficient buffers.
    Enough,
    /// The driver has offered no more.
    Exhausted,
    /// The ring or the list of ranges is full.
    Full,
}

/// A received frame that did not fit.
#[derive(Clone, Copy, Debug)]
struct PartialFrame {
    header: Header,
    /// Length including the header.
    length: usize,
    /// Bytes already in guest memory.
    placed: usize,
}

/// Buffers that wait for frames, and at most one frame that waits for buffers.
#[derive(Debug)]
pub struct Receiver {
    taken: Vec<Chain>,
    /// Writable ranges and their total length.
    parts: Vec<Part>,
    room: usize,
    /// Ranges behind the header.
    behind: Vec<Part>,
    rest: Box<[u8]>,
    held: Option<PartialFrame>,
    has_room: bool,
    given: Vec<(u16, usize)>,
}

impl Default for Receiver {
    fn default() -> Self {
        Self {
            taken: Vec::new(),
            parts: Vec::with_capacity(MAX_PARTS),
            room: 0,
            behind: Vec::with_capacity(MAX_PARTS),
            rest: vec![0; MAX_FRAME].into(),
            held: None,
            has_room: false,
            given: Vec::new(),
        }
    }
}

impl Receiver {
    /// Returns true if a buffer was available at the last attempt.
    pub fn has_room(&self) -> bool {
        self.has_room
    }

    /// Drops all buffers and frames.
    pub fn reset(&mut self) {
        self.taken.clear();
        self.parts.clear();
        (self.room, self.held, self.has_room) = (0, None, false);
    }

    /// Receives frames until none is left, buffers run out, or a full ring was handled.
    pub fn serve(
        &mut self,
        ring: &mut Ring,
        memory: &Memory,
        rules: &Rules,
        network: &mut impl Network,
    ) -> Result<Progress, DriverError> {
        let mut more = true;
        let mut turns = 0;
        while more && turns < ring.size() {
            more = match self.held.take() {
                None => self.read(ring, memory, rules, network)?,
                Some(held) => self.place_rest(held, ring, memory, rules, network)?,
            };
            turns += 1;
        }
        let interrupt = ring.needs_interrupt(memory)?;
        Ok(Progress { interrupt, more })
    }

    /// Receives one frame. Returns false if there is none, or no buffer.
    fn read(
        &mut self,
        ring: &mut Ring,
        memory: &Memory,
        rules: &Rules,
        network: &mut impl Network,
    ) -> Result<bool, DriverError> {
        self.gather(ring, memory, HEADER + rules.longest, rules.merge)?;
        self.has_room = self.room >= HEADER;
        if !self.has_room {
            return Ok(false);
        }
        let mut header = Header::default();
        self.behind.clear();
        let behind = slices(&self.parts, HEADER, self.room - HEADER)?;
        self.behind.extend(behind);
        let read = network.read(FrameBuffer {
            header: &mut header.0,
            parts: &self.behind,
            rest: &mut self.rest,
        });
        let Some(frame) = read else {
            return Ok(false);
        };
        let length = HEADER + frame;
        let fits = length <= self.room;
        match header.for_driver(rules.offloads) {
            Some(header) if fits => self.deliver(header, length, ring, memory)?,
            Some(header) if rules.merge && frame <= MAX_FRAME => {
                let placed = self.room;
                self.held = Some(PartialFrame {
                    header,
                    length,
                    placed,
                });
            }
            _ => network.lost(),
        }
        Ok(true)
    }

    /// Places the rest of a frame. Returns false if the driver must offer more buffers.
    fn place_rest(
        &mut self,
        held: PartialFrame,
        ring: &mut Ring,
        memory: &Memory,
        rules: &Rules,
        network: &mut impl Network,
    ) -> Result<bool, DriverError> {
        match self.gather(ring, memory, held.length, rules.merge)? {
            Filled::Enough => {
                let rest = &self.rest[..held.length - held.placed];
                write(memory, &self.parts, held.placed, rest)?;
                self.deliver(held.header, held.length, ring, memory)?;
            }
            Filled::Full => network.lost(),
            Filled::Exhausted => {
                self.has_room = false;
                self.held = Some(held);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes requests until they hold `wanted` bytes; without mergeable buffers, one request.
    fn gather(
        &mut self,
        ring: &mut Ring,
        memory: &Memory,
        wanted: usize,
        merge: bool,
    ) -> Result<Filled, DriverError> {
        while self.room < wanted && (merge || self.taken.is_empty()) {
            let size = usize::from(ring.size());
            if self.taken.len() == size || self.parts.len() + size > MAX_PARTS {
                return Ok(Filled::Full);
            }
            let Some(chain) = ring.take(memory)? else {
                if ring.enable_notifications(memory)? {
                    continue;
                } else {
                    return Ok(Filled::Exhausted);
                }
            };
            self.hold(chain)?;
        }
        Ok(Filled::Enough)
    }

    fn hold(&mut self, chain: Chain) -> Result<(), DriverError> {
        if chain.writable().is_empty() {
            return Err(DriverError::Request);
        }
        self.room += chain.writable_length();
        self.parts.extend(chain.writable());
        self.taken.push(chain);
        Ok(())
    }

    /// Returns the requests that hold a frame.
    fn deliver(
        &mut self,
        header: Header,
        length: usize,
        ring: &mut Ring,
        memory: &Memory,
    ) -> Result<(), DriverError> {
        let (mut left, mut parts) = (length, 0);
        self.given.clear();
        for chain in &self.taken {
            if left == 0 {
                break;
            }
            let written = left.min(chain.writable_length());
            self.given.push((chain.head(), written));
            (left, parts) = (left - written, parts + chain.writable().len());
            self.room -= chain.writable_length();
        }
        let header = header.in_buffers(self.given.len() as u16);
        write(memory, &self.parts, 0, &header.0)?;
        self.parts.drain(..parts);
        self.taken.drain(..self.given.len());
        ring.complete_all(memory, &self.given)
    }
}

fn write(memory: &Memory, parts: &[Part], offset: usize, bytes: &[u8]) -> Result<(), DriverError> {
    let mut done = 0;
    for part in slices(parts, offset, bytes.len())? {
        let piece = &bytes[done..done + part.length];
        memory
            .write(part.at, piece)
            .map_err(|_| DriverError::Chain)?;
        done += part.length;
    }
    Ok(())
}
