//! Conditions of a measurement of interrupts beside the guest's own configuration: loads, and a second guest.

use crate::environment::EnvironmentId;
use crate::features::Feature;
use crate::load::Loads;
use crate::sched::Sched;
use crate::scheduling::Pin;
use std::collections::BTreeMap;

/// Conditions under which interrupts are measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Load programs.
    pub loads: Loads,
    /// Virtual CPUs per CPU.
    pub per_cpu: PerCpu,
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

    /// Returns the feature that it needs, if it needs one.
    pub(crate) fn feature(self) -> Option<Feature> {
        (self != Self::One).then_some(Feature::SecondGuest)
    }
}

/// Names of the facts.
const LOAD: &str = "irq-load";
const PER_CPU: &str = "irq-vcpus-per-cpu";

impl Conditions {
    /// Returns whether load programs or a second guest run beside the measured guest.
    pub fn has_co_tenants(&self) -> bool {
        self.loads.programs().next().is_some() || self.per_cpu != PerCpu::One
    }

    /// Returns the default affinity of a virtual CPU: shared with loads or another virtual CPU, so that they have an effect. The
    /// kernel rejects deadlines of pinned threads.
    pub fn default_pin(&self, sched: Sched) -> Pin {
        match (self.has_co_tenants(), sched) {
            (true, Sched::Other | Sched::Fifo(_)) => Pin::Shared,
            _ => Pin::Free,
        }
    }

    /// Returns why an environment does not support them, with the remedy.
    pub fn unsupported_reason(&self, environment: EnvironmentId) -> Option<String> {
        let feature = self.per_cpu.feature()?;
        feature.unsupported_reason("--vcpus-per-cpu", environment)
    }

    /// Returns the conditions as facts. `PER_CPU` is younger, and present only if it is not the default.
    pub fn facts(&self) -> impl Iterator<Item = (&'static str, String)> {
        let is_default = self.per_cpu == PerCpu::default();
        let per_cpu = (!is_default).then(|| (PER_CPU, self.per_cpu.count().to_string()));
        [(LOAD, self.loads.to_string())].into_iter().chain(per_cpu)
    }

    /// Returns the conditions in these facts.
    pub fn from_facts(facts: &BTreeMap<String, String>) -> Self {
        let loads = facts.get(LOAD).and_then(|text| text.parse().ok());
        let per_cpu = facts.get(PER_CPU).and_then(|text| text.parse().ok());
        Self {
            loads: loads.unwrap_or_default(),
            per_cpu: per_cpu.and_then(PerCpu::from_count).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn facts_are_parsed_as_they_are_formatted() {
        let conditions = Conditions {
            loads: "cpu:3,exits".parse().unwrap(),
            per_cpu: PerCpu::Two,
        };
        let facts = conditions.facts();
        let facts = facts.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(Conditions::from_facts(&facts.collect()), conditions);
        let none = Conditions::from_facts(&BTreeMap::new());
        assert_eq!(none, Conditions::default());
        assert_eq!(PerCpu::from_count(3), None);
    }

    #[test]
    fn a_second_guest_is_reported_where_it_is_not_supported() {
        let two = Conditions {
            per_cpu: PerCpu::Two,
            ..Conditions::default()
        };
        let is_supported = |id| two.unsupported_reason(id).is_none();
        assert_eq!(
            EnvironmentId::names_of(is_supported),
            "host, kvm, qemu-kvm, qemu-tcg, sim/kvm, sim/kvm-user-apic, sim-vmx/kvm"
        );
        let all = EnvironmentId::all();
        let one = Conditions::default();
        assert!(all.clone().all(|id| one.unsupported_reason(id).is_none()));
        let reason = two.unsupported_reason(EnvironmentId::SIM_XEN_PVH).unwrap();
        expect!["--vcpus-per-cpu is not supported by sim/xen-pvh, as its virtual CPU is no thread of the machine's Linux: leave it out, or choose from host, kvm, qemu-kvm, qemu-tcg, sim/kvm, sim/kvm-user-apic, sim-vmx/kvm with --env"].assert_eq(&reason);
    }

    #[test]
    fn loads_share_the_cpu_by_default() {
        let pin = |loads: &str, per_cpu, sched: &str| {
            let conditions = Conditions {
                loads: loads.parse().unwrap(),
                per_cpu,
            };
            conditions.default_pin(sched.parse().unwrap())
        };
        assert_eq!(pin("cpu", PerCpu::One, "other"), Pin::Shared);
        assert_eq!(pin("cpu", PerCpu::One, "deadline:3ms/10ms"), Pin::Free);
        assert_eq!(pin("console-direct", PerCpu::One, "other"), Pin::Free);
        assert_eq!(pin("none", PerCpu::One, "fifo:1"), Pin::Free);
        assert_eq!(pin("none", PerCpu::Two, "other"), Pin::Shared);
    }
}
