//! Markers: no-op instructions at the begin and end of a measured batch, which the plugin of a
//! simulated machine recognises.
//!
//! A marker is `nop dword [rax + rax + displacement]` of 8 bytes (Intel SDM volume 2, NOP) with a
//! displacement that compilers do not emit. It counts as one instruction, with or without the
//! plugin.

use crate::record::Stage;

/// Bytes before the kind.
pub const HEAD: [u8; 4] = [0x0f, 0x1f, 0x84, 0x00];

/// Bytes after the kind.
pub const TAIL: [u8; 3] = [0x00, 0x70, 0x7a];

/// Marker without a meaning, used in calibration.
pub const IDLE: u8 = 0;

/// Precedes the first instruction of a batch.
pub const BEGIN: u8 = 1;

/// Follows the last instruction of a batch.
pub const END: u8 = 2;

/// Follows a reading of the clock at a stage of the boot. The number of the stage follows the
/// kind. See [`crate::stamp!`].
pub const STAGE: u8 = 3;

/// Instructions from the first reading of the clock of a batch to the second, without those
/// between the markers: `rdtsc`, `lfence`, two moves and the marker before the batch, the marker
/// and `lfence` after it.
pub const OVERHEAD: u64 = 7;

/// Returns the kind of marker that an instruction is.
pub fn kind(bytes: &[u8]) -> Option<u8> {
    let rest = bytes.strip_prefix(&HEAD)?;
    let (kind, tail) = rest.split_first()?;
    (tail == TAIL).then_some(*kind)
}

/// Returns the stage that an instruction marks.
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
    fn stage_markers_are_recognised() {
        let marker = |number| [0x0f, 0x1f, 0x84, 0x00, STAGE, number, 0x70, 0x7a];
        for stage in Stage::ALL {
            assert_eq!(super::stage(&marker(stage as u8)), Some(stage));
        }
        assert_eq!(super::stage(&marker(Stage::ALL.len() as u8)), None);
        assert_eq!(super::stage(&marker(0)[..7]), None);
        assert_eq!(kind(&marker(Stage::VmmMain as u8)), None);
    }

    #[test]
    fn markers_are_recognised_and_padding_is_not() {
        let bytes = [0x0f, 0x1f, 0x84, 0x00, BEGIN, 0x00, 0x70, 0x7a];
        assert_eq!(kind(&bytes), Some(BEGIN));
        assert_eq!(kind(&bytes[..7]), None);
        // Padding of assemblers.
        assert_eq!(kind(&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]), None);
        assert_eq!(kind(&[]), None);
    }
}
