//! Streams between programs of the guest and programs of the host (virtio 1.2, section
//! 5.10).
//!
//! The table of [`Connection`]s has a bound, and so has what each of them keeps: what the
//! host does not take yet. In the other direction nothing is kept - bytes are asked of
//! the [`Host`] when there is a request to put them into, and when the guest has room for
//! them. What is to be said besides is a few marks for each connection, and a short list of
//! refusals; while that is full the guest is not heard.

mod connection;
pub(crate) mod header;
mod obey;
#[cfg(test)]
mod tests;

pub use connection::{Key, BUFFER};

use self::connection::{Connection, State, Word};
use self::header::{operation, Header, LENGTH, SENDS_NO_MORE, STREAM};
use self::obey::{flush, obey, Payload};
use crate::virtio::{Broken, Chain, Device, Memory, Ring, Served};
use std::collections::VecDeque;

const KIND: u32 = 19;
const ENTRIES: u16 = 128;
/// Received, transmitted, and events, of which there are none without migration.
const QUEUES: [u16; 3] = [ENTRIES, ENTRIES, 4];
const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;

/// The host's address (section 5.10.4).
const HOST: u64 = 2;

/// The smallest address that a guest may have, and the largest.
pub const CIDS: std::ops::RangeInclusive<u32> = 3..=u32::MAX - 1;

/// Connections at the most.
pub const MOST: usize = 64;

/// Refusals that wait to be said.
const MOST_REFUSALS: usize = 64;

/// Bytes of the host's that go into one packet at the most.
const PIECE: usize = 16 << 10;

/// Where ports for what the host begins are taken from: far above those that programs of
/// either side listen at.
const FIRST_PORT: u32 = 1 << 30;

/// What was heard from a program of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// So many bytes.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// Nothing, ever again.
    End,
}

/// A program of the host's takes no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// The programs of the host. None of this waits.
pub trait Host {
    /// Connects to who listens at `key.host`; false if nobody does.
    fn connect(&mut self, key: Key) -> bool;

    /// The guest has agreed to what the host began.
    fn accepted(&mut self, key: Key);

    /// Passes bytes on: how many, which may be none for now.
    ///
    /// # Errors
    /// There will never be a time when it takes some.
    fn write(&mut self, key: Key, bytes: &[u8]) -> Result<usize, Gone>;

    /// Fills `room` with what there is.
    fn read(&mut self, key: Key, room: &mut [u8]) -> Heard;

    /// The guest will send no more.
    fn finish(&mut self, key: Key);

    /// It is over. May be said of what is not there any more.
    fn close(&mut self, key: Key);
}

/// What a connection waits for outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Which.
    pub key: Key,
    /// Bytes from the host's program.
    pub bytes: bool,
    /// Room at the host's program.
    pub room: bool,
}

/// The device.
#[derive(Debug)]
pub struct Vsock {
    cid: [u8; 8],
    is_active: bool,
    connections: Vec<Connection>,
    refusals: VecDeque<Header>,
    /// Whose turn it is to speak.
    turn: usize,
    next_port: u32,
    piece: Box<[u8]>,
    /// Connections of the host's of which the driver that is gone knew.
    has_orphans: bool,
}

impl Vsock {
    /// A device in a guest with this address.
    pub fn new(cid: u32) -> Self {
        Self {
            cid: u64::from(cid).to_le_bytes(),
            is_active: false,
            connections: Vec::with_capacity(MOST),
            refusals: VecDeque::with_capacity(MOST_REFUSALS),
            turn: 0,
            next_port: FIRST_PORT,
            piece: vec![0; PIECE].into(),
            has_orphans: false,
        }
    }

    /// Whether all connections that the host holds are of a driver that is gone. They are
    /// to be closed before anything else happens; the second time this is false.
    pub fn takes_leave(&mut self) -> bool {
        std::mem::take(&mut self.has_orphans)
    }

