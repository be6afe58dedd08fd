//! Settings of workload `irq`: timers, conditions, and requirements.
//!
//! They are stored with the run, since a report from the store needs the threshold and the requirement.

use crate::conditions::Conditions;
use crate::environment::EnvironmentId;
use crate::preset::Preset;
use crate::scheduling::{Halt, Scheduling};
pub use crate::units::{InvalidUnit, Share, Time};
use std::collections::BTreeMap;
use trapline_abi::job::WaitMode;
use trapline_abi::{Job, OpSet, Workload};

/// Valid periods, in nanoseconds.
pub const PERIODS: std::ops::RangeInclusive<u64> = 100_000..=1_000_000_000;

/// Error for a period that is not among [`PERIODS`].
pub const EXPECTED_PERIOD: &str = "expected a period from 100us to 1s";

/// Largest number of expiries of one timer: each is kept in memory.
pub const MOST_EXPIRIES: u32 = 4_000_000;

/// Default number of expiries.
const QUICK: u32 = 10_000;
const FULL: u32 = 1_000_000;

/// Default on an exact clock if the machine never idles, since every instruction of the wait is
/// executed: two windows.
const BUSY: u32 = 2_048;

/// Fact: CPU time of a guest's VMM with its start, in microseconds of the guest's clock, where the VMM
/// reports it.
pub const CPU_TIME_US: &str = "irq-vmm-cpu-us";

/// Settings of workload `irq`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Period of each timer; on an exact clock an instruction is a nanosecond.
    pub period: Time,
    /// Expiries of each timer, if not the preset's number.
    pub expiries: Option<u32>,
    /// Activity of the guest between interrupts.
    pub between: WaitMode,
    /// Loads, and a second guest.
    pub conditions: Conditions,
    /// Scheduling of the virtual CPU.
    pub scheduling: Scheduling,
    /// Largest lateness of an interrupt in time.
    pub threshold: Time,
    /// Smallest share of interrupts in time, if one is required.
    pub require: Option<Share>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            period: Time(10_000_000),
            expiries: None,
            between: WaitMode::Halt,
            conditions: Conditions::default(),
            scheduling: Scheduling::DEFAULT,
            threshold: Time(30_000),
            require: None,
        }
    }
}

impl Settings {
    /// Returns the number of expiries of a timer in an environment.
    pub fn expiries(&self, environment: EnvironmentId, preset: Preset) -> u32 {
        let usual = match (environment.clock().is_exact(), preset) {
            (true, _) if self.is_busy() => BUSY,
            (true, _) | (false, Preset::Quick) => QUICK,
            (false, Preset::Full) => FULL,
        };
        self.expiries.unwrap_or(usual)
    }

    /// Returns the activity of the guest between interrupts, by the name of the option.
    pub fn idle(&self) -> &'static str {
        match (self.between, self.scheduling.halt) {
            (WaitMode::Halt, Halt::InGuest) => "halt-in-guest",
            (between, _) => between.name(),
        }
    }

    /// Returns whether the machine never idles.
    fn is_busy(&self) -> bool {
        self.between != WaitMode::Halt || self.conditions.loads.programs().next().is_some()
    }

    /// Returns the settings as facts of a run.
    pub fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = vec![
            ("irq-period", self.period.to_string()),
            ("irq-between", self.between.name().to_owned()),
            ("irq-threshold", self.threshold.to_string()),
        ];
        facts.extend(self.conditions.facts());
        facts.extend(self.scheduling.irq_facts());
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

    /// Returns the settings with these facts; defaults where a fact is absent.
    pub fn from_facts(facts: &BTreeMap<String, String>) -> Self {
        let text = |name: &str| facts.get(name).map(String::as_str);
        let time = |name| text(name).and_then(|text| text.parse().ok());
        let between = text("irq-between").and_then(WaitMode::from_name);
        let default = Self::default();
        Self {
            period: time("irq-period").unwrap_or(default.period),
            expiries: text("irq-samples").and_then(|text| text.parse().ok()),
            between: between.unwrap_or(default.between),
            conditions: Conditions::from_facts(facts),
            scheduling: Scheduling::of_irq_facts(facts),
            threshold: time("irq-threshold").unwrap_or(default.threshold),
            require: text("irq-require").and_then(|text| text.parse().ok()),
        }
    }
}

