//! What interrupts of workload `irq` are made of, and what is demanded of them.
//!
//! One struct, because all of it is chosen together and kept with the run: a report
//! made again from the store has to know by which threshold it judged.

use crate::environment::EnvironmentId;
use crate::placement::Conditions;
use crate::preset::Preset;
use crate::sharing::Halt;
pub use crate::units::{Share, Time, Unreadable};
use std::collections::BTreeMap;
use trapline_abi::job::WaitMode;
use trapline_abi::{Job, OpSet, Workload};

/// The shortest and the longest period, in nanoseconds.
pub const PERIODS: std::ops::RangeInclusive<u64> = 100_000..=1_000_000_000;

/// The most expiries of one timer: each is kept in memory.
pub const MOST_EXPIRIES: u32 = 4_000_000;

/// Expiries where nothing else is said.
const QUICK: u32 = 10_000;
const FULL: u32 = 1_000_000;

/// The same on an exact clock that never sleeps, where every instruction of the
/// waiting is executed: two windows.
const AWAKE: u32 = 2_048;

/// The fact that tells how much CPU time a guest's VMM had for all of it, in microseconds
/// of the clock that it is measured by, where only the VMM itself tells.
pub const CPU_TIME_US: &str = "irq-vmm-cpu-us";

/// How interrupts are made, and how late they may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// From one expiry to the next; on an exact clock an instruction is a nanosecond.
    pub period: Time,
    /// Expiries of each timer, if not the preset's number.
    pub expiries: Option<u32>,
    /// What the guest does in between: how it idles, or which load it makes.
    pub between: WaitMode,
    /// What else there is, and where and how the guest gets its CPU.
    pub conditions: Conditions,
    /// An interrupt later than this is too late.
    pub threshold: Time,
    /// The least share of expiries that are to be in time, if any is demanded.
    pub require: Option<Share>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            period: Time(10_000_000),
            expiries: None,
            between: WaitMode::Halt,
            conditions: Conditions::default(),
            threshold: Time(30_000),
            require: None,
        }
    }
}

impl Settings {
    /// How many times the timer expires in an environment.
    pub fn expiries(&self, environment: EnvironmentId, preset: Preset) -> u32 {
        let usual = match (environment.clock().is_exact(), preset) {
            (true, _) if self.never_sleeps() => AWAKE,
            (true, _) | (false, Preset::Quick) => QUICK,
            (false, Preset::Full) => FULL,
        };
        self.expiries.unwrap_or(usual)
    }

    /// What the guest does in between, as it is typed.
    pub fn idle(&self) -> &'static str {
        match (self.between, self.conditions.halt) {
            (WaitMode::Halt, Halt::InGuest) => "halt-in-guest",
            (between, _) => between.name(),
        }
    }

    /// Whether there is always somebody who executes something.
    fn never_sleeps(&self) -> bool {
        self.between != WaitMode::Halt || self.conditions.loads.beside().next().is_some()
    }

    /// The settings as names and values, to be kept with a run.
    pub fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = vec![
            ("irq-period", self.period.to_string()),
            ("irq-between", self.between.name().to_owned()),
            ("irq-threshold", self.threshold.to_string()),
        ];
        facts.extend(self.conditions.facts());
        facts.extend(
            self.expiries
                .map(|count| ("irq-samples", count.to_string())),
        );
        facts.extend(self.require.map(|share| ("irq-require", share.to_string())));
        let named = facts.into_iter();
        named
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// The settings that such names and values tell; what they do not tell is as if
    /// nobody had said anything.
    pub fn from_facts(facts: &BTreeMap<String, String>) -> Self {
        let told = |name: &str| facts.get(name).map(String::as_str);
        let usual = Self::default();
        let time = |name, usual| {
            told(name)
                .and_then(|text| text.parse().ok())
                .unwrap_or(usual)
        };
        Self {
            period: time("irq-period", usual.period),
            expiries: told("irq-samples").and_then(|text| text.parse().ok()),
            between: told("irq-between")
                .and_then(WaitMode::from_name)
                .unwrap_or(usual.between),
            conditions: Conditions::from_facts(facts),
            threshold: time("irq-threshold", usual.threshold),
            require: told("irq-require").and_then(|text| text.parse().ok()),
        }
    }
}

/// The set of all operations of workload `irq`.
pub fn operations() -> OpSet {
    Workload::Irq.set()
}

/// What a boot was asked for, as facts of its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Expiries of each timer.
    pub expiries: u32,
    /// From one to the next, in ticks.
    pub period: u64,
}

