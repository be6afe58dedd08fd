//! Sharing of a CPU: effect of HLT, and virtual CPUs per CPU.

use crate::environment::EnvironmentId;

/// Effect of HLT in a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Halt {
    /// HLT exits, and the CPU is free for other threads.
    #[default]
    Exits,
    /// KVM does not intercept HLT (`KVM_X86_DISABLE_EXITS_HLT`): the CPU halts in the guest, and is busy for
    /// other threads.
    InGuest,
}

/// Virtual CPUs per CPU, each of a guest of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PerCpu {
    /// That of the measured guest.
    #[default]
    One,
    /// That, and one of a second, equal guest with the same work.
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

    /// Returns whether an environment supports it.
    pub fn is_supported_by(self, environment: EnvironmentId) -> bool {
        self == Self::Exits || environment.supports_halt_in_guest()
    }
}

impl PerCpu {
    /// Returns the number.
    pub fn count(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    /// Returns the variant of this number, if there is one.
    pub fn from_count(count: u8) -> Option<Self> {
        [Self::One, Self::Two]
            .into_iter()
            .find(|known| known.count() == count)
    }

    /// Returns whether an environment supports it.
    pub fn is_supported_by(self, environment: EnvironmentId) -> bool {
        self == Self::One || environment.supports_second_guest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_counts_are_parsed() {
        for halt in [Halt::Exits, Halt::InGuest] {
            assert_eq!(Halt::from_name(halt.name()), Some(halt));
        }
        for per_cpu in [PerCpu::One, PerCpu::Two] {
            assert_eq!(PerCpu::from_count(per_cpu.count()), Some(per_cpu));
        }
        assert_eq!(PerCpu::from_count(3), None);
    }

    #[test]
    fn only_kvm_supports_halt_in_guest() {
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