    /// A program of the host's wants to speak to who listens at `port` of the guest. `None`
    /// if there is no driver, or no room for another connection.
    pub fn open(&mut self, port: u32) -> Option<Key> {
        if !self.is_active || self.connections.len() == MOST {
            return None;
        }
        // As few are there, one of the next so many is free.
        for _ in 0..=MOST {
            let host = self.next_port;
            self.next_port = self.next_port.wrapping_add(1).max(FIRST_PORT);
            let key = Key { guest: port, host };
            if self.find(key).is_none() {
                self.connections.push(Connection::wanted(key));
                return Some(key);
            }
        }
        None
    }

    /// What connections wait for outside.
    pub fn interests(&self) -> impl Iterator<Item = Interest> + '_ {
        self.connections.iter().map(|connection| Interest {
            key: connection.key,
            bytes: connection.awaits_bytes(),
            room: connection.state == State::Open && !connection.kept.is_empty(),
        })
    }

    /// There are bytes, or an end, from the host's program.
    pub fn readable(&mut self, key: Key) {
        if let Some(number) = self.find(key) {
            self.connections[number].is_readable = true;
        }
    }

    /// There is room at the host's program. Of a connection that is over this may still be
    /// told, with bytes that nobody will have any more.
    pub fn writable(&mut self, key: Key, host: &mut impl Host) {
        if let Some(number) = self.find(key) {
            let connection = &mut self.connections[number];
            if connection.state == State::Open {
                flush(connection, host);
            }
        }
    }

    fn find(&self, key: Key) -> Option<usize> {
        let mut all = self.connections.iter();
        all.position(|connection| connection.key == key)
    }

    /// Hears what the guest says.
    ///
    /// # Errors
    /// The rings make no sense.
    pub fn transmit(
        &mut self,
        rings: &mut [Ring],
        memory: &Memory,
        host: &mut impl Host,
    ) -> Result<Served, Broken> {
        let ring = rings.get_mut(TRANSMIT).ok_or(Broken::Ring)?;
        ring.serve_all(memory, |chain| {
            if self.refusals.len() == MOST_REFUSALS {
                return Ok(None);
            }
            self.hear(chain, memory, host)?;
            Ok(Some(0))
        })
    }

    /// Says to the guest what there is.
    ///
    /// # Errors
    /// The rings make no sense.
    pub fn receive(
        &mut self,
        rings: &mut [Ring],
        memory: &Memory,
        host: &mut impl Host,
    ) -> Result<Served, Broken> {
        let ring = rings.get_mut(RECEIVE).ok_or(Broken::Ring)?;
        let were_many = self.refusals.len() == MOST_REFUSALS;
        let served = ring.serve_all(memory, |chain| self.speak(chain, memory, host))?;
        // Then the guest was not heard, and now is.
        let is_heard = were_many && self.refusals.len() < MOST_REFUSALS;
        Ok(Served {
            more: served.more || is_heard,
            ..served
        })
    }

    fn hear(&mut self, chain: &Chain, memory: &Memory, host: &mut impl Host) -> Result<(), Broken> {
        let mut bytes = [0; LENGTH];
        chain.read(memory, 0, &mut bytes)?;
        let header = Header::read(&bytes);
        if header.length as usize > chain.readable_length() - LENGTH {
            return Err(Broken::Request);
        }
        if header.source_cid.to_le_bytes() != self.cid {
            // There is nobody to be answered.
            return Ok(());
        }
        if header.destination_cid != HOST || header.kind != STREAM {
            self.refuse(&header);
            return Ok(());
        }
        let key = Key {
            guest: header.source_port,
            host: header.destination_port,
        };
        match self.find(key) {
            Some(number) => {
                let payload = Payload { chain, memory };
                let connection = &mut self.connections[number];
                connection.credit(&header);
                if !obey(connection, &header, &payload, host)? {
                    self.end(number, &header, host);
                }
            }
            None if header.operation == operation::REQUEST => self.grant(key, &header, host),
            None => self.refuse(&header),
        }
        Ok(())
    }

    /// Says no, unless that was one itself.
    fn refuse(&mut self, header: &Header) {
        if header.operation != operation::RST {
            self.refusals.push_back(header.refusal());
        }
    }

    /// Ends a connection because of what the guest said.
    fn end(&mut self, number: usize, header: &Header, host: &mut impl Host) {
        let connection = &mut self.connections[number];
        host.close(connection.key);
        match header.operation {
            operation::RST => drop(self.connections.swap_remove(number)),
            _ => connection.state = State::Dead,
        }
    }

    /// The guest wants a connection.
    fn grant(&mut self, key: Key, header: &Header, host: &mut impl Host) {
        if self.connections.len() == MOST {
            self.make_room();
            return self.refuse(header);
        }
        match host.connect(key) {
            true => {
                let mut connection = Connection::granted(key);
                connection.credit(header);
                self.connections.push(connection);
            }
            false => self.refuse(header),
        }
    }

    /// A guest that does not let go of a connection that is over for the host loses it when
    /// others are in want of it.
    fn make_room(&mut self) {
        let mut all = self.connections.iter_mut();
        if let Some(lingering) = all.find(|connection| connection.is_lingering()) {
            lingering.state = State::Dead;
        }
    }

    /// Puts the next packet into `chain`; `None` if nobody has anything to say.
    fn speak(
        &mut self,
        chain: &Chain,
        memory: &Memory,
        host: &mut impl Host,
    ) -> Result<Option<usize>, Broken> {
        // There has to be room for a byte, too.
        let room = chain.writable_length().saturating_sub(LENGTH);
        if room == 0 {
            return Err(Broken::Request);
        }
        if let Some(refusal) = self.refusals.pop_front() {
            chain.write(memory, 0, &refusal.bytes())?;
            return Ok(Some(LENGTH));
        }
        for _ in 0..self.connections.len() {
            self.turn = (self.turn + 1) % self.connections.len().max(1);
            let said = self.speak_of(self.turn, room, host);
            let Some((header, count)) = said else {
                continue;
            };
            chain.write(memory, 0, &header.bytes())?;
            chain.write(memory, LENGTH, &self.piece[..count])?;
            return Ok(Some(LENGTH + count));
        }
        Ok(None)
    }

    /// The next packet of connection `number`, and how many bytes go with it.
    fn speak_of(
        &mut self,
        number: usize,
        room: usize,
        host: &mut impl Host,
    ) -> Option<(Header, usize)> {
        let connection = self.connections.get_mut(number)?;
        let mut word = connection.word()?;
        let mut count = 0;
        if let Word::Bytes(most) = word {
            let room = most.min(room).min(PIECE);
            match host.read(connection.key, &mut self.piece[..room]) {
                Heard::Bytes(heard) => {
                    count = heard.min(room);
                    word = Word::Bare(operation::RW, 0);
                }
                Heard::Nothing => connection.is_readable = false,
                Heard::End => {
                    connection.is_readable = false;
                    connection.host_ended |= SENDS_NO_MORE;
                }
            }
            if count == 0 {
                word = connection.word()?;
            }
        }
        let Word::Bare(operation, flags) = word else {
            return None;
        };
        let mut header = connection.said(operation, flags, count);
        header.source_cid = HOST;
        header.destination_cid = u64::from_le_bytes(self.cid);
        header.kind = STREAM;
        if connection.is_lingering() {
            host.close(connection.key);
        }
        if connection.state == State::Dead {
            self.connections.swap_remove(number);
        }
        Some((header, count))
    }
}

impl Device for Vsock {
    fn kind(&self) -> u32 {
        KIND
    }

    fn queues(&self) -> &[u16] {
        &QUEUES
    }

    fn configuration(&self) -> &[u8] {
        &self.cid
    }

    fn activate(&mut self, _features: u64) {
        self.is_active = true;
    }

    fn reset(&mut self) {
        self.has_orphans |= !self.connections.is_empty();
        self.connections.clear();
        self.refusals.clear();
        self.is_active = false;
    }

    /// The host has to let go of what the driver knew.
    fn in_flight(&self) -> usize {
        self.has_orphans.into()
    }
}
