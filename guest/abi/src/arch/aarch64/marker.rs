//! Markers: instructions without effect at the begin and end of a measured batch and at the stages of a boot, which the
//! instrumentation of a simulated machine recognises. They are executed with and without it.
//!
//! A marker is `movz xzr, #number` (Arm ARM, C6.2.254), which no compiler emits: it writes a constant to the register that
//! reads as zero. Its number has room for a kind and a stage.

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

/// Bits of the number below the stage, and of both.
const KINDS: u32 = 3;
const BITS: u16 = 0xff;

/// Returns the number of the marker of a batch of this kind.
pub const fn of_batch(kind: u8) -> u16 {
    OURS | kind as u16
}

/// Returns the number of the marker of a stage, by its number.
pub const fn of_stage(stage: u8) -> u16 {
    assert!(stage <= (BITS >> KINDS) as u8);
    OURS | (stage as u16) << KINDS | STAGE as u16
}

/// Instructions from the first reading of the clock of a batch to the second, without those between the markers: `isb`
/// and the marker before the batch, the marker, `isb` and the reading after it.
pub const OVERHEAD: u64 = 5;

/// Returns the number of the marker that an instruction is.
fn number(bytes: &[u8]) -> Option<u16> {
    let word = u32::from_le_bytes(bytes.try_into().ok()?);
    let number = (word.wrapping_sub(MOVE) >> NUMBER) as u16;
    let is_marker = word == MOVE | u32::from(number) << NUMBER && number & !BITS == OURS;
    is_marker.then_some(number)
}

/// Returns the kind of the marker of a batch that an instruction is.
pub fn kind(bytes: &[u8]) -> Option<u8> {
    let number = number(bytes)?;
    let mut kinds = [BEGIN, END, IDLE].into_iter();
    kinds.find(|kind| number == of_batch(*kind))
}

/// Returns the number of the stage that an instruction marks.
pub fn stage(bytes: &[u8]) -> Option<u8> {
    let number = number(bytes)?;
    let stage = ((number & BITS) >> KINDS) as u8;
    (number == of_stage(stage)).then_some(stage)
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
        for wanted in [0, 7, 31] {
            let bytes = instruction(of_stage(wanted));
            assert_eq!((kind(&bytes), stage(&bytes)), (None, Some(wanted)));
        }
        // Another number, another register, and a no-operation.
        for word in [
            MOVE,
            (MOVE - 1) | (u32::from(of_batch(BEGIN)) << NUMBER),
            0xd503_201f,
        ] {
            let bytes = word.to_le_bytes();
            assert_eq!((kind(&bytes), stage(&bytes)), (None, None), "{word:#x}");
        }
    }
}
