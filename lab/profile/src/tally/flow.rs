//! Which instructions push a return address and which take one, told from their
//! bytes (Intel SDM volume 2, CALL and RET near; appendix A for prefixes).

/// What an instruction does to the stack of return addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It stores one.
    Call,
    /// It loads one.
    Return,
}

/// The flow of the instruction that is `bytes`, if it has one. Far calls and
/// returns, of which there are some at the start of a machine, count as jumps.
pub fn of(bytes: &[u8]) -> Option<Flow> {
    let prefixes = bytes.iter().take_while(|byte| is_prefix(**byte)).count();
    match bytes[prefixes..] {
        [0xe8, ..] => Some(Flow::Call),
        // The middle bits of the byte behind it say which of eight it is.
        [0xff, which, ..] if which >> 3 & 7 == 2 => Some(Flow::Call),
        [0xc3] | [0xc2, ..] => Some(Flow::Return),
        _ => None,
    }
}

/// Sizes, segments, repetition (`bnd`, `rep ret`), and REX.
fn is_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x66 | 0x67 | 0xf2 | 0xf3 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x40..=0x4f
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_returns_are_known_from_their_bytes() {
        for (bytes, flow) in [
            (&[0xe8, 0, 0, 0, 0][..], Some(Flow::Call)),
            (&[0xff, 0xd0], Some(Flow::Call)),
            (&[0x41, 0xff, 0x54, 0x24, 8], Some(Flow::Call)),
            (&[0x3e, 0xff, 0xd0], Some(Flow::Call)),
            (&[0x2e, 0xe8, 0, 0, 0, 0], Some(Flow::Call)),
            (&[0xc3], Some(Flow::Return)),
            (&[0xf3, 0xc3], Some(Flow::Return)),
            (&[0xc2, 8, 0], Some(Flow::Return)),
            // jmp, push, inc; an immediate that looks like a return.
            (&[0xff, 0xe0], None),
            (&[0xff, 0x75, 0xe8], None),
            (&[0xff, 0xc0], None),
            (&[0xb0, 0xc3], None),
            (&[0x48], None),
        ] {
            assert_eq!(of(bytes), flow, "{bytes:x?}");
        }
    }
}
