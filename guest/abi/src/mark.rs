//! Marks: instructions that do nothing, by which a watcher of the simulated
//! machine knows where a measured batch begins and ends.
//!
//! A mark is the no-op `nop dword [rax + rax + displacement]` of 8 bytes (Intel
//! SDM volume 2, NOP) with a displacement that no compiler emits. It counts as one
//! instruction like any other, whether or not anybody watches.

use crate::record::Stage;

/// The bytes of a mark before its kind.
pub const HEAD: [u8; 4] = [0x0f, 0x1f, 0x84, 0x00];

/// The bytes of a mark behind its kind.
pub const TAIL: [u8; 3] = [0x00, 0x70, 0x7a];

/// A mark that means nothing: calibration executes it in place of the others.
pub const IDLE: u8 = 0;

/// The next instruction is the first of a batch.
pub const BEGIN: u8 = 1;

/// The instruction before was the last of a batch.
pub const END: u8 = 2;

/// The clock was read one instruction before, because a stage of a start was
/// reached: the one whose number stands behind the kind. See [`crate::stamp!`].
pub const STAGE: u8 = 3;

/// Instructions between the readings of the clock around a batch, the first
/// reading among them, without those between the marks: `rdtsc`, `lfence`, two moves that
/// keep the reading, mark before the batch, and mark, `lfence` behind it.
pub const AROUND: u64 = 7;

/// The kind of mark that an instruction's bytes are, if they are one.
pub fn kind(bytes: &[u8]) -> Option<u8> {
    let rest = bytes.strip_prefix(&HEAD)?;
    let (kind, tail) = rest.split_first()?;
    (tail == TAIL).then_some(*kind)
}

/// The stage that an instruction's bytes mark, if they are such a mark.
pub fn stage(bytes: &[u8]) -> Option<Stage> {
    match bytes.strip_prefix(&HEAD)? {
        [STAGE, number, tail @ ..] if *tail == TAIL[1..] => {
            Stage::ALL.get(usize::from(*number)).copied()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_known_from_its_mark() {
        let mark = |number| [0x0f, 0x1f, 0x84, 0x00, STAGE, number, 0x70, 0x7a];
        for stage in Stage::ALL {
            assert_eq!(super::stage(&mark(stage as u8)), Some(stage));
        }
        assert_eq!(super::stage(&mark(Stage::ALL.len() as u8)), None);
        assert_eq!(super::stage(&mark(0)[..7]), None);
        assert_eq!(kind(&mark(Stage::VmmMain as u8)), None);
    }

    #[test]
    fn a_mark_is_known_from_its_bytes_alone() {
        let bytes = [0x0f, 0x1f, 0x84, 0x00, BEGIN, 0x00, 0x70, 0x7a];
        assert_eq!(kind(&bytes), Some(BEGIN));
        assert_eq!(kind(&bytes[..7]), None);
        // What assemblers pad with.
        assert_eq!(kind(&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]), None);
        assert_eq!(kind(&[]), None);
    }
}