/// Returns the set of all operations of workload `irq`.
pub fn operations() -> OpSet {
    Workload::Irq.set()
}

/// The timers of a boot, as facts of its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// Expiries of each timer.
    pub expiries: u32,
    /// Period, in ticks.
    pub period: u64,
}

impl Timers {
    const EXPIRIES: &'static str = "irq-expiries";
    const PERIOD: &'static str = "irq-period-ticks";

    /// Returns the timers of a job, if it measures interrupts.
    pub fn of(job: &Job) -> Option<Self> {
        let Job {
            expiries, period, ..
        } = *job;
        job.run
            .intersects(operations())
            .then_some(Self { expiries, period })
    }

    /// Returns the facts.
    pub fn facts(&self) -> [(&'static str, String); 2] {
        let Self { expiries, period } = self;
        [
            (Self::EXPIRIES, expiries.to_string()),
            (Self::PERIOD, period.to_string()),
        ]
    }

    /// Returns the timers with these facts, if they are present.
    pub fn from_facts(facts: &BTreeMap<String, String>) -> Option<Self> {
        Some(Self {
            expiries: facts.get(Self::EXPIRIES)?.parse().ok()?,
            period: facts.get(Self::PERIOD)?.parse().ok()?,
        })
    }
}

/// Fact: source of the stages of a guest's own timer on an exact clock: [`COUNTED`], or the reason why there
/// are none.
pub const STAGES: &str = "irq-stages";

/// Value of [`STAGES`]: the stages follow from the instructions executed up to the handler.
pub const COUNTED: &str = "counted";

/// Fact: number of instructions from the VM entry with the interrupt to the clock read of the handler.
pub const GUEST_ENTERED: &str = "irq-guest-entered";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::PerCpu;
    use crate::sched::Sched;
    use crate::scheduling::Pin;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    #[test]
    fn busy_machines_on_an_exact_clock_have_fewer_expiries() {
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
    fn facts_of_timers_are_parsed_as_they_are_formatted() {
        let job = Job {
            run: operations(),
            expiries: 5,
            period: 77,
            ..Job::EMPTY
        };
        let timers = Timers::of(&job).unwrap();
        let facts = timers.facts().map(|(name, value)| (name.to_owned(), value));
        assert_eq!(Timers::from_facts(&facts.into()), Some(timers));
        assert_eq!(Timers::of(&Job::EMPTY), None);
        assert_eq!(Timers::from_facts(&BTreeMap::new()), None);
    }

    fn some_conditions() -> Vec<(Conditions, Scheduling)> {
        let loaded = Conditions {
            loads: "cpu:2,console-buffered".parse().unwrap(),
            per_cpu: PerCpu::Two,
        };
        let pinned = Scheduling {
            pin: Pin::Shared,
            sched: Sched::Fifo(3),
            halt: Halt::InGuest,
            ..Scheduling::DEFAULT
        };
        vec![
            (Conditions::default(), Scheduling::DEFAULT),
            (loaded, pinned),
        ]
    }

    proptest! {
        #[test]
        fn facts_of_settings_are_parsed_as_they_are_formatted(
            period in any::<u64>(),
            threshold in any::<u64>(),
            expiries in proptest::option::of(any::<u32>()),
            require in proptest::option::of(0..=crate::units::ALL),
            between in proptest::sample::select(vec![WaitMode::Halt, WaitMode::Poll, WaitMode::Flood]),
            (conditions, scheduling) in proptest::sample::select(some_conditions()),
        ) {
            let settings = Settings {
                period: Time(period),
                expiries,
                between,
                conditions,
                scheduling,
                threshold: Time(threshold),
                require: require.map(Share),
            };
            prop_assert_eq!(Settings::from_facts(&settings.facts()), settings);
        }
    }
}
