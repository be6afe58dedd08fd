//! 64-bit Arm.

pub mod clock;
pub mod identify;
pub mod loads;
pub mod pair;
mod step;
