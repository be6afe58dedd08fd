//! Markers: instructions without effect at the begin and end of a measured batch and at the stages of a boot, which the
//! instrumentation of a simulated machine recognises. They are executed with and without it.
//!
//! A marker is `movz xzr, #number` (Arm ARM, C6.2.254), which no compiler emits: it writes a constant to the register that
//! reads as zero. Its number has room for a kind and a stage.

use crate::record::Stage;

/// `movz xzr, #0`.
const MOVE: u32 = 0xd280_001f;

/// Place of the number in the instruction.
const NUMBER: u32 = 5;

/// Bits of the number that are the same in all markers.
const OURS: u16 = 0xb400;

/// Marker without a meaning, used in calibration.
pub const IDLE: u8 = 0;

/// Precedes the first instruction of a batch.
pub const BEGIN: u8 = 1;

/// Follows the last instruction of a batch.
pub const END: u8 = 2;

/// Follows a reading of the clock at a stage of the boot, see [`crate::stamp!`].
pub const STAGE: u8 = 3;

/// Bits of the number below the stage.
const KINDS: u32 = 3;

/// Returns the number of the marker of a batch of this kind.
pub const fn of_batch(kind: u8) -> u16 {
    OURS | kind as u16
}

/// Returns the number of the marker of a stage.
pub const fn of_stage(stage: Stage) -> u16 {
    OURS | (stage as u16) << KINDS | STAGE as u16
}

/// Instructions from the first reading of the clock of a batch to the second, without those between the markers: `isb`
/// and the marker before the batch, the marker, `isb` and the reading after it.
pub const OVERHEAD: u64 = 5;

/// Returns the number of the marker that an instruction is.
fn number(bytes: &[u8]) -> Option<u16> {
    let word = u32::from_le_bytes(bytes.try_into().ok()?);
    let number = (word.wrapping_sub(MOVE) >> NUMBER) as u16;
    let is_marker = word == MOVE | u32::from(number) << NUMBER && number & 0xff00 == OURS;
    is_marker.then_some(number)
}

/// Returns the kind of the marker of a batch that an instruction is.
pub fn kind(bytes: &[u8]) -> Option<u8> {
    let number = number(bytes)?;
    let mut kinds = [BEGIN, END, IDLE].into_iter();
    kinds.find(|kind| number == of_batch(*kind))
}

/// Returns the stage that an instruction marks.
pub fn stage(bytes: &[u8]) -> Option<Stage> {
    let number = number(bytes)?;
    let mut stages = Stage::ALL.into_iter();
    stages.find(|stage| number == of_stage(*stage))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(number: u16) -> [u8; 4] {
        (MOVE | u32::from(number) << NUMBER).to_le_bytes()
    }

    #[test]
    fn markers_are_recognised_and_other_moves_are_not() {
        for wanted in [BEGIN, END, IDLE] {
            let bytes = instruction(of_batch(wanted));
            assert_eq!((kind(&bytes), stage(&bytes)), (Some(wanted), None));
            assert_eq!(kind(&bytes[..3]), None);
        }
        for wanted in Stage::ALL {
            let bytes = instruction(of_stage(wanted));
            assert_eq!((kind(&bytes), stage(&bytes)), (None, Some(wanted)));
        }
        let last = Stage::ALL.len() as u16;
        let unknown = instruction(OURS | last << KINDS | u16::from(STAGE));
        assert_eq!((kind(&unknown), stage(&unknown)), (None, None));
        // Another number, another register, and a no-operation.
        for word in [
            MOVE,
            MOVE - 1 | u32::from(of_batch(BEGIN)) << NUMBER,
            0xd503_201f,
        ] {
            let bytes = word.to_le_bytes();
            assert_eq!((kind(&bytes), stage(&bytes)), (None, None), "{word:#x}");
        }
    }
}
