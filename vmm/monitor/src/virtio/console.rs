//! A console with one port (virtio 1.2, section 5.3).

use crate::virtio::{Chain, Device, DriverError, Memory, Progress, Ring};

const KIND: u32 = 3;
const QUEUES: [u16; 2] = [64, 64];
const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;

/// Bytes copied at once.
const PIECE: usize = 512;

/// VIRTIO_CONSOLE_F_SIZE.
const SIZE: u64 = 1;

/// The device.
#[derive(Debug, Default)]
pub struct Console {
    configuration: [u8; 4],
}

impl Device for Console {
    fn kind(&self) -> u32 {
        KIND
    }

    fn features(&self) -> u64 {
        match self.configuration {
            [0, 0, 0, 0] => 0,
            _ => SIZE,
        }
    }

    fn queues(&self) -> &[u16] {
        &QUEUES
    }

    fn configuration(&self) -> &[u8] {
        &self.configuration
    }
}

impl Console {
    /// Creates a console with the given size.
    pub fn of_size(columns: u16, rows: u16) -> Self {
        let mut console = Self::default();
        console.resize(columns, rows);
        console
    }

    /// Sets the size.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.configuration[..2].copy_from_slice(&columns.to_le_bytes());
        self.configuration[2..].copy_from_slice(&rows.to_le_bytes());
    }

    /// Passes transmitted bytes to `say`.
    ///
    /// # Errors
    /// The rings are malformed.
    pub fn transmit(
        rings: &mut [Ring],
        memory: &Memory,
        say: &mut impl FnMut(&[u8]),
    ) -> Result<Progress, DriverError> {
        let ring = rings.get_mut(TRANSMIT).ok_or(DriverError::Ring)?;
        ring.serve_all(memory, |chain| {
            say_all(chain, memory, say)?;
            Ok(Some(0))
        })
    }

    /// Fills receive buffers by `hear`, which returns the number of bytes written, 0 if there is no input.
    ///
    /// # Errors
    /// The rings are malformed.
    pub fn receive(
        rings: &mut [Ring],
        memory: &Memory,
        hear: &mut impl FnMut(&mut [u8]) -> usize,
    ) -> Result<Progress, DriverError> {
        let ring = rings.get_mut(RECEIVE).ok_or(DriverError::Ring)?;
        let mut bytes = [0; PIECE];
        ring.serve_all(memory, |chain| {
            let room = chain.writable_length().min(PIECE);
            match hear(&mut bytes[..room]) {
                0 => Ok(None),
                count => {
                    chain.write(memory, 0, &bytes[..count])?;
                    Ok(Some(count))
                }
            }
        })
    }
}

fn say_all(chain: &Chain, memory: &Memory, say: &mut impl FnMut(&[u8])) -> Result<(), DriverError> {
    let (mut bytes, length) = ([0; PIECE], chain.readable_length());
    for from in (0..length).step_by(PIECE) {
        let piece = &mut bytes[..PIECE.min(length - from)];
        chain.read(memory, from, piece)?;
        say(piece);
    }
    Ok(())
}
