//! A virtio driver for tests, which can also misbehave.

use crate::virtio::registers::*;
use crate::virtio::{Device, Memory, Outcome, Transport};
use alloc::vec;
use alloc::vec::Vec;

/// Ring size.
pub const ENTRIES: u16 = 16;

/// Address of the rings of queue `number`, 4 KiB for each of three parts.
pub const fn rings(number: u32) -> u64 {
    0x1_0000 + 0x4000 * number as u64
}

/// End of the addresses for data.
pub const DATA_END: u64 = rings(0);

/// Creates memory for `queues` queues.
///
/// # Panics
/// Allocation fails.
pub fn memory(queues: u32) -> Memory {
    let length = rings(queues) as usize;
    Memory::new(length).expect("memory for a test")
}

/// A descriptor: address, length, and whether the device writes it.
pub type Chunk = (u64, u32, bool);

const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// Driver side of one queue.
#[derive(Debug)]
pub struct Driver<'a> {
    memory: &'a Memory,
    at: u64,
    next_descriptor: u16,
    available: u16,
    seen: u16,
}

/// Drives the status handshake to DRIVER_OK, with `features`.
///
/// # Panics
/// A register has a wrong value.
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
    assert_eq!(outcome, Outcome::Start);
}

fn transport_write<D: Device>(
    transport: &mut Transport<D>,
    memory: &Memory,
    offset: u32,
    value: u32,
) {
    let _nothing_to_do = transport.write(offset, 4, value.into(), memory);
}

/// Configures the selected queue.
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
    /// Creates the driver of queue `number`, as configured by [`start`].
    pub fn new(memory: &'a Memory, number: u32) -> Self {
        Self {
            memory,
            at: rings(number),
            next_descriptor: 0,
            available: 0,
            seen: 0,
        }
    }

    /// Creates a driver that has offered `offered` requests.
    pub fn continuing(memory: &'a Memory, number: u32, offered: u16) -> Self {
        Self {
            available: offered,
            ..Self::new(memory, number)
        }
    }

    /// Offers a request; returns its first descriptor.
    pub fn push(&mut self, pieces: &[Chunk]) -> u16 {
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

    /// Offers the request at descriptor `head`.
    pub fn offer(&mut self, head: u16) {
        let place = self.at + 0x1004 + 2 * u64::from(self.available % ENTRIES);
        self.put(place, &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        self.claim(self.available);
    }

    /// Writes the index of the available ring.
    pub fn claim(&self, available: u16) {
        self.put(self.at + 0x1002, &available.to_le_bytes());
    }

    /// Returns the next used element: first descriptor and bytes written.
    pub fn used(&mut self) -> Option<(u32, u32)> {
        let index = self.get16(self.at + 0x2002);
        if index == self.seen {
            return None;
        }
        let place = self.at + 0x2004 + 8 * u64::from(self.seen % ENTRIES);
        self.seen = self.seen.wrapping_add(1);
        Some((self.get32(place), self.get32(place + 4)))
    }

    /// Writes bytes to memory.
    ///
    /// # Panics
    /// The address is outside memory.
    pub fn put(&self, at: u64, bytes: &[u8]) {
        let written = self.memory.write(at, bytes);
        written.expect("a test writes to memory");
    }

    /// Reads the 16-bit number at `at`.
    ///
    /// # Panics
    /// The address is outside memory.
    pub fn get16(&self, at: u64) -> u16 {
        let number = self.memory.load16(at);
        number.expect("a test reads memory")
    }

    /// Reads the 32-bit number at `at`.
    ///
    /// # Panics
    /// The address is outside memory.
    pub fn get32(&self, at: u64) -> u32 {
        let number = self.memory.load32(at);
        number.expect("a test reads memory")
    }

    /// Reads bytes at `at`.
    ///
    /// # Panics
    /// The address is outside memory.
    pub fn bytes(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let read = self.memory.read(at, &mut bytes);
        read.expect("a test reads memory");
        bytes
    }
}
