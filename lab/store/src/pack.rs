//! Packing of interrupts (about twenty bytes each) and of disk requests (about six) into one column, in the
//! encoding of the guest's records.
//!
//! The column is a sequence of pieces. A piece is the payload of one record of [`interrupt::pack`] or
//! [`block::pack`], which is decoded independently of the others, after its length.

use trapline_abi::block::{self, DiskRequest};
use trapline_abi::interrupt::{self, MAX_PACKED};
use trapline_abi::Interrupt;
use trapline_model::Sample;

/// Packs interrupts.
pub fn packed(interrupts: &[Interrupt]) -> Vec<u8> {
    let mut buffer = [0; MAX_PACKED];
    pieces(interrupts, |rest| {
        let (count, used) = interrupt::pack(rest, &mut buffer);
        (count, buffer[..used].to_vec())
    })
}

/// Unpacks the interrupts of [`packed`]; `None` if the bytes are damaged.
pub fn unpacked(bytes: &[u8]) -> Option<Vec<Interrupt>> {
    let mut interrupts = Vec::new();
    for_each_piece(bytes, |piece| {
        interrupt::unpack(piece, &mut |interrupt| interrupts.push(interrupt)).ok()
    })?;
    Some(interrupts)
}

/// Returns true if [`packed_requests`] keeps `samples` without loss.
pub fn are_requests(samples: &[Sample]) -> bool {
    let mut before = 0;
    samples.iter().all(|sample| {
        let in_order = before <= sample.start && sample.start <= sample.end;
        before = sample.start;
        in_order && sample.count == 1 && sample.host_ns.is_none() && sample.excluded == 0
    })
}

/// Packs requests.
pub fn packed_requests(requests: &[Sample]) -> Vec<u8> {
    let request = |&Sample { start, end, .. }: &Sample| DiskRequest { start, end };
    let requests: Vec<_> = requests.iter().map(request).collect();
    let mut buffer = [0; block::MAX_PACKED];
    pieces(&requests, |rest| {
        let (count, used) = block::pack(rest, &mut buffer);
        (count, buffer[..used].to_vec())
    })
}

/// Unpacks the requests of [`packed_requests`]; `None` if the bytes are damaged.
pub fn unpacked_requests(bytes: &[u8]) -> Option<Vec<Sample>> {
    let mut requests = Vec::new();
    for_each_piece(bytes, |piece| {
        let mut keep = |DiskRequest { start, end }| {
            requests.push(Sample {
                start,
                end,
                count: 1,
                host_ns: None,
                excluded: 0,
            });
        };
        block::unpack(piece, &mut keep).ok()
    })?;
    Some(requests)
}

/// Concatenates pieces until `pack` has taken all items.
fn pieces<T>(mut rest: &[T], mut pack: impl FnMut(&[T]) -> (usize, Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(rest.len() * 24);
    while !rest.is_empty() {
        // At least one fits: an item has at most a hundred bytes.
        let (count, piece) = pack(rest);
        bytes.extend((piece.len() as u16).to_le_bytes());
        bytes.extend(piece);
        rest = &rest[count.max(1)..];
    }
    bytes
}

fn for_each_piece(mut bytes: &[u8], mut unpack: impl FnMut(&[u8]) -> Option<()>) -> Option<()> {
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes(*length));
        let (piece, rest) = rest.split_at_checked(length)?;
        unpack(piece)?;
        bytes = rest;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interrupt(sequence: u64) -> Interrupt {
        let due = (1 << 50) + 25_000_000 * sequence;
        Interrupt {
            sequence,
            due,
            woke: Some(due + 20_000),
            marked: Some(due + 25_000),
            entered: due + 40_000 + sequence % 1_000,
            done: due + 41_100,
            resumed: due + 43_000,
            ..Interrupt::default()
        }
    }

    #[test]
    fn a_million_interrupts_are_packed_without_loss() {
        let interrupts: Vec<_> = (0..1_000_000).map(interrupt).collect();
        let bytes = packed(&interrupts);
        assert!(bytes.len() < 24_000_000, "{} bytes", bytes.len());
        assert!(unpacked(&bytes).unwrap() == interrupts);
        assert_eq!(unpacked(&[]), Some(Vec::new()));
    }

    #[test]
    fn requests_are_packed_without_loss() {
        let sample = |number: u64| Sample {
            start: (1 << 50) + 30_000 * number,
            end: (1 << 50) + 30_000 * number + 700_000,
            count: 1,
            host_ns: None,
            excluded: 0,
        };
        let requests: Vec<_> = (0..30_000).map(sample).collect();
        let bytes = packed_requests(&requests);
        assert!(bytes.len() < 200_000, "{} bytes", bytes.len());
        assert!(unpacked_requests(&bytes).unwrap() == requests);
        assert_eq!(unpacked_requests(&bytes[..bytes.len() - 1]), None);
        assert!(are_requests(&requests));
        let of_two = Sample {
            count: 2,
            ..requests[0]
        };
        assert!(!are_requests(&[of_two]) && !are_requests(&[requests[1], requests[0]]));
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let bytes = packed(&[interrupt(1), interrupt(2)]);
        for damaged in [
            &bytes[..1],
            &bytes[..bytes.len() - 1],
            &[5, 0, 1],
            &[1, 0, 0xff],
        ] {
            assert_eq!(unpacked(damaged), None, "{damaged:?}");
        }
    }
}
