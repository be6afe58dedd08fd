//! A network card with one pair of queues (virtio 1.2, section 5.1).
//!
//! Frames move directly between guest memory and the [`Network`]. The length of a received frame is known only after
//! reading: a frame longer than the available buffers ends in an internal buffer and is completed when the driver
//! offers more. At most one frame waits in the card; others wait in the network, which may drop them.

pub mod control;
mod header;
mod receive;
#[cfg(test)]
mod tests;

pub use header::{Header, Offloads, HEADER};

use self::receive::Receiver;
use crate::virtio::chain::{slices, Part};
use crate::virtio::{Device, DriverError, Memory, Progress, Ring};
use alloc::vec::Vec;

/// Device ID.
pub const KIND: u32 = 1;
/// Largest size of a queue.
pub const ENTRIES: u16 = 256;
const QUEUES: [u16; 2] = [ENTRIES, ENTRIES];
const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;

/// Features (section 5.1.3) of the configuration and of queues.
pub const MAC: u64 = 1 << 5;
/// See [`MAC`].
pub const STATUS: u64 = 1 << 16;
/// See [`MAC`].
pub const CONTROL: u64 = 1 << 17;
/// See [`MAC`].
pub const PAIRS: u64 = 1 << 22;

/// Features (section 5.1.3) of sent and received frames.
const CHECKSUM: u64 = 1;
const GUEST_CHECKSUM: u64 = 1 << 1;
const MTU: u64 = 1 << 3;
const GUEST_TCP4: u64 = 1 << 7;
const GUEST_TCP6: u64 = 1 << 8;
const HOST_TCP4: u64 = 1 << 11;
const HOST_TCP6: u64 = 1 << 12;
const MERGE: u64 = 1 << 15;

/// Features of frames, which the code that copies them has to support.
pub const FRAMES: u64 =
    CHECKSUM | GUEST_CHECKSUM | GUEST_TCP4 | GUEST_TCP6 | HOST_TCP4 | HOST_TCP6 | MERGE;

/// VIRTIO_NET_S_LINK_UP.
const LINK_UP: u16 = 1;

/// Length of an Ethernet header, and of a VLAN tag.
const ETHERNET: usize = 14;
const TAG: usize = 4;

/// Longest frame; IP lengths have 16 bits.
pub const MAX_FRAME: usize = ETHERNET + TAG + 0xffff;

/// Longest frame without segmentation offload, if the MTU is unknown.
const ORDINARY_FRAME: usize = ETHERNET + TAG + 1500;

/// A MAC address.
pub type Mac = [u8; 6];

/// Destination of the next frame.
#[derive(Debug)]
pub struct FrameBuffer<'a> {
    /// Virtio-net header.
    pub header: &'a mut [u8; HEADER],
    /// Guest memory.
    pub parts: &'a [Part],
    /// Continuation if guest memory is full.
    pub rest: &'a mut [u8],
}

/// The network behind a card. No method blocks.
pub trait Network {
    /// Reads the next frame into `room`; returns its length without the header, or `None`.
    fn read(&mut self, room: FrameBuffer<'_>) -> Option<usize>;

    /// Sends the frame in these ranges of guest memory.
    fn write(&mut self, header: &Header, parts: &[Part]);

    /// Counts a dropped frame: it did not fit, or was invalid.
    fn lost(&mut self);
}

/// Configuration space: MAC, status, queue pairs, MTU.
#[derive(Debug)]
pub struct Configuration([u8; 12]);

impl Configuration {
    /// Returns that of a connected card.
    pub fn new(mac: Mac, pairs: u16, mtu: Option<u16>) -> Self {
        let mut bytes = [0; 12];
        bytes[..6].copy_from_slice(&mac);
        bytes[8..10].copy_from_slice(&pairs.to_le_bytes());
        bytes[10..].copy_from_slice(&mtu.unwrap_or(0).to_le_bytes());
        let mut configuration = Self(bytes);
        configuration.set_link(true);
        configuration
    }

