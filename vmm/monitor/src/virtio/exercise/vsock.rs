//! A vsock device with host programs controlled by the input.

use super::Subject;
use crate::virtio::driver::{Chunk, Driver};
use crate::virtio::vsock::header::{operation, Header, LENGTH, STREAM};
use crate::virtio::vsock::{Gone, Host, Key, ReadResult, Vsock, MAX};
use crate::virtio::{DriverError, Memory, Progress, Transport};
use alloc::vec;
use alloc::vec::Vec;
use arbitrary::{Result, Unstructured};

const CID: u32 = 3;

/// Port with a listener.
const SERVICE: u32 = 80;

/// A host program.
#[derive(Debug)]
struct Program {
    key: Key,
    /// Bytes that it will send, and accept.
    says: usize,
    takes: usize,
    has_ended: bool,
    is_gone: bool,
}

/// Server of the device.
#[derive(Debug, Default)]
pub struct Programs {
    all: Vec<Program>,
    heard: usize,
}

impl Programs {
    fn begin_one(&mut self, key: Key) {
        assert!(self.all.iter().all(|program| program.key != key));
        self.all.push(Program {
            key,
            says: 100,
            takes: 10_000,
            has_ended: false,
            is_gone: false,
        });
        assert!(self.all.len() <= MAX);
    }

    fn of(&mut self, key: Key) -> &mut Program {
        let mut all = self.all.iter_mut();
        let found = all.find(|program| program.key == key);
        found.expect("who is spoken to is connected")
    }

    /// Closes the streams of a previous driver.
    fn leave(&mut self, device: &mut Vsock) {
        if device.take_orphaned() {
            self.all.clear();
        }
    }
}

impl Host for Programs {
    fn connect(&mut self, key: Key) -> bool {
        if key.host == SERVICE {
            self.begin_one(key);
        }
        key.host == SERVICE
    }

    fn accepted(&mut self, key: Key) {
        self.of(key);
    }

    fn write(&mut self, key: Key, bytes: &[u8]) -> core::result::Result<usize, Gone> {
        assert!(!bytes.is_empty());
        let program = self.of(key);
        if program.is_gone {
            return Err(Gone);
        }
        let count = bytes.len().min(program.takes);
        program.takes -= count;
        self.heard += count;
        Ok(count)
    }

    fn read(&mut self, key: Key, room: &mut [u8]) -> ReadResult {
        assert!(!room.is_empty());
        let program = self.of(key);
        let count = program.says.min(room.len());
        program.says -= count;
        match count {
            0 if program.has_ended => ReadResult::End,
            0 => ReadResult::Pending,
            count => ReadResult::Bytes(count),
        }
    }

    fn finish(&mut self, key: Key) {
        self.of(key);
    }

    fn close(&mut self, key: Key) {
        self.all.retain(|program| program.key != key);
    }
}

/// Returns a port, often in use.
fn port(input: &mut Unstructured<'_>) -> Result<u32> {
    match input.int_in_range(0..=3)? {
        0 => Ok(SERVICE),
        1 => Ok((1 << 30) + input.int_in_range(0..=2)?),
        2 => input.int_in_range(0..=80),
        _ => input.arbitrary(),
    }
}

fn header(input: &mut Unstructured<'_>) -> Result<Header> {
    Ok(Header {
        source_cid: if input.ratio(15, 16)? {
            CID.into()
        } else {
            input.arbitrary()?
        },
        destination_cid: if input.ratio(15, 16)? {
            2
        } else {
            input.arbitrary()?
        },
        source_port: port(input)?,
        destination_port: port(input)?,
        length: input.int_in_range(0..=5000)?,
        kind: if input.ratio(15, 16)? {
            STREAM
        } else {
            input.arbitrary()?
        },
        operation: input.int_in_range(0..=8)?,
        flags: input.int_in_range(0..=3)?,
        buffer: *input.choose(&[0, 1, 5000, 1 << 18, u32::MAX])?,
        forwarded: if input.arbitrary()? {
            0
        } else {
            input.arbitrary()?
        },
    })
}

impl Subject for Programs {
    type Device = Vsock;

    fn begin(_: &mut Unstructured<'_>) -> Result<(Vsock, Self)> {
        Ok((Vsock::new(CID), Self::default()))
    }

    fn request(&self, input: &mut Unstructured<'_>) -> Result<(Vec<u8>, Vec<Chunk>)> {
        if input.arbitrary()? {
            let length = input.int_in_range(0..=0x1000)?;
            return Ok((Vec::new(), vec![(0x4000, 44, true), (0x5000, length, true)]));
        }
        let header = header(input)?;
        let bytes = (0x2000, header.length, false);
        Ok((header.bytes().to_vec(), vec![bytes]))
    }

    fn serve(
        &mut self,
        transport: &mut Transport<Vsock>,
        memory: &Memory,
    ) -> core::result::Result<Progress, DriverError> {
        self.leave(transport.device());
        let Some((vsock, rings)) = transport.live() else {
            return Ok(Progress::default());
        };
        let heard = vsock.transmit(rings, memory, self)?;
        let said = vsock.receive(rings, memory, self)?;
        let waiting = vsock
            .interests()
            .filter(|interest| interest.bytes || interest.room);
        for interest in waiting {
            self.of(interest.key);
        }
        assert!(self.all.len() <= vsock.interests().count());
        Ok(heard.and(said))
    }

    fn happen(
        &mut self,
        transport: &mut Transport<Vsock>,
        input: &mut Unstructured<'_>,
    ) -> Result<()> {
        let device = transport.device();
        self.leave(device);
        if self.all.is_empty() || input.ratio(1, 4)? {
            if let Some(key) = device.open(port(input)?) {
                self.begin_one(key);
            }
            return Ok(());
        }
        let number = input.choose_index(self.all.len())?;
        let program = &mut self.all[number];
        let key = program.key;
        program.says += input.int_in_range(0..=20_000)?;
        program.takes += input.int_in_range(0..=100_000)?;
        program.has_ended |= input.ratio(1, 8)?;
        program.is_gone |= input.ratio(1, 8)?;
        if input.arbitrary()? {
            device.readable(key)
        } else {
            device.writable(key, self)
        }
        Ok(())
    }

    fn settle(&mut self, transport: &mut Transport<Vsock>) {
        self.leave(transport.device());
        assert!(self.all.is_empty());
    }

    fn prove(&mut self, transport: &mut Transport<Vsock>, memory: &Memory) {
        let (mut hears, mut says) = (Driver::new(memory, 0), Driver::new(memory, 1));
        let header = |operation, length| Header {
            source_cid: CID.into(),
            destination_cid: 2,
            source_port: 7,
            destination_port: SERVICE,
            length,
            kind: STREAM,
            operation,
            ..Header::default()
        };
        says.put(0x100, &header(operation::REQUEST, 0).bytes());
        says.push(&[(0x100, LENGTH as u32, false)]);
        says.put(0x200, &header(operation::RW, 5).bytes());
        says.push(&[(0x200, LENGTH as u32 + 5, false)]);
        hears.push(&[(0x1000, 100, true)]);
        let before = self.heard;
        let served = self.serve(transport, memory).expect("it makes sense");
        assert!(served.interrupt && !served.more);
        assert_eq!((self.heard - before, says.used()), (5, Some((0, 0))));
        assert_eq!(hears.used(), Some((0, LENGTH as u32)));
        assert_eq!(hears.get16(0x1000 + 30), operation::RESPONSE);
    }
}
