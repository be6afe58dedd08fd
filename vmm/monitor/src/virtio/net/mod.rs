//! A network card of one pair of queues (virtio 1.2, section 5.1).
//!
//! A frame goes straight between guest memory and the [`Network`], which is shown where its
//! pieces are. How long an arriving frame is shows only when it has been read: what is
//! longer than the room for it ends in a buffer of the card's own, and moves on as soon as
//! the driver makes more room. So one frame may wait here, and no more; while it does, or
//! while there is no room, the others wait in the network, which may lose them.

mod header;
mod receive;
#[cfg(test)]
mod tests;

pub use header::{Header, Offloads, HEADER};

use self::receive::Receiver;
use crate::virtio::chain::{slices, Part};
use crate::virtio::{Broken, Device, Memory, Ring, Served};

const KIND: u32 = 1;
const ENTRIES: u16 = 256;
const QUEUES: [u16; 2] = [ENTRIES, ENTRIES];
const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;

/// Features (section 5.1.3): for frames to the network, and from it.
const CHECKSUM: u64 = 1;
const GUEST_CHECKSUM: u64 = 1 << 1;
const MTU: u64 = 1 << 3;
const MAC: u64 = 1 << 5;
const GUEST_TCP4: u64 = 1 << 7;
const GUEST_TCP6: u64 = 1 << 8;
const HOST_TCP4: u64 = 1 << 11;
const HOST_TCP6: u64 = 1 << 12;
const MERGE: u64 = 1 << 15;
const STATUS: u64 = 1 << 16;

/// Status: there is a carrier.
const LINK_UP: u16 = 1;

/// Addresses of sender and receiver, and a type; a tag may come in between.
const ETHERNET: usize = 14;
const TAG: usize = 4;

/// A frame has this many bytes at the most: IP says how long it is in 16 bits.
pub const MOST_FRAME: usize = ETHERNET + TAG + 0xffff;

/// The same where none is to be made into segments, and nothing else is known.
const ORDINARY_FRAME: usize = ETHERNET + TAG + 1500;

/// An address of a network card.
pub type Mac = [u8; 6];

/// Where the next frame is to be put.
#[derive(Debug)]
pub struct Room<'a> {
    /// What stands before it.
    pub header: &'a mut [u8; HEADER],
    /// Guest memory.
    pub parts: &'a [Part],
    /// Where it goes on when that is full.
    pub rest: &'a mut [u8],
}

/// What a card is connected to. None of this waits.
pub trait Network {
    /// Puts the next frame into `room`, and tells its length (without its header);
    /// `None` if none is there.
    fn read(&mut self, room: Room<'_>) -> Option<usize>;

    /// Sends the frame in these parts of guest memory.
    fn write(&mut self, header: &Header, parts: &[Part]);

    /// A frame was lost: it did not fit, or was none.
    fn lost(&mut self);
}

/// The device.
#[derive(Debug)]
pub struct Net {
    /// MAC, status, pairs of queues, MTU.
    configuration: [u8; 12],
    mtu: Option<u16>,
    features: u64,
    receiver: Receiver,
    parts: Vec<Part>,
}

impl Net {
    /// A card with this address, in a network of this MTU, if that is known.
    pub fn new(mac: Mac, mtu: Option<u16>) -> Self {
        let mut configuration = [0; 12];
        configuration[..6].copy_from_slice(&mac);
        configuration[6..8].copy_from_slice(&LINK_UP.to_le_bytes());
        configuration[8..10].copy_from_slice(&1_u16.to_le_bytes());
        configuration[10..].copy_from_slice(&mtu.unwrap_or(0).to_le_bytes());
        Self {
            configuration,
            mtu,
            features: 0,
            receiver: Receiver::default(),
            parts: Vec::new(),
        }
    }

    /// What the network may leave to the driver that is there.
    pub fn from_network(&self) -> Offloads {
        Offloads::of(self.features, GUEST_CHECKSUM, GUEST_TCP4, GUEST_TCP6)
    }

    /// What the driver may leave to the network.
    pub(crate) fn to_network(&self) -> Offloads {
        Offloads::of(self.features, CHECKSUM, HOST_TCP4, HOST_TCP6)
    }

    /// Whether there is room for a frame, so that it is worth while to wait for one.
    pub fn has_room(&self) -> bool {
        self.receiver.has_room()
    }

    /// The longest frame that may arrive.
    fn longest(&self) -> usize {
        let offloads = self.from_network();
        match offloads.tcp4 || offloads.tcp6 {
            true => MOST_FRAME,
            false => self
                .mtu
                .map_or(ORDINARY_FRAME, |mtu| ETHERNET + TAG + usize::from(mtu)),
        }
    }

    /// Lets frames from the network in, as long as there are some and there is room.
    ///
    /// # Errors
    /// The rings make no sense.
    pub fn receive(
        &mut self,
        rings: &mut [Ring],
        memory: &Memory,
        network: &mut impl Network,
    ) -> Result<Served, Broken> {
        let ring = rings.get_mut(RECEIVE).ok_or(Broken::Ring)?;
        let rules = receive::Rules {
            offloads: self.from_network(),
            merge: self.features & MERGE != 0,
            longest: self.longest(),
        };
        self.receiver.serve(ring, memory, &rules, network)
    }

    /// Sends what the driver wants to be sent.
    ///
    /// # Errors
    /// The rings make no sense.
    pub fn transmit(
        &mut self,
        rings: &mut [Ring],
        memory: &Memory,
        network: &mut impl Network,
    ) -> Result<Served, Broken> {
        let ring = rings.get_mut(TRANSMIT).ok_or(Broken::Ring)?;
        let offloads = self.to_network();
        let parts = &mut self.parts;
        ring.serve_all(memory, |chain| {
            let mut header = Header::default();
            chain.read(memory, 0, &mut header.0)?;
            let length = chain.readable_length() - HEADER;
            parts.clear();
            parts.extend(slices(chain.readable(), HEADER, length)?);
            let is_frame = (ETHERNET..=MOST_FRAME).contains(&length);
            match is_frame && header.keeps_to(offloads) {
                true => network.write(&header, parts),
                false => network.lost(),
            }
            Ok(Some(0))
        })
    }
}

impl Device for Net {
    fn kind(&self) -> u32 {
        KIND
    }

    fn features(&self) -> u64 {
        let to_network = CHECKSUM | HOST_TCP4 | HOST_TCP6;
        let from_network = GUEST_CHECKSUM | GUEST_TCP4 | GUEST_TCP6 | MERGE;
        let mtu = if self.mtu.is_some() { MTU } else { 0 };
        to_network | from_network | MAC | STATUS | mtu
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
        self.features = 0;
        self.receiver.reset();
    }
}
