//! What a virtual CPU shares and what it keeps: where its guest halts, and how many
//! virtual CPUs one CPU has to serve.

use crate::environment::EnvironmentId;

/// Where a guest's processor halts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Halt {
    /// In the kernel: a halt leaves the guest, and the CPU is free for others.
    #[default]
    Exits,
    /// In the guest: KVM does not intercept the instruction
    /// (`KVM_X86_DISABLE_EXITS_HLT`), and for everybody else the CPU is busy.
    InGuest,
}

/// How many virtual CPUs, of a guest each, there are for one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PerCpu {
    /// The measured one alone.
    #[default]
    One,
    /// That, and one of a second guest of the same kind that does the same.
    Two,
}

impl Halt {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Exits, Self::InGuest];

    /// Their names, in the same order.
    pub const NAMES: [&str; 2] = ["exits", "in-guest"];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns the one with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|halt| halt.name() == name)
    }

    /// Whether an environment has somebody who can be asked for it.
    pub fn is_supported_by(self, environment: EnvironmentId) -> bool {
        self == Self::Exits || environment.supports_halt_in_guest()
    }
}

impl PerCpu {
    /// How many.
    pub fn count(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    /// So many, if that can be had.
    pub fn from_count(count: u8) -> Option<Self> {
        [Self::One, Self::Two]
            .into_iter()
            .find(|known| known.count() == count)
    }

    /// Whether an environment can have a second guest beside the measured one.
    pub fn is_supported_by(self, environment: EnvironmentId) -> bool {
        self == Self::One || environment.supports_second_guest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_counts_lead_back() {
        for halt in [Halt::Exits, Halt::InGuest] {
            assert_eq!(Halt::from_name(halt.name()), Some(halt));
        }
        for per_cpu in [PerCpu::One, PerCpu::Two] {
            assert_eq!(PerCpu::from_count(per_cpu.count()), Some(per_cpu));
        }
        assert_eq!(PerCpu::from_count(3), None);
    }

    #[test]
    fn only_kvm_leaves_a_halt_to_the_guest() {
        assert!(Halt::InGuest.is_supported_by(EnvironmentId::SIM_KVM));
        assert!(!Halt::InGuest.is_supported_by(EnvironmentId::SIM_XEN_PVH));
        assert!(!Halt::InGuest.is_supported_by(EnvironmentId::HOST));
        let all = EnvironmentId::ALL.into_iter();
        assert!(all.clone().all(|id| Halt::Exits.is_supported_by(id)));
        assert!(all.clone().all(|id| PerCpu::One.is_supported_by(id)));
        assert_eq!(
            EnvironmentId::names_of(|id| PerCpu::Two.is_supported_by(id)),
            "host, kvm, qemu-kvm, qemu-tcg, sim/kvm, sim-vmx/kvm"
        );
    }
}
