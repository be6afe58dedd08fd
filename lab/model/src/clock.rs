//! The clocks.

use std::fmt;

/// A clock. Figures of different clocks never share a table. Each simulated machine has
/// its own, since simulators differ in what they count as an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Clock {
    /// Nanoseconds on real hardware: noisy, compared by statistics.
    Wall,
    /// Instructions on the simulated machine: reproducible, compared by equality.
    Insn,
    /// Instructions on the simulated machine with Intel's virtualization.
    InsnVmx,
    /// Instructions on the simulated machine with a processor of Arm.
    InsnArm64,
}

impl Clock {
    /// Every clock, in the order in which tables show them.
    pub const ALL: [Self; 4] = [Self::Wall, Self::Insn, Self::InsnVmx, Self::InsnArm64];

    /// `wall`, `insn`, `insn-vmx` or `insn-arm64`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Insn => "insn",
            Self::InsnVmx => "insn-vmx",
            Self::InsnArm64 => "insn-arm64",
        }
    }

    /// A description for lists.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Wall => "wall: nanoseconds on this host",
            Self::Insn => "insn: instructions on a simulated machine",
            Self::InsnVmx => "insn-vmx: instructions on a simulated machine of Intel",
            Self::InsnArm64 => "insn-arm64: instructions on a simulated machine of Arm",
        }
    }

    /// Returns whether it counts instructions.
    pub const fn is_exact(self) -> bool {
        !matches!(self, Self::Wall)
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
