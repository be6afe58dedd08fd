//! The elements of a request: one, or those of a string instruction.

use crate::slot::{IoRequest, Space};
use trapline_interface::{Exit, IoAddr, Region};

/// Largest element in bytes.
const LARGEST: u32 = 8;

/// Elements that are left of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    request: IoRequest,
    space: Space,
    element: u32,
}

impl Transfer {
    /// Returns the elements of a request; `None` if it has none, or its size is invalid.
    #[inline]
    pub fn of(request: IoRequest) -> Option<Self> {
        let is_valid = request.count > 0 && matches!(request.size, 1..=LARGEST);
        let space = request.space.filter(|_| is_valid)?;
        Some(Self {
            request,
            space,
            element: 0,
        })
    }

    /// Returns the address of the current element from that of the first one.
    #[inline]
    fn at(&self, first: u64) -> u64 {
        let offset = u64::from(self.element) * u64::from(self.request.size);
        if self.request.is_downward {
            first.wrapping_sub(offset)
        } else {
            first.wrapping_add(offset)
        }
    }

    /// Returns the exit of the current element. Elements outside of `memory` have all bits set.
    #[inline]
    pub fn exit(&self, memory: &Region) -> Exit {
        let IoRequest { data, size, .. } = self.request;
        let at = match self.space {
            Space::Port => IoAddr::Port(self.request.address as u16),
            Space::Memory => IoAddr::Mmio(self.at(self.request.address)),
        };
        if self.request.is_read {
            let size = size as u8;
            return Exit::Read { at, size };
        }
        let data = if self.request.is_pointer {
            let mut bytes = [0; 8];
            let read = memory.read(self.at(data), &mut bytes[..size as usize]);
            read.map_or(u64::MAX, |()| u64::from_le_bytes(bytes))
        } else {
            data
        };
        let data = data & mask(size);
        let size = size as u8;
        Exit::Write { at, size, data }
    }

    /// Ends the current element, a read with `answer`. Returns the value for the guest's register, if it has one.
    #[inline]
    pub fn finish(&self, answer: u64, memory: &Region) -> Option<u64> {
        let IoRequest { data, size, .. } = self.request;
        if !self.request.is_read {
            return None;
        }
        if !self.request.is_pointer {
            return Some(answer & mask(size));
        }
        let bytes = answer.to_le_bytes();
        // Elements outside of memory are lost.
        let _outside = memory.write(self.at(data), &bytes[..size as usize]);
        None
    }

    /// Proceeds to the next element. Returns false if there is none.
    #[inline]
    pub fn advance(&mut self) -> bool {
        self.element += 1;
        self.element < self.request.count
    }
}

fn mask(size: u32) -> u64 {
    u64::MAX >> (64 - 8 * size)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: IoRequest = IoRequest {
        space: Some(Space::Port),
        address: 0x3f8,
        data: 0x1_23ff,
        is_pointer: false,
        count: 1,
        size: 1,
        is_read: false,
        is_downward: false,
    };

    fn memory() -> Region {
        let region = Region::new(4096).unwrap();
        region.write(0, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        region
    }

    fn exits(request: IoRequest, answer: u64, memory: &Region) -> (Vec<String>, Option<u64>) {
        let mut transfer = Transfer::of(request).unwrap();
        let mut exits = Vec::new();
        loop {
            exits.push(transfer.exit(memory).to_string());
            let value = transfer.finish(answer, memory);
            if !transfer.advance() {
                return (exits, value);
            }
        }
    }

    #[test]
    fn value_is_cut_to_the_size_of_the_access() {
        let memory = memory();
        let (write, _) = exits(REQUEST, 0, &memory);
        assert_eq!(write, ["write port 0x3f8 size 1 data 0xff"]);
        let read = IoRequest {
            is_read: true,
            space: Some(Space::Memory),
            size: 4,
            ..REQUEST
        };
        let (exits, value) = exits(read, u64::MAX, &memory);
        assert_eq!(exits, ["read mmio 0x3f8 size 4"]);
        assert_eq!(value, Some(0xffff_ffff));
    }

    #[test]
    fn string_write_reads_its_elements_from_memory() {
        let memory = memory();
        let outs = IoRequest {
            data: 2,
            is_pointer: true,
            count: 2,
            size: 2,
            ..REQUEST
        };
        let upward = exits(outs, 0, &memory).0;
        assert_eq!(
            upward,
            [
                "write port 0x3f8 size 2 data 0x403",
                "write port 0x3f8 size 2 data 0x605"
            ]
        );
        let downward = IoRequest {
            is_downward: true,
            space: Some(Space::Memory),
            ..outs
        };
        let downward = exits(downward, 0, &memory).0;
        assert_eq!(
            downward,
            [
                "write mmio 0x3f8 size 2 data 0x403",
                "write mmio 0x3f6 size 2 data 0x201"
            ]
        );
    }

    #[test]
    fn string_read_writes_its_elements_to_memory() {
        let memory = memory();
        let ins = IoRequest {
            data: 1,
            is_pointer: true,
            is_read: true,
            count: 3,
            ..REQUEST
        };
        assert_eq!(exits(ins, 0x7a, &memory).1, None);
        assert_eq!(memory.load64(0), Some(0x0807_0605_7a7a_7a01));
    }

    #[test]
    fn elements_outside_of_memory_are_ones_and_are_not_written() {
        let memory = memory();
        for data in [4095, 4096, u64::MAX] {
            let request = IoRequest {
                data,
                is_pointer: true,
                count: 2,
                size: 4,
                ..REQUEST
            };
            let write = exits(request, 0, &memory).0;
            assert_eq!(write[0], "write port 0x3f8 size 4 data 0xffffffff");
            let read = IoRequest {
                is_read: true,
                ..request
            };
            assert_eq!(exits(read, 0, &memory).1, None);
        }
    }

    #[test]
    fn invalid_requests_have_no_elements() {
        let invalid = |size, count, space| {
            let request = IoRequest {
                size,
                count,
                space,
                ..REQUEST
            };
            Transfer::of(request).is_none()
        };
        let port = Some(Space::Port);
        assert!(invalid(0, 1, port) && invalid(9, 1, port) && invalid(1, 0, port));
        assert!(invalid(1, 1, None) && !invalid(8, 1, port));
    }
}
