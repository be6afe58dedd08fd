//! Instruction sets: markers and devices of the machines of each.
//!
//! Guests are compiled for one, whose items the crate exports as its own; the lab measures machines of all.

use crate::instruction_set::InstructionSet;

pub mod aarch64;
pub mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64 as native;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64 as native;

#[cfg(target_arch = "aarch64")]
pub use crate::stamp_aarch64 as stamp_native;
#[cfg(target_arch = "x86_64")]
pub use crate::stamp_x86_64 as stamp_native;

/// The instruction set that the crate is compiled for.
pub const NATIVE: InstructionSet = native::SET;
