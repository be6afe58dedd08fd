//! A request: pieces of guest memory, first those that the device reads, then those
//! that it writes.

use crate::virtio::{Broken, Memory};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

/// A piece of guest memory: all of it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it begins.
    pub at: GuestAddress,
    /// Bytes.
    pub length: usize,
}

/// What a driver has put into a ring as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    head: u16,
    readable: Vec<Part>,
    writable: Vec<Part>,
}

impl Chain {
    pub(crate) fn begun(head: u16) -> Self {
        Self {
            head,
            ..Self::default()
        }
    }

    /// One more of its pieces; none may be read behind one that is written
    /// (section 2.7.4.2).
    pub(crate) fn add(&mut self, memory: &Memory, part: Part, write: bool) -> Result<(), Broken> {
        if part.length == 0 {
            return Ok(());
        }
        if !memory.check_range(part.at, part.length) {
            return Err(Broken::Chain);
        }
        match write {
            true => self.writable.push(part),
            false if self.writable.is_empty() => self.readable.push(part),
            false => return Err(Broken::Chain),
        }
        // The used ring counts in 32 bits.
        match u32::try_from(length(&self.readable).max(length(&self.writable))) {
            Ok(_) => Ok(()),
            Err(_) => Err(Broken::Chain),
        }
    }

    /// By which the ring knows it again.
    pub fn head(&self) -> u16 {
        self.head
    }

    /// What the device reads.
    pub fn readable(&self) -> &[Part] {
        &self.readable
    }

    /// What the device writes.
    pub fn writable(&self) -> &[Part] {
        &self.writable
    }

    /// How many bytes the device may read.
    pub fn readable_length(&self) -> usize {
        length(&self.readable)
    }

    /// How many bytes the device may write.
    pub fn writable_length(&self) -> usize {
        length(&self.writable)
    }

    /// Fills `into` from byte `offset` of what the device reads.
    ///
    /// # Errors
    /// There are not so many.
    pub fn read(&self, memory: &Memory, offset: usize, into: &mut [u8]) -> Result<(), Broken> {
        let mut done = 0;
        for part in slices(&self.readable, offset, into.len())? {
            let into = &mut into[done..done + part.length];
            memory
                .read_slice(into, part.at)
                .map_err(|_| Broken::Chain)?;
            done += part.length;
        }
        Ok(())
    }

    /// Puts `bytes` at byte `offset` of what the device writes.
    ///
    /// # Errors
    /// There is no such room.
    pub fn write(&self, memory: &Memory, offset: usize, bytes: &[u8]) -> Result<(), Broken> {
        let mut done = 0;
        for part in slices(&self.writable, offset, bytes.len())? {
            let bytes = &bytes[done..done + part.length];
            memory
                .write_slice(bytes, part.at)
                .map_err(|_| Broken::Chain)?;
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

/// The `length` bytes of `parts` from `offset` on.
///
/// # Errors
/// There are not so many.
pub fn slices(
    parts: &[Part],
    offset: usize,
    length: usize,
) -> Result<impl Iterator<Item = Part> + '_, Broken> {
    let end = offset.checked_add(length).ok_or(Broken::Request)?;
    if end > self::length(parts) {
        return Err(Broken::Request);
    }
    let (mut skip, mut left) = (offset, length);
    Ok(parts.iter().filter_map(move |part| {
        let skipped = skip.min(part.length);
        let taken = left.min(part.length - skipped);
        skip -= skipped;
        left -= taken;
        (taken > 0).then(|| Part {
            at: GuestAddress(part.at.0 + skipped as u64),
            length: taken,
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(at: u64, length: usize) -> Part {
        Part {
            at: GuestAddress(at),
            length,
        }
    }

    fn memory() -> Memory {
        Memory::from_ranges(&[(GuestAddress(0), 0x4000)]).unwrap()
    }

    #[test]
    fn what_is_read_and_written_crosses_pieces() {
        let (memory, mut chain) = (memory(), Chain::begun(3));
        for (piece, write) in [
            (part(0x100, 3), false),
            (part(0x200, 5), false),
            (part(0x300, 2), true),
            (part(0x400, 2), true),
        ] {
            chain.add(&memory, piece, write).unwrap();
        }
        memory.write_slice(b"abc", GuestAddress(0x100)).unwrap();
        memory.write_slice(b"defgh", GuestAddress(0x200)).unwrap();
        let mut bytes = [0; 4];
        chain.read(&memory, 2, &mut bytes).unwrap();
        assert_eq!(&bytes, b"cdef");
        assert_eq!(chain.read(&memory, 5, &mut bytes), Err(Broken::Request));
        chain.write(&memory, 1, b"xy").unwrap();
        let mut bytes = [0; 2];
        memory.read_slice(&mut bytes, GuestAddress(0x301)).unwrap();
        assert_eq!(bytes, [b'x', 0]);
        memory.read_slice(&mut bytes, GuestAddress(0x400)).unwrap();
        assert_eq!(bytes, [b'y', 0]);
        assert_eq!(chain.write(&memory, 3, b"xy"), Err(Broken::Request));
        assert_eq!(chain.write(&memory, usize::MAX, b"x"), Err(Broken::Request));
        assert_eq!((chain.readable_length(), chain.writable_length()), (8, 4));
    }

    #[test]
    fn pieces_outside_memory_or_out_of_order_are_refused() {
        let (memory, mut chain) = (memory(), Chain::default());
        for at in [0x4000, 0x3fff, u64::MAX] {
            assert_eq!(chain.add(&memory, part(at, 2), true), Err(Broken::Chain));
        }
        chain.add(&memory, part(u64::MAX, 0), true).unwrap();
        assert_eq!(chain, Chain::default());
        chain.add(&memory, part(0, 1), true).unwrap();
        assert_eq!(chain.add(&memory, part(0, 1), false), Err(Broken::Chain));
    }
}
