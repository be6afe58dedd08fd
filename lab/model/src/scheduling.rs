//! Scheduling of Xen domains.

use crate::environment::EnvironmentId;
use std::collections::BTreeMap;

/// A scheduler of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheduler {
    /// Xen's older scheduler, which distributes credits every 30 ms.
    Credit,
    /// Xen's default since 4.12.
    Credit2,
}

impl Scheduler {
    /// Every scheduler.
    pub const ALL: [Self; 2] = [Self::Credit, Self::Credit2];

    /// Their names, in the same order.
    pub const NAMES: [&str; 2] = ["credit", "credit2"];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns the scheduler with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Returns whether an environment supports it.
    pub fn is_of(self, environment: EnvironmentId) -> bool {
        match self {
            Self::Credit | Self::Credit2 => environment.supports_cpu_shares(),
        }
    }
}

/// Scheduling of a guest's CPUs. `None` is the environment's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// Scheduler.
    pub scheduler: Option<Scheduler>,
    /// Limit in percent of one CPU.
    pub cap: Option<u32>,
    /// Weight under contention. The default is 256.
    pub weight: Option<u32>,
}

impl Scheduling {
    /// The environment's own scheduler, without cap, and with the default weight.
    pub const DEFAULT: Self = Self {
        scheduler: None,
        cap: None,
        weight: None,
    };

    /// Returns the values that are set as facts.
    pub fn facts(self) -> impl Iterator<Item = (String, String)> {
        let scheduler = self.scheduler.map(|known| (SCHEDULER, known.name().into()));
        let cap = self.cap.map(|percent| (CAP, percent.to_string()));
        let weight = self.weight.map(|weight| (WEIGHT, weight.to_string()));
        let all = [scheduler, cap, weight].into_iter().flatten();
        all.map(|(name, value)| (name.to_owned(), value))
    }

    /// Returns the scheduling in these facts.
    pub fn of_facts(facts: &BTreeMap<String, String>) -> Self {
        let number = |name| {
            facts
                .get(name)
                .and_then(|value: &String| value.parse().ok())
        };
        let scheduler = facts.get(SCHEDULER);
        Self {
            scheduler: scheduler.and_then(|name| Scheduler::from_name(name)),
            cap: number(CAP),
            weight: number(WEIGHT),
        }
    }
}

/// Names of the facts. The cap is in percent of one CPU.
const SCHEDULER: &str = "scheduler";
const CAP: &str = "scheduler-cap";
const WEIGHT: &str = "scheduler-weight";

/// Formats the options of a command.
impl std::fmt::Display for Scheduling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheduler = self
            .scheduler
            .map(|known| format!("--sched {}", known.name()));
        let cap = self.cap.map(|percent| format!("--cap {percent}"));
        let weight = self.weight.map(|weight| format!("--weight {weight}"));
        let words: Vec<_> = [scheduler, cap, weight].into_iter().flatten().collect();
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPPED: Scheduling = Scheduling {
        scheduler: Some(Scheduler::Credit2),
        cap: Some(25),
        weight: None,
    };

    #[test]
    fn facts_are_parsed_as_they_are_formatted() {
        for said in [CAPPED, Scheduling::DEFAULT] {
            let facts = said.facts().collect();
            assert_eq!(Scheduling::of_facts(&facts), said);
        }
        assert_eq!(Scheduling::DEFAULT.facts().count(), 0);
    }
}
