//! x86-64: PC machines, QEMU's microvm and those of trapline-vmm.

pub mod marker;
pub mod platform;
mod stamp;

use crate::instruction_set::InstructionSet;

/// This instruction set.
pub const SET: InstructionSet = InstructionSet::X86_64;
