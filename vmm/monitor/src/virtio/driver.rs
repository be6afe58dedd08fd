//! A driver as a test needs it: it finds a device by its registers, lays out rings in
//! memory, and puts requests there. Nothing keeps it from doing any of that wrong.

use crate::virtio::registers::*;
use crate::virtio::{Device, Memory, Outcome, Transport};
use vm_memory::{Bytes, GuestAddress};

/// Entries of each ring.
pub const ENTRIES: u16 = 16;

/// Where the rings of queue `number` are; 4 KiB for each of three parts.
pub const fn rings(number: u32) -> u64 {
    0x1_0000 + 0x4000 * number as u64
}

/// Where data may be: everything below the rings.
pub const DATA_END: u64 = rings(0);

/// Memory for so many queues.
///
/// # Panics
/// There is none.
pub fn memory(queues: u32) -> Memory {
    let length = rings(queues) as usize;
    Memory::from_ranges(&[(GuestAddress(0), length)]).expect("memory for a test")
}

/// A piece of a request: where, how long, and whether the device writes it.
pub type Piece = (u64, u32, bool);

const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// The driver's side of one queue.
#[derive(Debug)]
pub struct Driver<'a> {
    memory: &'a Memory,
    at: u64,
    next_descriptor: u16,
    available: u16,
    seen: u16,
}

/// Walks through the states of `transport` until it is live, choosing `features`.
///
/// # Panics
/// A register says what it must not.
pub fn start<D: Device>(transport: &mut Transport<D>, memory: &Memory, features: u64) {
    let mut write = |offset, value| transport_write(transport, memory, offset, value);
    let said = ACKNOWLEDGE | DRIVER;
    write(STATUS, ACKNOWLEDGE.into());
    write(STATUS, said.into());
    for half in 0..2 {
        write(DRIVER_FEATURES_SEL, half);
        let features = features | VERSION_1;
        write(DRIVER_FEATURES, (features >> (32 * half)) as u32);
    }
    let said = said | FEATURES_OK;
    write(STATUS, said.into());
    for queue in 0.. {
        transport_write(transport, memory, QUEUE_SEL, queue);
        if transport.read(QUEUE_SIZE_MAX, 4) == 0 {
            break;
        }
        lay_out(transport, memory, rings(queue));
        assert_eq!(transport.read(QUEUE_READY, 4), 1);
    }
    let outcome = transport.write(STATUS, 4, (said | DRIVER_OK).into(), memory);
    assert_eq!(outcome, Outcome::Serve);
}

fn transport_write<D: Device>(
    transport: &mut Transport<D>,
    memory: &Memory,
    offset: u32,
    value: u32,
) {
    let _nothing_to_do = transport.write(offset, 4, value.into(), memory);
}

/// Places the rings of the selected queue.
pub fn lay_out<D: Device>(transport: &mut Transport<D>, memory: &Memory, at: u64) {
    for (offset, value) in [
        (QUEUE_SIZE, ENTRIES.into()),
        (QUEUE_DESC_LOW, at as u32),
        (QUEUE_DESC_HIGH, (at >> 32) as u32),
        (QUEUE_DRIVER_LOW, at as u32 + 0x1000),
        (QUEUE_DRIVER_HIGH, (at >> 32) as u32),
        (QUEUE_DEVICE_LOW, at as u32 + 0x2000),
        (QUEUE_DEVICE_HIGH, (at >> 32) as u32),
        (QUEUE_READY, 1),
    ] {
        transport_write(transport, memory, offset, value);
    }
}

impl<'a> Driver<'a> {
    /// Of queue `number`, as [`start`] lays it out.
    pub fn new(memory: &'a Memory, number: u32) -> Self {
        Self {
            memory,
            at: rings(number),
            next_descriptor: 0,
            available: 0,
            seen: 0,
        }
    }

    /// The same, of one that has offered so many requests and taken none back.
    pub fn continuing(memory: &'a Memory, number: u32, offered: u16) -> Self {
        Self {
            available: offered,
            ..Self::new(memory, number)
        }
    }

    /// Puts a request into the ring, and returns the number of its first descriptor.
    pub fn push(&mut self, pieces: &[Piece]) -> u16 {
        let head = self.next_descriptor % ENTRIES;
        for (number, (at, length, write)) in pieces.iter().enumerate() {
            let here = self.next_descriptor % ENTRIES;
            let is_last = number + 1 == pieces.len();
            let flags = if is_last { 0 } else { NEXT } | if *write { WRITE } else { 0 };
            self.describe(here, *at, *length, flags, (here + 1) % ENTRIES);
            self.next_descriptor = self.next_descriptor.wrapping_add(1);
        }
        self.offer(head);
        head
    }

    /// Writes one descriptor.
    pub fn describe(&self, number: u16, at: u64, length: u32, flags: u16, next: u16) {
        let place = self.at + 16 * u64::from(number);
        self.put(place, &at.to_le_bytes());
        self.put(place + 8, &length.to_le_bytes());
        self.put(place + 12, &flags.to_le_bytes());
        self.put(place + 14, &next.to_le_bytes());
    }

    /// Offers the request that begins with descriptor `head`.
    pub fn offer(&mut self, head: u16) {
        let place = self.at + 0x1004 + 2 * u64::from(self.available % ENTRIES);
        self.put(place, &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        self.claim(self.available);
    }

    /// Says that so many requests were offered.
    pub fn claim(&self, available: u16) {
        self.put(self.at + 0x1002, &available.to_le_bytes());
    }

    /// The next request that came back: its first descriptor, and the bytes written.
    pub fn used(&mut self) -> Option<(u32, u32)> {
        let index: u16 = self.get(self.at + 0x2002);
        if index == self.seen {
            return None;
        }
        let place = self.at + 0x2004 + 8 * u64::from(self.seen % ENTRIES);
        self.seen = self.seen.wrapping_add(1);
        Some((self.get(place), self.get(place + 4)))
    }

    /// Puts bytes into memory.
    ///
    /// # Panics
    /// There is no memory.
    pub fn put(&self, at: u64, bytes: &[u8]) {
        let written = self.memory.write_slice(bytes, GuestAddress(at));
        written.expect("a test writes to memory");
    }

    /// The number at `at`.
    ///
    /// # Panics
    /// There is no memory.
    pub fn get<T: vm_memory::ByteValued>(&self, at: u64) -> T {
        let read = self.memory.read_obj(GuestAddress(at));
        read.expect("a test reads memory")
    }

    /// The bytes at `at`.
    ///
    /// # Panics
    /// There is no memory.
    pub fn bytes(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let read = self.memory.read_slice(&mut bytes, GuestAddress(at));
        read.expect("a test reads memory");
        bytes
    }
}