impl Asked {
    const EXPIRIES: &'static str = "irq-expiries";
    const PERIOD: &'static str = "irq-period-ticks";

    /// What `job` asks for, if it asks for interrupts.
    pub fn of(job: &Job) -> Option<Self> {
        let Job {
            expiries, period, ..
        } = *job;
        (job.run & operations() != 0).then_some(Self { expiries, period })
    }

    /// As names and values.
    pub fn facts(&self) -> [(&'static str, String); 2] {
        let Self { expiries, period } = self;
        [
            (Self::EXPIRIES, expiries.to_string()),
            (Self::PERIOD, period.to_string()),
        ]
    }

    /// What such names and values tell, if they do.
    pub fn from_facts(facts: &BTreeMap<String, String>) -> Option<Self> {
        Some(Self {
            expiries: facts.get(Self::EXPIRIES)?.parse().ok()?,
            period: facts.get(Self::PERIOD)?.parse().ok()?,
        })
    }
}

/// The fact that says how the stages of a guest's own timer were found on an exact
/// clock: [`COUNTED`], or why they could not be.
pub const STAGES: &str = "irq-stages";

/// The stages follow from what was executed until the handler.
pub const COUNTED: &str = "counted";

/// The fact that says how many instructions before its handler's reading of the clock a
/// guest was entered with the interrupt.
pub const GUEST_ENTERED: &str = "irq-guest-entered";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Pin;
    use crate::sched::Sched;
    use crate::sharing::PerCpu;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    #[test]
    fn what_never_sleeps_on_an_exact_clock_expires_less_often() {
        let settings = Settings::default();
        let poll = Settings {
            between: WaitMode::Poll,
            ..settings.clone()
        };
        let loaded = Settings {
            conditions: Conditions {
                loads: "cpu".parse().unwrap(),
                ..Conditions::default()
            },
            ..settings.clone()
        };
        let few = Settings {
            expiries: Some(7),
            ..poll.clone()
        };
        assert_eq!(settings.expiries(EnvironmentId::KVM, Preset::Quick), 10_000);
        assert_eq!(
            settings.expiries(EnvironmentId::KVM, Preset::Full),
            1_000_000
        );
        assert_eq!(
            settings.expiries(EnvironmentId::SIM_KVM, Preset::Full),
            10_000
        );
        assert_eq!(poll.expiries(EnvironmentId::SIM_KVM, Preset::Quick), 2_048);
        assert_eq!(poll.expiries(EnvironmentId::KVM, Preset::Quick), 10_000);
        assert_eq!(
            loaded.expiries(EnvironmentId::SIM_KVM, Preset::Quick),
            2_048
        );
        assert_eq!(loaded.expiries(EnvironmentId::KVM, Preset::Quick), 10_000);
        assert_eq!(few.expiries(EnvironmentId::SIM_KVM, Preset::Quick), 7);
    }

    #[test]
    fn what_a_boot_was_asked_for_is_found_again() {
        let job = Job {
            run: operations(),
            expiries: 5,
            period: 77,
            ..Job::EMPTY
        };
        let asked = Asked::of(&job).unwrap();
        let facts = asked.facts().map(|(name, value)| (name.to_owned(), value));
        assert_eq!(Asked::from_facts(&facts.into()), Some(asked));
        assert_eq!(Asked::of(&Job::EMPTY), None);
        assert_eq!(Asked::from_facts(&BTreeMap::new()), None);
    }

    fn some_conditions() -> Vec<Conditions> {
        let pressed = Conditions {
            loads: "cpu:2,console-buffered".parse().unwrap(),
            pin: Pin::Shared,
            sched: Sched::Fifo(3),
            halt: Halt::InGuest,
            per_cpu: PerCpu::Two,
        };
        vec![Conditions::default(), pressed]
    }

    proptest! {
        #[test]
        fn settings_survive_their_facts(
            period in any::<u64>(),
            threshold in any::<u64>(),
            expiries in proptest::option::of(any::<u32>()),
            require in proptest::option::of(0..=crate::units::ALL),
            between in proptest::sample::select(vec![WaitMode::Halt, WaitMode::Poll, WaitMode::Flood]),
            conditions in proptest::sample::select(some_conditions()),
        ) {
            let settings = Settings {
                period: Time(period),
                expiries,
                between,
                conditions: conditions.clone(),
                threshold: Time(threshold),
                require: require.map(Share),
            };
            prop_assert_eq!(Settings::from_facts(&settings.facts()), settings);
        }
    }
}
