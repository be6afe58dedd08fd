//! Markers of the instruction set that the crate is compiled for.

use crate::record::Stage;

pub use crate::arch::native::marker::*;

/// Returns the stage that an instruction marks.
pub fn stage(bytes: &[u8]) -> Option<Stage> {
    let number = crate::arch::native::marker::stage(bytes)?;
    Stage::ALL.get(usize::from(number)).copied()
}

/// Every stage has room in the markers of all instruction sets.
const _: u16 = crate::arch::aarch64::marker::of_stage(Stage::ALL.len() as u8 - 1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::x86_64;

    #[test]
    fn stages_are_recognised_by_their_numbers() {
        let marker = |number| {
            [
                0x0f,
                0x1f,
                0x84,
                0x00,
                x86_64::marker::STAGE,
                number,
                0x70,
                0x7a,
            ]
        };
        for wanted in Stage::ALL {
            assert_eq!(stage(&marker(wanted as u8)), Some(wanted));
            assert_eq!(kind(&marker(wanted as u8)), None);
        }
        assert_eq!(stage(&marker(Stage::ALL.len() as u8)), None);
        assert_eq!(stage(&marker(0)[..7]), None);
    }
}
