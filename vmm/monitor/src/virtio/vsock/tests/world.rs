//! A guest, its device, and host programs for tests.

use super::super::operation::*;
use super::super::*;
use crate::virtio::driver::{self, Driver};
use crate::virtio::Transport;
use std::vec::Vec;

pub const CID: u32 = 5;
pub const PORT: u32 = 1024;
pub const SERVICE: u32 = 80;

/// Number and size of the guest's receive buffers.
pub const ROOMS: u64 = 8;
pub const ROOM: u32 = 1024;
/// Address of the guest's packets.
pub const OWN: u64 = 0x8000;

pub const KEY: Key = Key {
    guest: PORT,
    host: SERVICE,
};

/// A program of the host.
#[derive(Debug, Default)]
pub struct Program {
    pub says: VecDeque<u8>,
    pub has_ended: bool,
    pub heard: Vec<u8>,
    pub takes: usize,
    pub is_gone: bool,
    pub was_accepted: bool,
    pub was_finished: bool,
}

/// Programs that listen at [`SERVICE`].
#[derive(Debug, Default)]
pub struct Programs {
    pub all: Vec<(Key, Program)>,
    pub closed: Vec<Key>,
}

impl Programs {
    pub fn of(&mut self, key: Key) -> &mut Program {
        let mut all = self.all.iter_mut();
        let found = all.find(|(of, _)| *of == key);
        found.map(|(_, program)| program).expect("it is connected")
    }

    pub fn begin(&mut self, key: Key) {
        let takes = usize::MAX;
        let program = Program {
            takes,
            ..Program::default()
        };
        self.all.push((key, program));
    }
}

impl Host for Programs {
    fn connect(&mut self, key: Key) -> bool {
        if key.host == SERVICE {
            self.begin(key);
        }
        key.host == SERVICE
    }

    fn accepted(&mut self, key: Key) {
        self.of(key).was_accepted = true;
    }

    fn write(&mut self, key: Key, bytes: &[u8]) -> Result<usize, Gone> {
        let program = self.of(key);
        if program.is_gone {
            return Err(Gone);
        }
        let count = bytes.len().min(program.takes);
        program.takes -= count;
        program.heard.extend(&bytes[..count]);
        Ok(count)
    }

    fn read(&mut self, key: Key, room: &mut [u8]) -> ReadResult {
        let program = self.of(key);
        let count = program.says.len().min(room.len());
        for (place, byte) in room.iter_mut().zip(program.says.drain(..count)) {
            *place = byte;
        }
        match count {
            0 if program.has_ended => ReadResult::End,
            0 => ReadResult::Pending,
            count => ReadResult::Bytes(count),
        }
    }

    fn finish(&mut self, key: Key) {
        self.of(key).was_finished = true;
    }

    fn close(&mut self, key: Key) {
        self.all.retain(|(of, _)| *of != key);
        self.closed.push(key);
    }
}

/// A guest, its device, and the host.
pub struct World<'a> {
    pub transport: Transport<Vsock>,
    pub memory: &'a Memory,
    pub hears: Driver<'a>,
    pub says: Driver<'a>,
    pub host: Programs,
    pub own: u64,
}

impl<'a> World<'a> {
    pub fn new(memory: &'a Memory) -> Self {
        let mut world = Self::needs_poll(memory);
        for number in 0..ROOMS {
            world.offer(number);
        }
        world
    }

    /// One whose guest has no room for any packet.
    pub fn needs_poll(memory: &'a Memory) -> Self {
        let mut transport = Transport::new(Vsock::new(CID));
        driver::start(&mut transport, memory, 0);
        Self {
            transport,
            memory,
            hears: Driver::new(memory, 0),
            says: Driver::new(memory, 1),
            host: Programs::default(),
            own: OWN,
        }
    }

    pub fn offer(&mut self, number: u64) {
        self.hears.push(&[(number * u64::from(ROOM), ROOM, true)]);
    }

    pub fn header(operation: u16) -> Header {
        Header {
            source_cid: CID.into(),
            destination_cid: 2,
            source_port: PORT,
            destination_port: SERVICE,
            kind: STREAM,
            operation,
            buffer: 1 << 16,
            ..Header::default()
        }
    }

    /// The guest says something; its bytes lie apart from the header.
    pub fn say(&mut self, header: Header, bytes: &[u8]) {
        let length = bytes.len() as u32;
        let header = Header { length, ..header };
        // Its packets lie one after the other, again and again.
        if self.own + LENGTH as u64 + bytes.len() as u64 > driver::DATA_END {
            self.own = OWN;
        }
        let at = self.own;
        self.says.put(at, &header.bytes());
        self.says.put(at + LENGTH as u64, bytes);
        self.own += (LENGTH + bytes.len()) as u64;
        let bytes = (at + LENGTH as u64, length, false);
        self.says.push(&[(at, LENGTH as u32, false), bytes]);
        self.serve();
        while self.says.used().is_some() {}
    }

    /// The guest ends these directions.
    pub fn shut_down(&mut self, flags: u32) {
        let header = Self::header(SHUTDOWN);
        self.say(Header { flags, ..header }, &[]);
    }

    pub fn tell(&mut self, operation: u16) {
        self.say(Self::header(operation), &[]);
    }

    pub fn serve(&mut self) {
        self.try_serve().unwrap();
    }

    pub fn try_serve(&mut self) -> Result<(), DriverError> {
        for _ in 0..10 {
            let Some((vsock, rings)) = self.transport.live() else {
                break;
            };
            let heard = vsock.transmit(rings, self.memory, &mut self.host)?;
            let said = vsock.receive(rings, self.memory, &mut self.host)?;
            if !heard.and(said).more {
                break;
            }
        }
        Ok(())
    }

    /// The program of the host has something to say.
    pub fn readable(&mut self, key: Key) {
        self.transport.device().readable(key);
        self.serve();
    }

    /// Returns received packets and offers their buffers again.
    pub fn hear(&mut self) -> Option<(Header, Vec<u8>)> {
        let (head, length) = self.hears.used()?;
        let at = u64::from(head) % ROOMS * u64::from(ROOM);
        let bytes = self.hears.bytes(at, LENGTH);
        let header = Header::read(&bytes.try_into().unwrap());
        assert_eq!(length as usize, LENGTH + header.length as usize);
        assert_eq!(header.destination_cid, u64::from(CID));
        let bytes = self.hears.bytes(at + LENGTH as u64, header.length as usize);
        self.offer(u64::from(head) % ROOMS);
        Some((header, bytes))
    }

    /// The operations that it hears, as long as there are any.
    pub fn operations(&mut self) -> Vec<u16> {
        let mut all = Vec::new();
        while let Some((header, _)) = self.hear() {
            all.push(header.operation);
            self.serve();
        }
        all
    }

    /// With a connection that the guest began.
    pub fn connected(memory: &'a Memory) -> Self {
        let mut world = Self::new(memory);
        world.tell(REQUEST);
        assert_eq!(world.operations(), [RESPONSE]);
        world
    }
}
