//! Conditions of a measurement of interrupts: affinity and scheduling of the virtual CPU, and loads.

use crate::environment::EnvironmentId;
use crate::load::Loads;
use crate::sched::Sched;
use crate::sharing::{Halt, PerCpu};
use std::collections::BTreeMap;

/// Conditions under which interrupts are measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Load programs.
    pub loads: Loads,
    /// CPU affinity of the virtual CPU.
    pub pin: Pin,
    /// Scheduler of the virtual CPU.
    pub sched: Sched,
    /// Effect of HLT.
    pub halt: Halt,
    /// Virtual CPUs per CPU.
    pub per_cpu: PerCpu,
}

/// CPU affinity of the virtual CPU's thread. Unless it is free, Trapline's own threads run on another CPU, if
/// there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pin {
    /// None.
    #[default]
    Free,
    /// A CPU without other threads of Trapline.
    Exclusive,
    /// One CPU, with all threads of its VMM and the loads.
    Shared,
}

impl Pin {
    /// All.
    pub const ALL: [Self; 3] = [Self::Free, Self::Exclusive, Self::Shared];

    /// Their names, in the same order.
    pub const NAMES: [&str; 3] = ["free", "exclusive", "shared"];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns the one with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pin| pin.name() == name)
    }
}

impl Conditions {
    const LOAD: &'static str = "irq-load";
    const PIN: &'static str = "irq-pin";
    const SCHED: &'static str = "irq-sched";
    /// Name of the fact in earlier stores.
    const SCHED_BEFORE: &'static str = "irq-policy";
    const HALT: &'static str = "irq-halt";
    const PER_CPU: &'static str = "irq-vcpus-per-cpu";

    /// Returns the default affinity: shared with loads or another virtual CPU, so that they have an effect. The
    /// kernel rejects deadlines of pinned threads.
    pub fn usual_pin(loads: &Loads, sched: Sched, per_cpu: PerCpu) -> Pin {
        let beside = loads.beside().next().is_some() || per_cpu != PerCpu::One;
        match (beside, sched) {
            (true, Sched::Other | Sched::Fifo(_)) => Pin::Shared,
            _ => Pin::Free,
        }
    }

    /// Returns whether all conditions are defaults.
    pub fn are_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Returns why an environment does not support them, with the remedy.
    pub fn unsupported_reason(&self, environment: EnvironmentId) -> Option<String> {
        let halt = || {
            (!self.halt.is_supported_by(environment)).then(|| {
                format!(
                    "--idle halt-in-guest is not supported by {environment}: leave it out, or \
                     choose from {} with --env",
                    EnvironmentId::names_of(|id| self.halt.is_supported_by(id))
                )
            })
        };
        let per_cpu = || {
            (!self.per_cpu.is_supported_by(environment)).then(|| {
                format!(
                    "--vcpus-per-cpu is not supported by {environment}: leave it out, or choose \
                     from {} with --env",
                    EnvironmentId::names_of(|id| self.per_cpu.is_supported_by(id))
                )
            })
        };
        let sched = self.sched.unsupported_reason(environment);
        sched.or_else(halt).or_else(per_cpu)
    }

    /// Returns the conditions as facts. Those of later versions are present only if they are not defaults.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            (Self::LOAD, self.loads.to_string()),
            (Self::PIN, self.pin.name().to_owned()),
            (Self::SCHED, self.sched.to_string()),
        ];
        if self.halt != Halt::default() {
            facts.push((Self::HALT, self.halt.name().to_owned()));
        }
        if self.per_cpu != PerCpu::default() {
            facts.push((Self::PER_CPU, self.per_cpu.count().to_string()));
        }
        facts
    }

    /// Returns the conditions in these facts.
    pub fn from_facts(facts: &BTreeMap<String, String>) -> Self {
        let told = |name: &str| facts.get(name).map(String::as_str);
        Self {
            loads: told(Self::LOAD)
                .and_then(|text| text.parse().ok())
                .unwrap_or_default(),
            pin: told(Self::PIN).and_then(Pin::from_name).unwrap_or_default(),
            sched: told(Self::SCHED)
                .or_else(|| told(Self::SCHED_BEFORE))
                .and_then(|text| text.parse().ok())
                .unwrap_or_default(),
            halt: told(Self::HALT)
                .and_then(Halt::from_name)
                .unwrap_or_default(),
            per_cpu: told(Self::PER_CPU)
                .and_then(|text| PerCpu::from_count(text.parse().ok()?))
                .unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_share_the_cpu_by_default() {
        let loads = |text: &str| text.parse().unwrap();
        let deadline = "deadline:3ms/10ms".parse().unwrap();
        let usual = Conditions::usual_pin;
        let one = PerCpu::One;
        assert_eq!(usual(&loads("cpu"), Sched::Other, one), Pin::Shared);
        assert_eq!(usual(&loads("cpu"), deadline, one), Pin::Free);
        assert_eq!(
            usual(&loads("console-direct"), Sched::Other, one),
            Pin::Free
        );
        assert_eq!(usual(&loads("none"), Sched::Fifo(1), one), Pin::Free);
        assert_eq!(
            usual(&loads("none"), Sched::Other, PerCpu::Two),
            Pin::Shared
        );
    }

    #[test]
    fn facts_are_parsed_as_they_are_formatted() {
        let conditions = Conditions {
            loads: "cpu:3,exits".parse().unwrap(),
            pin: Pin::Exclusive,
            sched: "deadline:3ms/10ms".parse().unwrap(),
            halt: Halt::InGuest,
            per_cpu: PerCpu::Two,
        };
        let facts = conditions.facts().into_iter();
        let facts = facts.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(Conditions::from_facts(&facts.collect()), conditions);
        let before = [("irq-policy".to_owned(), "fifo:7".to_owned())];
        let before = Conditions::from_facts(&before.into());
        assert_eq!(before.sched, Sched::Fifo(7), "as older stores have it");
        assert!(Conditions::from_facts(&BTreeMap::new()).are_plain());
        assert!(!conditions.are_plain());
    }

    #[test]
    fn unsupported_conditions_are_reported_with_the_remedy() {
        let plain = Conditions::default();
        let in_guest = Conditions {
            halt: Halt::InGuest,
            ..plain.clone()
        };
        let crowded = Conditions {
            per_cpu: PerCpu::Two,
            ..plain.clone()
        };
        for conditions in [&plain, &in_guest, &crowded] {
            assert_eq!(conditions.unsupported_reason(EnvironmentId::SIM_KVM), None);
        }
        let reason = in_guest.unsupported_reason(EnvironmentId::HOST).unwrap();
        assert!(
            reason.starts_with("--idle halt-in-guest is not supported by host"),
            "{reason}"
        );
        let reason = crowded
            .unsupported_reason(EnvironmentId::SIM_XEN_PVH)
            .unwrap();
        assert!(
            reason.starts_with("--vcpus-per-cpu is not supported by sim/xen-pvh"),
            "{reason}"
        );
        assert_eq!(crowded.unsupported_reason(EnvironmentId::HOST), None);
    }
}
