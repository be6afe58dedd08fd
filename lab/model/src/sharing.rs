//! What a virtual CPU shares and what it keeps: where its guest halts, and how many
//! virtual CPUs one CPU has to serve.

use crate::identity::EnvironmentId;

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
    /// Its name among facts.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exits => "exits",
            Self::InGuest => "in-guest",
        }
    }

    /// The one called so.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Exits, Self::InGuest]
            .into_iter()
            .find(|halt| halt.name() == name)
    }

    /// Whether an environment has somebody who can be asked for it.
    pub fn fits(self, environment: EnvironmentId) -> bool {
        use EnvironmentId::{Kvm, QemuKvm, SimKvm, SimQemuKvm, SimVmxKvm, SimVmxQemuKvm};
        let of_kvm = matches!(
            environment,
            Kvm | QemuKvm | SimKvm | SimQemuKvm | SimVmxKvm | SimVmxQemuKvm
        );
        self == Self::Exits || of_kvm
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
    pub fn fits(self, environment: EnvironmentId) -> bool {
        use EnvironmentId::{Host, Kvm, QemuKvm, QemuTcg, SimKvm, SimVmxKvm};
        let has_room = matches!(
            environment,
            Host | Kvm | QemuKvm | QemuTcg | SimKvm | SimVmxKvm
        );
        self == Self::One || has_room
    }
}

/// The environments for which something holds, by name.
pub(crate) fn names_of(holds: impl Fn(EnvironmentId) -> bool) -> String {
    let those = EnvironmentId::ALL.into_iter().filter(|id| holds(*id));
    let those: Vec<_> = those.map(EnvironmentId::name).collect();
    those.join(", ")
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
        assert!(Halt::InGuest.fits(EnvironmentId::SimKvm));
        assert!(!Halt::InGuest.fits(EnvironmentId::SimXenPvh));
        assert!(!Halt::InGuest.fits(EnvironmentId::Host));
        let all = EnvironmentId::ALL.into_iter();
        assert!(all.clone().all(|id| Halt::Exits.fits(id)));
        assert!(all.clone().all(|id| PerCpu::One.fits(id)));
        assert_eq!(
            names_of(|id| PerCpu::Two.fits(id)),
            "host, kvm, qemu-kvm, qemu-tcg, sim/kvm, sim-vmx/kvm"
        );
    }
}
