//! How the CPUs of a guest are scheduled: part of the machine that it gets, and so of
//! what its figures depend on. Every scheduler is of some environments; in others it is
//! a reason not to measure, never something that is passed over.

use crate::identity::EnvironmentId;
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

    /// The name people type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Credit => "credit",
            Self::Credit2 => "credit2",
        }
    }

    /// The scheduler called `name`, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Whether CPUs of that environment's guests can be scheduled by it.
    pub const fn is_of(self, environment: EnvironmentId) -> bool {
        match self {
            Self::Credit | Self::Credit2 => gives_shares(environment),
        }
    }
}

/// Whether an environment can bound and weigh a guest's share of the CPU.
const fn gives_shares(environment: EnvironmentId) -> bool {
    use EnvironmentId::{SimVmxXenPvh, SimXenHvm, SimXenPvh};
    matches!(environment, SimXenPvh | SimXenHvm | SimVmxXenPvh)
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
    /// Nothing is said.
    pub const USUAL: Self = Self {
        scheduler: None,
        cap: None,
        weight: None,
    };

    /// Whether an environment can do it.
    pub fn fits(self, environment: EnvironmentId) -> bool {
        let share = self.cap.or(self.weight).is_none() || gives_shares(environment);
        let known = |scheduler: Scheduler| scheduler.is_of(environment);
        share && self.scheduler.is_none_or(known)
    }

    /// Why an environment cannot do it, and what to do about that.
    pub fn misfit(self, environment: EnvironmentId) -> Option<String> {
        if self.fits(environment) {
            return None;
        }
        let can = EnvironmentId::ALL.into_iter().filter(|id| self.fits(*id));
        let can: Vec<_> = can.map(EnvironmentId::name).collect();
        Some(format!(
            "{environment} knows nothing of {self}: leave it out, or choose from {} with --env",
            can.join(", ")
        ))
    }

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

/// As it is typed; nothing where nothing is said.
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
        for said in [CAPPED, Scheduling::USUAL] {
            let facts = said.facts().collect();
            assert_eq!(Scheduling::of_facts(&facts), said);
        }
        assert_eq!(Scheduling::USUAL.facts().count(), 0);
        assert_eq!(CAPPED.to_string(), "--sched credit2 --cap 25");
    }

    #[test]
    fn an_environment_that_cannot_do_it_says_so_and_which_can() {
        let reason = CAPPED.misfit(EnvironmentId::SimKvm).unwrap();
        let expected = "sim/kvm knows nothing of --sched credit2 --cap 25: leave it out, or \
                        choose from sim/xen-pvh, sim/xen-hvm, sim-vmx/xen-pvh with --env";
        assert_eq!(reason, expected);
        assert_eq!(CAPPED.misfit(EnvironmentId::SimXenHvm), None);
        for id in EnvironmentId::ALL {
            assert_eq!(Scheduling::USUAL.misfit(id), None);
        }
    }
}
