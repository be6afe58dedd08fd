//! A vsock device for stream sockets (virtio 1.2, section 5.10).
//!
//! The number of [`Connection`]s and their buffers are bounded. Data from the guest is buffered while the host program does
//! not accept it. Data from the host is read only when a request is available and the guest has credit. Pending control
//! packets are flags of each connection and a bounded list of resets; while that list is full, transmission pauses.

mod connection;
pub(crate) mod header;
mod host;
mod packet;
#[cfg(test)]
mod tests;

pub use connection::{Key, BUFFER};
pub use host::{Gone, Host, ReadResult};

use self::connection::{Connection, NextPacket, State};
use self::header::{operation, Header, LENGTH, SENDS_NO_MORE, STREAM};
use self::packet::{flush, handle_packet, Payload};
use crate::virtio::{Chain, Device, DriverError, Memory, Progress, Ring};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

const KIND: u32 = 19;
const ENTRIES: u16 = 128;
/// Receive, transmit, and event queue, which is unused without migration.
const QUEUES: [u16; 3] = [ENTRIES, ENTRIES, 4];
const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;

/// Host CID (section 5.10.4).
const HOST: u64 = 2;

/// Valid guest CIDs.
pub const CIDS: core::ops::RangeInclusive<u32> = 3..=u32::MAX - 1;

/// Limit of connections.
pub const MAX: usize = 64;

/// Limit of pending resets.
const MAX_RESETS: usize = 64;

/// Longest payload from the host in bytes.
const PIECE: usize = 16 << 10;

/// First port of connections from the host, above usual listening ports.
const FIRST_PORT: u32 = 1 << 30;

/// Events awaited by a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Connection.
    pub key: Key,
    /// The host program's stream is to become readable.
    pub bytes: bool,
    /// The host program's stream is to become writable.
    pub room: bool,
}

/// The device.
#[derive(Debug)]
pub struct Vsock {
    cid: [u8; 8],
    is_active: bool,
    connections: Vec<Connection>,
    resets: VecDeque<Header>,
    /// Connection served last.
    turn: usize,
    next_port: u32,
    piece: Box<[u8]>,
    /// Host streams of a previous driver exist.
    has_orphans: bool,
}

impl Vsock {
    /// Creates a device with this CID.
    pub fn new(cid: u32) -> Self {
        Self {
            cid: u64::from(cid).to_le_bytes(),
            is_active: false,
            connections: Vec::with_capacity(MAX),
            resets: VecDeque::with_capacity(MAX_RESETS),
            turn: 0,
            next_port: FIRST_PORT,
            piece: vec![0; PIECE].into(),
            has_orphans: false,
        }
    }

    /// Returns true once if the host's streams belong to a previous driver; the caller closes them.
    pub fn take_orphaned(&mut self) -> bool {
        core::mem::take(&mut self.has_orphans)
    }

    /// Opens a connection from the host to guest port `port`; `None` without a driver or a free connection.
    pub fn open(&mut self, port: u32) -> Option<Key> {
        if !self.is_active || self.connections.len() == MAX {
            return None;
        }
        // Among so many ports one is free.
        for _ in 0..=MAX {
            let host = self.next_port;
            self.next_port = self.next_port.wrapping_add(1).max(FIRST_PORT);
            let key = Key { guest: port, host };
            if self.find(key).is_none() {
                self.connections.push(Connection::requested(key));
                return Some(key);
            }
        }
        None
    }

