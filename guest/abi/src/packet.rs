//! Numbered frames between two guests on a switch: operations `packet-…` of workload `net`. In operations `udp-…` they are the
//! content of datagrams.
//!
//! The sender numbers its frames from 0. The receiver checks number, length and content of each, and acknowledges every
//! [`ACKNOWLEDGED`] frames with a frame that has the number of the next one it expects. No more than [`WINDOW`] frames are on
//! their way, as many as a receiver has buffers, so that a switch loses none. A number of 0 begins anew. After a frame with
//! wrong content the receiver answers with [`DAMAGED`].
//!
//! A frame from the sender of the type of acknowledgements is a ping, which the receiver answers at once with its number.
//!
//! Content is the number in each word behind the header, as in `trapline-traffic`.

use crate::operation::{Op, OpSet};

/// Frames of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// [`BURST`] frames of this length, until all are acknowledged.
    Burst(usize),
    /// A ping of [`SMALL`] bytes, until its answer arrives.
    Ping,
}

/// Operations with the frames of a sample.
pub const OPERATIONS: [(Op, Frames); 3] = [
    (Op::Packet64, Frames::Burst(64)),
    (Op::Packet1500, Frames::Burst(1500)),
    (Op::PacketPing, Frames::Ping),
];

/// Returns the operations.
pub fn operations() -> OpSet {
    OPERATIONS.into_iter().map(|(op, _)| op).collect()
}

/// Bytes of destination, source and type.
pub const HEADER: usize = 14;

/// Shortest frame.
pub const SHORTEST: usize = HEADER + 8;

/// Bytes of an acknowledgement or a ping: the shortest frame of Ethernet, without its checksum.
pub const SMALL: usize = 60;

/// Type of numbered frames: for local experiments (IEEE 802, 9.2).
pub const DATA: [u8; 2] = [0x88, 0xb5];
/// Type of acknowledgements: the other one for local experiments.
pub const ACKNOWLEDGEMENT: [u8; 2] = [0x88, 0xb6];

/// Last bytes of the addresses of sender and receiver.
pub const SENDER: u8 = 1;
/// See [`SENDER`].
pub const RECEIVER: u8 = 2;

/// Frames on their way, at most.
pub const WINDOW: u64 = 64;
/// The receiver acknowledges every so many frames.
pub const ACKNOWLEDGED: u64 = 32;
/// Frames of a sample, a multiple of [`ACKNOWLEDGED`].
pub const BURST: u64 = 1024;

// The last frames of a burst are acknowledged, and the sender need not wait for the one acknowledgement on its way.
const _: () = assert!(SHORTEST <= SMALL);
const _: () = assert!(BURST.is_multiple_of(ACKNOWLEDGED) && WINDOW >= 2 * ACKNOWLEDGED);

/// Number in the answer to a damaged frame.
pub const DAMAGED: u64 = u64::MAX;

/// Position of the length in the number of a data frame, whose lower bits count.
const LENGTH_SHIFT: u32 = 48;

/// Word that the receiver prints when it receives.
pub const READY: &str = "trapline-receiver-ready\n";

/// Returns the number of data frame `count` with `length` bytes.
pub const fn number_of(count: u64, length: usize) -> u64 {
    (length as u64) << LENGTH_SHIFT | count
}

/// Returns the count of a data frame with this number; `None` if its length is not `length`.
pub fn count_of(number: u64, length: usize) -> Option<u64> {
    let count = number & ((1 << LENGTH_SHIFT) - 1);
    (number >> LENGTH_SHIFT == length as u64).then_some(count)
}

/// Writes a frame of at least [`SHORTEST`] bytes to `to`, with `number` in each word.
#[inline]
pub fn fill(frame: &mut [u8], [to, from]: [u8; 2], kind: [u8; 2], number: u64) {
    let Some((header, content)) = frame.split_first_chunk_mut::<HEADER>() else {
        return;
    };
    let [a, b] = kind;
    *header = [2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, a, b];
    let (words, rest) = content.as_chunks_mut::<8>();
    for word in words {
        *word = number.to_le_bytes();
    }
    rest.copy_from_slice(&number.to_le_bytes()[..rest.len()]);
}

/// Returns the number of a frame of this type from `from`; `None` for other frames, [`DAMAGED`] for one with different words.
#[inline]
pub fn number(frame: &[u8], from: u8, kind: [u8; 2]) -> Option<u64> {
    let (header, content) = frame.split_first_chunk::<HEADER>()?;
    if header[6..12] != [2, 0, 0, 0, 0, from] || header[12..] != kind {
        return None;
    }
    let (words, rest) = content.as_chunks::<8>();
    let Some((first, others)) = words.split_first() else {
        return Some(DAMAGED);
    };
    let number = u64::from_le_bytes(*first);
    let differences = others
        .iter()
        .fold(0, |sum, word| sum | (u64::from_le_bytes(*word) ^ number));
    let is_whole = differences == 0 && *rest == first[..rest.len()];
    Some(if is_whole { number } else { DAMAGED })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn frames_with_any_other_byte_or_length_are_detected() {
        for length in [SHORTEST, 60, 64, 65, 1500] {
            let mut frame = vec![0; length];
            let sent = number_of(1 << 40 | 77, length);
            fill(&mut frame, [RECEIVER, SENDER], DATA, sent);
            assert_eq!(number(&frame, SENDER, DATA), Some(sent));
            assert_eq!(count_of(sent, length), Some(1 << 40 | 77));
            assert_eq!(count_of(sent, length - 1), None);
            assert_eq!(number(&frame, RECEIVER, DATA), None);
            assert_eq!(number(&frame, SENDER, ACKNOWLEDGEMENT), None);
            for byte in 6..length {
                frame[byte] ^= 0x40;
                assert_ne!(
                    number(&frame, SENDER, DATA),
                    Some(sent),
                    "{byte} of {length}"
                );
                frame[byte] ^= 0x40;
            }
        }
        assert_eq!(number(&[0; 13], SENDER, DATA), None);
    }
}
