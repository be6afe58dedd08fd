//! Instruction sets.

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
}
