//! A request: ranges of guest memory, first readable, then writable for the device.

use crate::virtio::{DriverError, Memory};
use alloc::vec::Vec;

/// A checked range of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Address.
    pub at: u64,
    /// Length in bytes.
    pub length: usize,
}

/// A descriptor chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    head: u16,
    readable: Vec<Part>,
    writable: Vec<Part>,
}

impl Chain {
    pub(crate) fn new(head: u16) -> Self {
        Self {
            head,
            ..Self::default()
        }
    }

    /// Appends a range; readable ranges precede writable ones (section 2.7.4.2).
    pub(crate) fn add(
        &mut self,
        memory: &Memory,
        part: Part,
        write: bool,
    ) -> Result<(), DriverError> {
        if part.length == 0 {
            return Ok(());
        }
        if !memory.contains(part.at, part.length) {
            return Err(DriverError::Chain);
        }
        match write {
            true => self.writable.push(part),
            false if self.writable.is_empty() => self.readable.push(part),
            false => return Err(DriverError::Chain),
        }
        // Lengths in the used ring have 32 bits.
        match u32::try_from(length(&self.readable).max(length(&self.writable))) {
            Ok(_) => Ok(()),
            Err(_) => Err(DriverError::Chain),
        }
    }

    /// Index of the first descriptor.
    pub fn head(&self) -> u16 {
        self.head
    }

    /// Readable ranges.
    pub fn readable(&self) -> &[Part] {
        &self.readable
    }

    /// Writable ranges.
    pub fn writable(&self) -> &[Part] {
        &self.writable
    }

    /// Length of the readable ranges.
    pub fn readable_length(&self) -> usize {
        length(&self.readable)
    }

    /// Length of the writable ranges.
    pub fn writable_length(&self) -> usize {
        length(&self.writable)
    }

    /// Copies readable bytes from `offset`.
    ///
    /// # Errors
    /// The request is too short.
    pub fn read(&self, memory: &Memory, offset: usize, into: &mut [u8]) -> Result<(), DriverError> {
        let mut done = 0;
        for part in slices(&self.readable, offset, into.len())? {
            let into = &mut into[done..done + part.length];
            memory.read(part.at, into).map_err(|_| DriverError::Chain)?;
            done += part.length;
        }
        Ok(())
    }

    /// Copies `bytes` to the writable ranges at `offset`.
    ///
    /// # Errors
    /// The request is too short.
    pub fn write(&self, memory: &Memory, offset: usize, bytes: &[u8]) -> Result<(), DriverError> {
        let mut done = 0;
        for part in slices(&self.writable, offset, bytes.len())? {
            let bytes = &bytes[done..done + part.length];
            memory
                .write(part.at, bytes)
                .map_err(|_| DriverError::Chain)?;
            done += part.length;
        }
        Ok(())
    }
}

fn length(parts: &[Part]) -> usize {
    parts
        .iter()
        .fold(0, |sum: usize, part| sum.saturating_add(part.length))
}

/// Returns the ranges of `length` bytes from `offset` of `parts`.
///
/// # Errors
/// The parts are too short.
pub fn slices(
    parts: &[Part],
    offset: usize,
    length: usize,
) -> Result<impl Iterator<Item = Part> + '_, DriverError> {
    let end = offset.checked_add(length).ok_or(DriverError::Request)?;
    if end > self::length(parts) {
        return Err(DriverError::Request);
    }
    let (mut skip, mut left) = (offset, length);
    Ok(parts.iter().filter_map(move |part| {
        let skipped = skip.min(part.length);
        let taken = left.min(part.length - skipped);
        skip -= skipped;
        left -= taken;
        (taken > 0).then(|| Part {
            at: part.at + skipped as u64,
            length: taken,
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(at: u64, length: usize) -> Part {
        Part { at, length }
    }

    fn memory() -> Memory {
        Memory::new(0x4000).unwrap()
    }

    #[test]
    fn copies_cross_ranges() {
        let (memory, mut chain) = (memory(), Chain::new(3));
        for (piece, write) in [
            (part(0x100, 3), false),
            (part(0x200, 5), false),
            (part(0x300, 2), true),
            (part(0x400, 2), true),
        ] {
            chain.add(&memory, piece, write).unwrap();
        }
        memory.write(0x100, b"abc").unwrap();
        memory.write(0x200, b"defgh").unwrap();
        let mut bytes = [0; 4];
        chain.read(&memory, 2, &mut bytes).unwrap();
        assert_eq!(&bytes, b"cdef");
        assert_eq!(
            chain.read(&memory, 5, &mut bytes),
            Err(DriverError::Request)
        );
        chain.write(&memory, 1, b"xy").unwrap();
        let mut bytes = [0; 2];
        memory.read(0x301, &mut bytes).unwrap();
        assert_eq!(bytes, [b'x', 0]);
        memory.read(0x400, &mut bytes).unwrap();
        assert_eq!(bytes, [b'y', 0]);
        assert_eq!(chain.write(&memory, 3, b"xy"), Err(DriverError::Request));
        assert_eq!(
            chain.write(&memory, usize::MAX, b"x"),
            Err(DriverError::Request)
        );
        assert_eq!((chain.readable_length(), chain.writable_length()), (8, 4));
    }

    #[test]
    fn invalid_ranges_are_rejected() {
        let (memory, mut chain) = (memory(), Chain::default());
        for at in [0x4000, 0x3fff, u64::MAX] {
            assert_eq!(
                chain.add(&memory, part(at, 2), true),
                Err(DriverError::Chain)
            );
        }
        chain.add(&memory, part(u64::MAX, 0), true).unwrap();
        assert_eq!(chain, Chain::default());
        chain.add(&memory, part(0, 1), true).unwrap();
        assert_eq!(
            chain.add(&memory, part(0, 1), false),
            Err(DriverError::Chain)
        );
    }
}
