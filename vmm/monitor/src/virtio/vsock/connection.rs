//! One connection between a port of the guest and one of the host.

use super::header::{operation, Header, NEITHER, RECEIVES_NO_MORE, SENDS_NO_MORE};
use std::collections::VecDeque;

/// How many bytes of the guest's are kept for a host that does not take them.
pub const BUFFER: u32 = 64 << 10;

/// Which connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The port at the guest's end.
    pub guest: u32,
    /// The port at the host's end.
    pub host: u32,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The host wants it, and the guest has not answered.
    Asked,
    /// Both want it.
    Open,
    /// The guest has to be told that it is over.
    Dead,
}

/// What a connection has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// A packet without bytes: its operation, and flags.
    Bare(u16, u32),
    /// Bytes of the host's, this many at the most.
    Bytes(usize),
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    pub key: Key,
    pub state: State,
    /// The operation that begins it or answers, if that is still to be said.
    beginning: Option<u16>,
    /// Bytes of the guest's that the host has not taken yet.
    pub kept: VecDeque<u8>,
    /// Bytes that came from the guest, modulo 2^32, as all counts on the wire.
    received: u32,
    /// What the guest was last told that the host has taken.
    told: u32,
    owes_credit: bool,
    /// Bytes that went to the guest, and what it says about them.
    sent: u32,
    their_buffer: u32,
    their_forwarded: u32,
    asked_credit: bool,
    /// The host has bytes, or its end.
    pub is_readable: bool,
    /// What the guest will not do any more.
    pub guest_ended: u32,
    /// What the host will not do any more, and how much of that the guest knows.
    pub host_ended: u32,
    host_ended_told: u32,
    /// The host was told that there will be no more for it.
    pub is_finished: bool,
}

impl Connection {
    fn new(key: Key, state: State, beginning: u16) -> Self {
        Self {
            key,
            state,
            beginning: Some(beginning),
            kept: VecDeque::new(),
            received: 0,
            told: 0,
            owes_credit: false,
            sent: 0,
            their_buffer: 0,
            their_forwarded: 0,
            asked_credit: false,
            is_readable: false,
            guest_ended: 0,
            host_ended: 0,
            host_ended_told: 0,
            is_finished: false,
        }
    }

    /// One that the host wants.
    pub fn wanted(key: Key) -> Self {
        Self::new(key, State::Asked, operation::REQUEST)
    }

    /// One that the guest wants and gets.
    pub fn granted(key: Key) -> Self {
        Self::new(key, State::Open, operation::RESPONSE)
    }

    /// Takes note of what each packet of the guest's says about what it received.
    pub fn credit(&mut self, header: &Header) {
        self.their_buffer = header.buffer;
        self.their_forwarded = header.forwarded;
        self.asked_credit = false;
    }

    /// How many more bytes the guest has room for. One that says to have passed on more than
    /// it got has none.
    fn room_of_guest(&self) -> u32 {
        let under_way = self.sent.wrapping_sub(self.their_forwarded);
        self.their_buffer.saturating_sub(under_way)
    }

    /// How many more bytes the guest may send.
    pub fn room(&self) -> usize {
        (BUFFER as usize).saturating_sub(self.kept.len())
    }

    /// So many bytes came.
    pub fn received(&mut self, count: u32) {
        self.received = self.received.wrapping_add(count);
    }

    /// The guest wants to know how much it may send.
    pub fn owe_credit(&mut self) {
        self.owes_credit = true;
    }

    fn forwarded(&self) -> u32 {
        self.received.wrapping_sub(self.kept.len() as u32)
    }

    /// Whether the host's bytes are wanted and not known to be there.
    pub fn awaits_bytes(&self) -> bool {
        self.state == State::Open
            && !self.is_readable
            && self.host_ended & SENDS_NO_MORE == 0
            && self.guest_ended & RECEIVES_NO_MORE == 0
    }

    /// What is next to be said. It counts as said once it was told by [`Self::said`].
    pub fn word(&self) -> Option<Word> {
        if self.state == State::Dead {
            return Some(Word::Bare(operation::RST, 0));
        }
        if let Some(beginning) = self.beginning {
            return Some(Word::Bare(beginning, 0));
        }
        if self.state != State::Open {
            return None;
        }
        let passed_on = self.forwarded().wrapping_sub(self.told);
        if self.owes_credit || passed_on >= BUFFER / 2 {
            return Some(Word::Bare(operation::CREDIT_UPDATE, 0));
        }
        if self.is_readable && self.guest_ended & RECEIVES_NO_MORE == 0 {
            match self.room_of_guest() {
                0 if self.asked_credit => {}
                0 => return Some(Word::Bare(operation::CREDIT_REQUEST, 0)),
                room => return Some(Word::Bytes(room as usize)),
            }
        }
        let ended = self.host_ended & !self.host_ended_told;
        (ended != 0).then_some(Word::Bare(operation::SHUTDOWN, self.host_ended))
    }

    /// A packet with this operation and so many bytes was said; returns its header, but
    /// for the guest's address.
    pub fn said(&mut self, operation: u16, flags: u32, count: usize) -> Header {
        // No packet is longer than the room of a guest, which is told in 32 bits.
        let length = count as u32;
        match operation {
            operation::REQUEST | operation::RESPONSE => self.beginning = None,
            operation::CREDIT_REQUEST => self.asked_credit = true,
            operation::SHUTDOWN => self.host_ended_told = flags,
            _ => {}
        }
        self.sent = self.sent.wrapping_add(length);
        // Each packet tells it.
        self.told = self.forwarded();
        self.owes_credit = false;
        Header {
            source_port: self.key.host,
            destination_port: self.key.guest,
            length,
            operation,
            flags,
            buffer: BUFFER,
            forwarded: self.told,
            ..Header::default()
        }
    }

    /// Whether nothing will come of it any more but that the guest lets it go.
    pub fn is_lingering(&self) -> bool {
        self.host_ended_told == NEITHER
    }
}
