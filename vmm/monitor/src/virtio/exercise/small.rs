//! Console and entropy source.

use super::Subject;
use crate::virtio::driver::{Chunk, Driver};
use crate::virtio::{Console, DriverError, Entropy, Memory, Progress, Transport};
use alloc::vec;
use alloc::vec::Vec;
use arbitrary::{Result, Unstructured};

/// Server of a console that echoes as many bytes as it received.
#[derive(Debug, Default)]
pub struct Bytes {
    said: usize,
    heard: usize,
}

impl Subject for Bytes {
    type Device = Console;

    fn begin(input: &mut Unstructured<'_>) -> Result<(Console, Self)> {
        let console = Console::of_size(input.arbitrary()?, input.arbitrary()?);
        Ok((console, Self::default()))
    }

    fn request(&self, input: &mut Unstructured<'_>) -> Result<(Vec<u8>, Vec<Chunk>)> {
        some_pieces(input)
    }

    fn serve(
        &mut self,
        transport: &mut Transport<Console>,
        memory: &Memory,
    ) -> core::result::Result<Progress, DriverError> {
        let Some((_, rings)) = transport.live() else {
            return Ok(Progress::default());
        };
        let said = Console::transmit(rings, memory, &mut |bytes| self.said += bytes.len())?;
        let heard = Console::receive(rings, memory, &mut |room| {
            let count = room.len().min(self.said - self.heard);
            room[..count].fill(b'x');
            self.heard += count;
            count
        })?;
        Ok(said.and(heard))
    }

    fn happen(
        &mut self,
        transport: &mut Transport<Console>,
        input: &mut Unstructured<'_>,
    ) -> Result<()> {
        let (columns, rows) = (input.arbitrary()?, input.arbitrary()?);
        transport.reconfigure(|console| console.resize(columns, rows));
        Ok(())
    }

    fn prove(&mut self, transport: &mut Transport<Console>, memory: &Memory) {
        let mut driver = Driver::new(memory, 1);
        driver.push(&[(0x1000, 600, false), (0x2000, 5, false)]);
        let before = self.said;
        let served = self.serve(transport, memory).expect("it makes sense");
        assert!(served.interrupt && !served.more);
        assert_eq!((self.said - before, driver.used()), (605, Some((0, 0))));
    }
}

/// Returns a request with a few descriptors.
fn some_pieces(input: &mut Unstructured<'_>) -> Result<(Vec<u8>, Vec<Chunk>)> {
    let is_room = input.arbitrary()?;
    let mut pieces = Vec::new();
    for number in 0..input.int_in_range(1..=3_u64)? {
        pieces.push((
            0x1000 * (number + 1),
            input.int_in_range(0..=0xf00)?,
            is_room,
        ));
    }
    Ok((Vec::new(), pieces))
}

/// Server of an entropy source.
#[derive(Debug, Default)]
pub struct Numbers;

impl Subject for Numbers {
    type Device = Entropy;

    fn begin(_: &mut Unstructured<'_>) -> Result<(Entropy, Self)> {
        Ok((Entropy, Self))
    }

    fn request(&self, input: &mut Unstructured<'_>) -> Result<(Vec<u8>, Vec<Chunk>)> {
        some_pieces(input)
    }

    fn serve(
        &mut self,
        transport: &mut Transport<Entropy>,
        memory: &Memory,
    ) -> core::result::Result<Progress, DriverError> {
        match transport.live() {
            Some((_, rings)) => Entropy::serve(rings, memory, &mut |bytes| bytes.fill(4)),
            None => Ok(Progress::default()),
        }
    }

    fn prove(&mut self, transport: &mut Transport<Entropy>, memory: &Memory) {
        let mut driver = Driver::new(memory, 0);
        driver.push(&[(0x1000, 70, true)]);
        let served = self.serve(transport, memory).expect("it makes sense");
        assert!(served.interrupt && !served.more);
        assert_eq!(
            (driver.used(), driver.bytes(0x1000, 2)),
            (Some((0, 70)), vec![4, 4])
        );
    }
}
