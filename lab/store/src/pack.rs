//! A million interrupts in one column: as they came over the wire, some twenty bytes
//! each. A piece is as many as [`interrupt::pack`] puts into a record, with its length
//! before it, because each piece is told apart from those before.

use trapline_abi::interrupt::{self, MAX_PACKED};
use trapline_abi::Interrupt;

/// All of `interrupts`, packed.
pub fn packed(mut interrupts: &[Interrupt]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(interrupts.len() * 24);
    let mut buffer = [0; MAX_PACKED];
    while !interrupts.is_empty() {
        // At least one fits: none is longer than a hundred bytes.
        let (count, used) = interrupt::pack(interrupts, &mut buffer);
        bytes.extend((used as u16).to_le_bytes());
        bytes.extend(&buffer[..used]);
        interrupts = &interrupts[count.max(1)..];
    }
    bytes
}

/// What [`packed`] has packed; `None` where it is damaged.
pub fn unpacked(mut bytes: &[u8]) -> Option<Vec<Interrupt>> {
    let mut interrupts = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes(*length));
        let (piece, rest) = rest.split_at_checked(length)?;
        interrupt::unpack(piece, &mut |interrupt| interrupts.push(interrupt)).ok()?;
        bytes = rest;
    }
    Some(interrupts)
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
    fn a_million_interrupts_are_small_and_come_back() {
        let interrupts: Vec<_> = (0..1_000_000).map(interrupt).collect();
        let bytes = packed(&interrupts);
        assert!(bytes.len() < 24_000_000, "{} bytes", bytes.len());
        assert!(unpacked(&bytes).unwrap() == interrupts);
        assert_eq!(unpacked(&[]), Some(Vec::new()));
    }

    #[test]
    fn damage_is_noticed() {
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
