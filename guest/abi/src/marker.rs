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