    /// Sets the status of the link.
    pub fn set_link(&mut self, is_up: bool) {
        let status = if is_up { LINK_UP } else { 0 };
        self.0[6..8].copy_from_slice(&status.to_le_bytes());
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The device.
#[derive(Debug)]
pub struct Net {
    configuration: Configuration,
    mtu: Option<u16>,
    features: u64,
    receiver: Receiver,
    parts: Vec<Part>,
}

impl Net {
    /// Creates a card with this address, in a network with this MTU, if known.
    pub fn new(mac: Mac, mtu: Option<u16>) -> Self {
        Self {
            configuration: Configuration::new(mac, 1, mtu),
            mtu,
            features: 0,
            receiver: Receiver::default(),
            parts: Vec::new(),
        }
    }

    /// Offloads of received frames, as negotiated.
    pub fn receive_offloads(&self) -> Offloads {
        Offloads::received(self.features)
    }

    /// Offloads of sent frames, as negotiated.
    pub(crate) fn transmit_offloads(&self) -> Offloads {
        Offloads::of(self.features, CHECKSUM, HOST_TCP4, HOST_TCP6)
    }

    /// Returns true if a buffer for a frame is available.
    pub fn has_room(&self) -> bool {
        self.receiver.has_room()
    }

    /// Returns the length of the longest frame that may arrive.
    fn longest(&self) -> usize {
        let offloads = self.receive_offloads();
        if offloads.tcp4 || offloads.tcp6 {
            MAX_FRAME
        } else {
            self.mtu
                .map_or(ORDINARY_FRAME, |mtu| ETHERNET + TAG + usize::from(mtu))
        }
    }

    /// Receives frames while there are frames and buffers.
    ///
    /// # Errors
    /// The rings are malformed.
    pub fn receive(
        &mut self,
        rings: &mut [Ring],
        memory: &Memory,
        network: &mut impl Network,
    ) -> Result<Progress, DriverError> {
        let ring = rings.get_mut(RECEIVE).ok_or(DriverError::Ring)?;
        let rules = receive::Rules {
            offloads: self.receive_offloads(),
            merge: self.features & MERGE != 0,
            longest: self.longest(),
        };
        self.receiver.serve(ring, memory, &rules, network)
    }

    /// Sends the driver's frames.
    ///
    /// # Errors
    /// The rings are malformed.
    pub fn transmit(
        &mut self,
        rings: &mut [Ring],
        memory: &Memory,
        network: &mut impl Network,
    ) -> Result<Progress, DriverError> {
        let ring = rings.get_mut(TRANSMIT).ok_or(DriverError::Ring)?;
        let offloads = self.transmit_offloads();
        let parts = &mut self.parts;
        ring.serve_all(memory, |chain| {
            let mut header = Header::default();
            chain.read(memory, 0, &mut header.0)?;
            let length = chain.readable_length() - HEADER;
            parts.clear();
            parts.extend(slices(chain.readable(), HEADER, length)?);
            let is_frame = (ETHERNET..=MAX_FRAME).contains(&length);
            if is_frame && header.uses_only(offloads) {
                network.write(&header, parts)
            } else {
                network.lost()
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
        let transmit_offloads = CHECKSUM | HOST_TCP4 | HOST_TCP6;
        let receive_offloads = GUEST_CHECKSUM | GUEST_TCP4 | GUEST_TCP6 | MERGE;
        let mtu = if self.mtu.is_some() { MTU } else { 0 };
        transmit_offloads | receive_offloads | MAC | STATUS | mtu
    }

    fn queues(&self) -> &[u16] {
        &QUEUES
    }

    fn configuration(&self) -> &[u8] {
        self.configuration.bytes()
    }

    fn activate(&mut self, features: u64) {
        self.features = features;
    }

    fn reset(&mut self) {
        self.features = 0;
        self.receiver.reset();
    }
}
