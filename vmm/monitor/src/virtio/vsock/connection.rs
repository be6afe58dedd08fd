//! State of one connection.

use super::header::{operation, Header, NEITHER, RECEIVES_NO_MORE, SENDS_NO_MORE};
use alloc::collections::VecDeque;

/// Buffer size for data from the guest.
pub const BUFFER: u32 = 64 << 10;

/// Ports that identify a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Guest port.
    pub guest: u32,
    /// Host port.
    pub host: u32,
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Requested by the host, not yet accepted.
    Requested,
    /// Established.
    Open,
    /// A reset is pending for the guest.
    Dead,
}

/// Next packet of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextPacket {
    /// A packet without payload: operation and flags.
    Control(u16, u32),
    /// Data from the host, at most this many bytes.
    Data(usize),
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    pub key: Key,
    pub state: State,
    /// Pending REQUEST or RESPONSE.
    beginning: Option<u16>,
    /// Data from the guest not yet accepted by the host program.
    pub buffered: VecDeque<u8>,
    /// Bytes received from the guest, modulo 2^32, as all counts.
    received: u32,
    /// Value of `fwd_cnt` sent last.
    advertised: u32,
    owes_credit: bool,
    /// Bytes sent to the guest, and its latest credit.
    sent: u32,
    their_buffer: u32,
    their_forwarded: u32,
    credit_requested: bool,
    /// The host program's stream is readable or closed.
    pub is_readable: bool,
    /// Shutdown flags of the guest.
    pub guest_ended: u32,
    /// Shutdown flags of the host, and those already sent.
    pub host_ended: u32,
    host_ended_told: u32,
    /// The guest's shutdown was propagated to the host program.
    pub is_finished: bool,
}

impl Connection {
    fn new(key: Key, state: State, beginning: u16) -> Self {
        Self {
            key,
            state,
            beginning: Some(beginning),
            buffered: VecDeque::new(),
            received: 0,
            advertised: 0,
            owes_credit: false,
            sent: 0,
            their_buffer: 0,
            their_forwarded: 0,
            credit_requested: false,
            is_readable: false,
            guest_ended: 0,
            host_ended: 0,
            host_ended_told: 0,
            is_finished: false,
        }
    }

    /// Creates a connection requested by the host.
    pub fn requested(key: Key) -> Self {
        Self::new(key, State::Requested, operation::REQUEST)
    }

    /// Creates a connection requested by the guest and accepted.
    pub fn accepted(key: Key) -> Self {
        Self::new(key, State::Open, operation::RESPONSE)
    }

    /// Records the credit in a packet from the guest.
    pub fn credit(&mut self, header: &Header) {
        self.their_buffer = header.buffer;
        self.their_forwarded = header.forwarded;
        self.credit_requested = false;
    }

    /// Returns the guest's credit; 0 if the guest claims to have consumed more than was sent.
    fn room_of_guest(&self) -> u32 {
        let under_way = self.sent.wrapping_sub(self.their_forwarded);
        self.their_buffer.saturating_sub(under_way)
    }

    /// Returns the number of bytes that the guest may send.
    pub fn room(&self) -> usize {
        (BUFFER as usize).saturating_sub(self.buffered.len())
    }

    /// Counts bytes received.
    pub fn received(&mut self, count: u32) {
        self.received = self.received.wrapping_add(count);
    }

    /// The guest requests a credit update.
    pub fn request_credit_update(&mut self) {
        self.owes_credit = true;
    }

    fn forwarded(&self) -> u32 {
        self.received.wrapping_sub(self.buffered.len() as u32)
    }

    /// Returns true if the host program's stream is to be polled for reading.
    pub fn awaits_bytes(&self) -> bool {
        self.state == State::Open
            && !self.is_readable
            && self.host_ended & SENDS_NO_MORE == 0
            && self.guest_ended & RECEIVES_NO_MORE == 0
    }

    /// Returns the next packet; it is pending until [`Self::said`].
    pub fn next_packet(&self) -> Option<NextPacket> {
        if self.state == State::Dead {
            return Some(NextPacket::Control(operation::RST, 0));
        }
        if let Some(beginning) = self.beginning {
            return Some(NextPacket::Control(beginning, 0));
        }
        if self.state != State::Open {
            return None;
        }
        let passed_on = self.forwarded().wrapping_sub(self.advertised);
        if self.owes_credit || passed_on >= BUFFER / 2 {
            return Some(NextPacket::Control(operation::CREDIT_UPDATE, 0));
        }
        if self.is_readable && self.guest_ended & RECEIVES_NO_MORE == 0 {
            match self.room_of_guest() {
                0 if self.credit_requested => {}
                0 => return Some(NextPacket::Control(operation::CREDIT_REQUEST, 0)),
                room => return Some(NextPacket::Data(room as usize)),
            }
        }
        let ended = self.host_ended & !self.host_ended_told;
        (ended != 0).then_some(NextPacket::Control(operation::SHUTDOWN, self.host_ended))
    }

    /// Records that a packet was sent; returns its header without CIDs.
    pub fn said(&mut self, operation: u16, flags: u32, count: usize) -> Header {
        // The payload fits in 32 bits.
        let length = count as u32;
        match operation {
            operation::REQUEST | operation::RESPONSE => self.beginning = None,
            operation::CREDIT_REQUEST => self.credit_requested = true,
            operation::SHUTDOWN => self.host_ended_told = flags,
            _ => {}
        }
        self.sent = self.sent.wrapping_add(length);
        // Each packet carries the credit.
        self.advertised = self.forwarded();
        self.owes_credit = false;
        Header {
            source_port: self.key.host,
            destination_port: self.key.guest,
            length,
            operation,
            flags,
            buffer: BUFFER,
            forwarded: self.advertised,
            ..Header::default()
        }
    }

    /// Returns true if only the guest keeps the connection open.
    pub fn is_lingering(&self) -> bool {
        self.host_ended_told == NEITHER
    }
}