    /// Events awaited by all connections.
    pub fn interests(&self) -> impl Iterator<Item = Interest> + '_ {
        self.connections.iter().map(|connection| Interest {
            key: connection.key,
            bytes: connection.awaits_bytes(),
            room: connection.state == State::Open && !connection.buffered.is_empty(),
        })
    }

    /// The host program's stream is readable or closed. Ignored where its bytes are not awaited: a stream whose end was
    /// read may be closed already.
    pub fn readable(&mut self, key: Key) {
        if let Some(number) = self.find(key) {
            let connection = &mut self.connections[number];
            connection.is_readable |= connection.awaits_bytes();
        }
    }

    /// The host program's stream is writable. Connections that have ended are ignored.
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

    /// Handles packets from the guest.
    ///
    /// # Errors
    /// The rings are malformed.
    pub fn transmit(
        &mut self,
        rings: &mut [Ring],
        memory: &Memory,
        host: &mut impl Host,
    ) -> Result<Progress, DriverError> {
        let ring = rings.get_mut(TRANSMIT).ok_or(DriverError::Ring)?;
        ring.serve_all(memory, |chain| {
            if self.resets.len() == MAX_RESETS {
                return Ok(None);
            }
            self.handle(chain, memory, host)?;
            Ok(Some(0))
        })
    }

    /// Sends packets to the guest.
    ///
    /// # Errors
    /// The rings are malformed.
    pub fn receive(
        &mut self,
        rings: &mut [Ring],
        memory: &Memory,
        host: &mut impl Host,
    ) -> Result<Progress, DriverError> {
        let ring = rings.get_mut(RECEIVE).ok_or(DriverError::Ring)?;
        let were_many = self.resets.len() == MAX_RESETS;
        let served = ring.serve_all(memory, |chain| self.send_packet(chain, memory, host))?;
        // Transmission was paused and can continue.
        let is_heard = were_many && self.resets.len() < MAX_RESETS;
        Ok(Progress {
            more: served.more || is_heard,
            ..served
        })
    }

    fn handle(
        &mut self,
        chain: &Chain,
        memory: &Memory,
        host: &mut impl Host,
    ) -> Result<(), DriverError> {
        let mut bytes = [0; LENGTH];
        chain.read(memory, 0, &mut bytes)?;
        let header = Header::read(&bytes);
        if header.length as usize > chain.readable_length() - LENGTH {
            return Err(DriverError::Request);
        }
        if header.source_cid.to_le_bytes() != self.cid {
            // A packet with a wrong source gets no answer.
            return Ok(());
        }
        if header.destination_cid != HOST || header.kind != STREAM {
            self.queue_reset(&header);
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
                if !handle_packet(connection, &header, &payload, host)? {
                    self.end(number, &header, host);
                }
            }
            None if header.operation == operation::REQUEST => {
                self.accept_connection(key, &header, host)
            }
            None => self.queue_reset(&header),
        }
        Ok(())
    }

    /// Queues a reset, unless the packet is a reset.
    fn queue_reset(&mut self, header: &Header) {
        if header.operation != operation::RST {
            self.resets.push_back(header.reset_packet());
        }
    }

    /// Ends a connection after an invalid packet or a reset.
    fn end(&mut self, number: usize, header: &Header, host: &mut impl Host) {
        let connection = &mut self.connections[number];
        host.close(connection.key);
        match header.operation {
            operation::RST => drop(self.connections.swap_remove(number)),
            _ => connection.state = State::Dead,
        }
    }

    /// Handles a connection request from the guest.
    fn accept_connection(&mut self, key: Key, header: &Header, host: &mut impl Host) {
        if self.connections.len() == MAX {
            self.make_room();
            return self.queue_reset(header);
        }
        if host.connect(key) {
            let mut connection = Connection::accepted(key);
            connection.credit(header);
            self.connections.push(connection);
        } else {
            self.queue_reset(header)
        }
    }

    /// Resets a connection that the host has closed and the guest keeps open.
    fn make_room(&mut self) {
        let mut all = self.connections.iter_mut();
        if let Some(lingering) = all.find(|connection| connection.is_lingering()) {
            lingering.state = State::Dead;
        }
    }

    /// Writes the next packet into `chain`; `None` if there is none.
    fn send_packet(
        &mut self,
        chain: &Chain,
        memory: &Memory,
        host: &mut impl Host,
    ) -> Result<Option<usize>, DriverError> {
        // A data packet needs room for a byte.
        let room = chain.writable_length().saturating_sub(LENGTH);
        if room == 0 {
            return Err(DriverError::Request);
        }
        if let Some(reset_packet) = self.resets.pop_front() {
            chain.write(memory, 0, &reset_packet.bytes())?;
            return Ok(Some(LENGTH));
        }
        for _ in 0..self.connections.len() {
            self.turn = (self.turn + 1) % self.connections.len().max(1);
            let said = self.next_packet_of(self.turn, room, host);
            let Some((header, count)) = said else {
                continue;
            };
            chain.write(memory, 0, &header.bytes())?;
            chain.write(memory, LENGTH, &self.piece[..count])?;
            return Ok(Some(LENGTH + count));
        }
        Ok(None)
    }

    /// Returns the next packet of connection `number` and the length of its payload.
    fn next_packet_of(
        &mut self,
        number: usize,
        room: usize,
        host: &mut impl Host,
    ) -> Option<(Header, usize)> {
        let connection = self.connections.get_mut(number)?;
        let mut packet = connection.next_packet()?;
        let mut count = 0;
        if let NextPacket::Data(max) = packet {
            let room = max.min(room).min(PIECE);
            match host.read(connection.key, &mut self.piece[..room]) {
                ReadResult::Bytes(heard) => {
                    count = heard.min(room);
                    packet = NextPacket::Control(operation::RW, 0);
                }
                ReadResult::Pending => connection.is_readable = false,
                ReadResult::End => {
                    connection.is_readable = false;
                    connection.host_ended |= SENDS_NO_MORE;
                }
            }
            if count == 0 {
                packet = connection.next_packet()?;
            }
        }
        let NextPacket::Control(operation, flags) = packet else {
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
        self.resets.clear();
        self.is_active = false;
    }

    /// The host has to close streams of the previous driver.
    fn in_flight(&self) -> usize {
        self.has_orphans.into()
    }
}
