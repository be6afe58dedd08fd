//! 64-bit Arm: QEMU's machine `virt`.

pub mod marker;
pub mod platform;
mod stamp;

use crate::instruction_set::InstructionSet;

/// This instruction set.
pub const SET: InstructionSet = InstructionSet::Aarch64;
