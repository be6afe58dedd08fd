//! How the CPUs of a guest are scheduled: part of the machine that it gets, and so of
//! what its figures depend on. Every scheduler is of some environments; in others it is
//! a reason not to measure, never something that is passed over.

use crate::environment::EnvironmentId;
use std::collections::BTreeMap;

/// A scheduler of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheduler {
    /// Xen's older one: credits are given out every 30 ms.
    Credit,
    /// Xen's default since 4.12: the one who has used the least comes first.
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

    /// The scheduler called `name`, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Whether CPUs of that environment's guests can be scheduled by it.
    pub fn is_of(self, environment: EnvironmentId) -> bool {
        match self {
            Self::Credit | Self::Credit2 => environment.supports_cpu_shares(),
        }
    }
}

/// What is said of how a guest's CPUs are scheduled. What is not said is as the
/// environment has it by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// By which scheduler.
    pub scheduler: Option<Scheduler>,
    /// The most that the guest gets, in percent of one CPU.
    pub cap: Option<u32>,
    /// Its weight where others want the CPU, too; 256 is that of everybody.
    pub weight: Option<u32>,
}

impl Scheduling {
    /// The environment's own scheduler, without cap, and with the default weight.
    pub const DEFAULT: Self = Self {
        scheduler: None,
        cap: None,
        weight: None,
    };

    /// It as facts about an environment; nothing of what is not said.
    pub fn facts(self) -> impl Iterator<Item = (String, String)> {
        let scheduler = self.scheduler.map(|known| (SCHEDULER, known.name().into()));
        let cap = self.cap.map(|percent| (CAP, percent.to_string()));
        let weight = self.weight.map(|weight| (WEIGHT, weight.to_string()));
        let all = [scheduler, cap, weight].into_iter().flatten();
        all.map(|(name, value)| (name.to_owned(), value))
    }

    /// What such facts say.
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

/// The names of these facts; the cap is in percent of one CPU.
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
    fn facts_lead_back_to_what_was_said() {
        for said in [CAPPED, Scheduling::DEFAULT] {
            let facts = said.facts().collect();
            assert_eq!(Scheduling::of_facts(&facts), said);
        }
        assert_eq!(Scheduling::DEFAULT.facts().count(), 0);
    }
}
