//! Instruction sets: markers and devices of the machines of each.
//!
//! Guests are compiled for one, whose items the crate exports as its own; the lab measures machines of all.

pub mod aarch64;
pub mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64 as native;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64 as native;

/// An instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InstructionSet {
    /// x86-64.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl InstructionSet {
    /// Every instruction set.
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// That of the program that is compiled.
    pub const NATIVE: Self = if cfg!(target_arch = "aarch64") {
        Self::Aarch64
    } else {
        Self::X86_64
    };
}

#[cfg_attr(target_arch = "aarch64", path = "aarch64/stamp.rs")]
#[cfg_attr(target_arch = "x86_64", path = "x86_64/stamp.rs")]
mod stamp;
