//! Frames from the network into what the driver has offered.

use super::{Header, Network, Offloads, Room, HEADER, MOST_FRAME};
use crate::virtio::chain::{slices, Chain, Part};
use crate::virtio::{Broken, Memory, Ring, Served};
use vm_memory::Bytes;

/// Pieces of guest memory that are held for a frame at the most: the kernel takes 1,024 at
/// once (IOV_MAX), and the header and the rest go with them.
const MOST_PARTS: usize = 1_022;

/// What was agreed with the driver.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// What it does for the network.
    pub offloads: Offloads,
    /// Whether a frame may lie in several requests.
    pub merge: bool,
    /// The longest frame that is to be expected.
    pub longest: usize,
}

/// Why there is no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    /// There is enough.
    Enough,
    /// The driver has offered no more.
    Dry,
    /// The driver can offer no more, or no more can be held.
    Most,
}

/// A frame that did not fit into what was there.
#[derive(Clone, Copy, Debug)]
struct Held {
    header: Header,
    /// With its header.
    length: usize,
    /// How much of that is in guest memory.
    placed: usize,
}

/// Requests that wait for frames, and perhaps a frame that waits for requests.
#[derive(Debug)]
pub struct Receiver {
    taken: Vec<Chain>,
    /// What may be written into them, and how many bytes that is.
    parts: Vec<Part>,
    room: usize,
    /// Those behind the header.
    behind: Vec<Part>,
    rest: Box<[u8]>,
    held: Option<Held>,
    has_room: bool,
    given: Vec<(u16, usize)>,
}

impl Default for Receiver {
    fn default() -> Self {
        Self {
            taken: Vec::new(),
            parts: Vec::with_capacity(MOST_PARTS),
            room: 0,
            behind: Vec::with_capacity(MOST_PARTS),
            rest: vec![0; MOST_FRAME].into(),
            held: None,
            has_room: false,
            given: Vec::new(),
        }
    }
}

impl Receiver {
    /// Whether a frame could be put somewhere when there was none.
    pub fn has_room(&self) -> bool {
        self.has_room
    }

    /// The driver is gone, and what it offered.
    pub fn reset(&mut self) {
        self.taken.clear();
        self.parts.clear();
        (self.room, self.held, self.has_room) = (0, None, false);
    }

    /// Takes frames until there are no more, there is no more room, or others should have
    /// their turn.
    pub fn serve(
        &mut self,
        ring: &mut Ring,
        memory: &Memory,
        rules: &Rules,
        network: &mut impl Network,
    ) -> Result<Served, Broken> {
        let mut more = true;
        let mut turns = 0;
        while more && turns < ring.size() {
            more = match self.held.take() {
                None => self.read(ring, memory, rules, network)?,
                Some(held) => self.place_rest(held, ring, memory, rules, network)?,
            };
            turns += 1;
        }
        let interrupt = ring.must_interrupt(memory)?;
        Ok(Served { interrupt, more })
    }

    /// Reads one frame. False if there is none, or no room for any.
    fn read(
        &mut self,
        ring: &mut Ring,
        memory: &Memory,
        rules: &Rules,
        network: &mut impl Network,
    ) -> Result<bool, Broken> {
        self.gather(ring, memory, HEADER + rules.longest, rules.merge)?;
        self.has_room = self.room >= HEADER;
        if !self.has_room {
            return Ok(false);
        }
        let mut header = Header::default();
        self.behind.clear();
        let behind = slices(&self.parts, HEADER, self.room - HEADER)?;
        self.behind.extend(behind);
        let read = network.read(Room {
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
            Some(header) if rules.merge && frame <= MOST_FRAME => {
                let placed = self.room;
                self.held = Some(Held {
                    header,
                    length,
                    placed,
                });
            }
            _ => network.lost(),
        }
        Ok(true)
    }

    /// Places more of a frame that did not fit. False if the driver has to make more room.
    fn place_rest(
        &mut self,
        held: Held,
        ring: &mut Ring,
        memory: &Memory,
        rules: &Rules,
        network: &mut impl Network,
    ) -> Result<bool, Broken> {
        match self.gather(ring, memory, held.length, rules.merge)? {
            Filled::Enough => {
                let rest = &self.rest[..held.length - held.placed];
                write(memory, &self.parts, held.placed, rest)?;
                self.deliver(held.header, held.length, ring, memory)?;
            }
            Filled::Most => network.lost(),
            Filled::Dry => {
                self.has_room = false;
                self.held = Some(held);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes requests until they hold `wanted` bytes, or, where a frame has to lie in one of
    /// them, until there is one.
    fn gather(
        &mut self,
        ring: &mut Ring,
        memory: &Memory,
        wanted: usize,
        merge: bool,
    ) -> Result<Filled, Broken> {
        while self.room < wanted && (merge || self.taken.is_empty()) {
            let size = usize::from(ring.size());
            if self.taken.len() == size || self.parts.len() + size > MOST_PARTS {
                return Ok(Filled::Most);
            }
            let Some(chain) = ring.take(memory)? else {
                match ring.listen(memory)? {
                    true => continue,
                    false => return Ok(Filled::Dry),
                }
            };
            self.hold(chain)?;
        }
        Ok(Filled::Enough)
    }

    fn hold(&mut self, chain: Chain) -> Result<(), Broken> {
        if chain.writable().is_empty() {
            return Err(Broken::Request);
        }
        self.room += chain.writable_length();
        self.parts.extend(chain.writable());
        self.taken.push(chain);
        Ok(())
    }

    /// Gives the driver the requests that hold a frame.
    fn deliver(
        &mut self,
        header: Header,
        length: usize,
        ring: &mut Ring,
        memory: &Memory,
    ) -> Result<(), Broken> {
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
        ring.give_all(memory, &self.given)
    }
}

fn write(memory: &Memory, parts: &[Part], offset: usize, bytes: &[u8]) -> Result<(), Broken> {
    let mut done = 0;
    for part in slices(parts, offset, bytes.len())? {
        let piece = &bytes[done..done + part.length];
        memory
            .write_slice(piece, part.at)
            .map_err(|_| Broken::Chain)?;
        done += part.length;
    }
    Ok(())
}
