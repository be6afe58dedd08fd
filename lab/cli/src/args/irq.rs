//! Arguments of `irq`.

use super::pages::after_help;
use super::{
    environment_parser, value_parser, EnvironmentOptions, Format, RunOptions, SizeOptions,
};
use crate::timer::Timer;
use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use std::str::FromStr;
use trapline_abi::job::WaitMode;

use trapline_model::irq::{self, InvalidUnit, Settings, Share, Time};
use trapline_model::{Conditions, EnvironmentId, Halt, Loads, PerCpu, Pin, Sched, Scheduling};

/// Arguments of `trapline irq`.
#[derive(Args, Debug)]
#[command(after_help = after_help("irq"), mut_arg("boots", |boots| boots.help(BOOTS)))]
pub struct IrqArgs {
    /// Environments to measure, as listed by `trapline list` [default: all]
    #[arg(long = "env", value_name = "A,B", value_delimiter = ',', value_parser = environment_parser(), hide_possible_values = true)]
    pub environments: Vec<EnvironmentId>,
    /// Expiries per timer [default: 10000; full: 1000000 on the wall clock]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(irq::MOST_EXPIRIES)))]
    pub samples: Option<u32>,
    /// Period of the timer, 100us to 1s
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = period_parser())]
    pub period: Time,
    /// Source of the interrupts
    #[arg(long, value_enum, default_value_t = Timer::Both)]
    pub timer: Timer,
    /// Idle state of the guest between interrupts [default: halt]
    #[arg(long, value_enum, hide_short_help = true)]
    pub idle: Option<Idle>,
    /// Virtual CPUs per CPU; 2 adds a second guest with the same work
    #[arg(long, value_name = "1|2", default_value = "1", value_parser = per_cpu_parser(), hide_short_help = true)]
    pub vcpus_per_cpu: PerCpu,
    /// Load programs: cpu, cpu:N, memory, exits, create-vm[:MIB][:4k|2m][:demand|steps|whole],
    /// console-direct, console-buffered
    #[arg(long, value_name = "A,B", default_value = "none", value_parser = Loads::from_str)]
    pub load: Loads,
    /// Affinity of the virtual CPU [default: shared with a load or another virtual CPU, else free]
    #[arg(long, value_parser = value_parser::<Pin>(PINS), hide_short_help = true)]
    pub pin: Option<Pin>,
    /// Deadline of an interrupt; on the instruction clock 1 ns is one instruction
    #[arg(long, value_name = "TIME", default_value = "30us", value_parser = Time::from_str)]
    pub threshold: Time,
    /// Smallest share of interrupts within the threshold: met, not met or not proven, by the 95%
    /// interval; by count on exact clocks
    #[arg(long, value_name = "SHARE%", value_parser = Share::from_str)]
    pub require: Option<Share>,
    #[command(flatten)]
    pub size_options: SizeOptions,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    #[command(flatten)]
    pub environment_options: EnvironmentOptions,
    #[command(flatten)]
    pub run_options: RunOptions,
}

/// Help of `--boots`, whose default differs because a boot with interrupts is long.
const BOOTS: &str = "Boots per wall-clock environment [default: 1]";

/// Idle state of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Idle {
    /// Halt the CPU
    Halt,
    /// Poll memory
    Poll,
    /// Halt without an exit: KVM does not intercept HLT
    #[value(alias = "in-guest")]
    HaltInGuest,
}

/// Descriptions of affinities of the virtual CPU.
const PINS: &[&str] = &[
    "Not pinned",
    "Alone on a CPU",
    "On one CPU, with its VMM and the loads",
];

/// Options that exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// `--idle` and a console load: such a guest never idles.
    Busy,
    /// A deadline and a pin: the kernel rejects deadlines of pinned threads.
    Bound,
    /// Two virtual CPUs per CPU without a pin.
    Apart,
}

impl IrqArgs {
    /// Returns the settings of workload irq.
    ///
    /// # Errors
    /// Options exclude each other.
    pub fn settings(&self) -> Result<Settings, Contradiction> {
        let between = match (self.idle, self.load.console()) {
            (Some(_), Some(_)) => return Err(Contradiction::Busy),
            (None, Some(_)) => WaitMode::Flood,
            (Some(Idle::Poll), None) => WaitMode::Poll,
            (None | Some(Idle::Halt | Idle::HaltInGuest), None) => WaitMode::Halt,
        };
        let conditions = Conditions {
            loads: self.load.clone(),
            per_cpu: self.vcpus_per_cpu,
        };
        Ok(Settings {
            period: self.period,
            expiries: self.samples,
            between,
            scheduling: self.scheduling(&conditions)?,
            conditions,
            threshold: self.threshold,
            require: self.require,
        })
    }
}

impl IrqArgs {
    fn scheduling(&self, conditions: &Conditions) -> Result<Scheduling, Contradiction> {
        let sched = self.environment_options.sched();
        let default = conditions.default_pin(sched);
        let pin = self.pin.unwrap_or(default);
        use Pin::{Exclusive, Free, Shared};
        match (sched, pin, conditions.per_cpu) {
            (Sched::Deadline { .. }, Exclusive | Shared, _)
            | (Sched::Deadline { .. }, _, PerCpu::Two) => Err(Contradiction::Bound),
            (_, Free, PerCpu::Two) => Err(Contradiction::Apart),
            _ => Ok(Scheduling {
                pin,
                sched,
                halt: self.halt(),
                ..Scheduling::DEFAULT
            }),
        }
    }

    fn halt(&self) -> Halt {
        match self.idle {
            Some(Idle::HaltInGuest) => Halt::InGuest,
            None | Some(Idle::Halt | Idle::Poll) => Halt::Exits,
        }
    }
}

fn per_cpu_parser() -> impl TypedValueParser<Value = PerCpu> {
    let counts = clap::value_parser!(u8).range(1..=2);
    counts.map(|count| PerCpu::from_count(count).expect("the number was checked"))
}

fn period_parser() -> impl TypedValueParser<Value = Time> {
    clap::builder::StringValueParser::new().try_map(|text| period(&text))
}

/// An invalid period.
#[derive(Debug, thiserror::Error)]
enum BadPeriod {
    #[error("{0}")]
    Unreadable(#[from] InvalidUnit),
    #[error("{}", irq::EXPECTED_PERIOD)]
    OutOfRange,
}

fn period(text: &str) -> Result<Time, BadPeriod> {
    let time: Time = text.parse()?;
    irq::PERIODS
        .contains(&time.0)
        .then_some(time)
        .ok_or(BadPeriod::OutOfRange)
}

#[cfg(test)]
mod tests {
    use super::super::{command, Command};
    use super::*;
    use trapline_abi::OpSet;

    fn parsed(words: &[&str]) -> Result<IrqArgs, clap::Error> {
        match command("irq", words)? {
            Command::Irq(args) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn defaults_equal_those_of_plans() {
        let args = parsed(&[]).unwrap();
        assert_eq!(args.settings().ok(), Some(Settings::default()));
        assert_eq!(args.timer, Timer::Both);
    }

    #[test]
    fn idle_and_load_select_what_the_guest_does() {
        let between = |words: &[&str]| {
            let settings = parsed(words).unwrap().settings();
            settings.ok().map(|settings| settings.between)
        };
        assert_eq!(between(&["--idle", "poll"]), Some(WaitMode::Poll));
        assert_eq!(
            between(&["--load", "console-direct"]),
            Some(WaitMode::Flood)
        );
        assert_eq!(
            between(&["--load", "none", "--idle", "halt"]),
            Some(WaitMode::Halt)
        );
        assert_eq!(
            between(&["--load", "cpu", "--idle", "poll"]),
            Some(WaitMode::Poll)
        );
        let both = ["--load", "console-buffered", "--idle", "poll"];
        assert_eq!(between(&both), None);
        let all = Timer::value_variants().iter();
        let all = all.map(|timer| timer.operations());
        assert_eq!(
            all.fold(OpSet::EMPTY, |all, one| all | one),
            irq::operations()
        );
    }

    #[test]
    fn deadlines_exclude_pins() {
        let settings = |words: &[&str]| parsed(words).unwrap().settings();
        let deadline = ["--sched", "deadline:3ms/10ms", "--load", "cpu:2"];
        let free = settings(&deadline).unwrap().scheduling;
        assert_eq!(free.pin, Pin::Free);
        let bound = [&deadline[..], &["--pin", "shared"]].concat();
        assert_eq!(settings(&bound), Err(Contradiction::Bound));
        let loaded = settings(&["--load", "cpu"]).unwrap().scheduling;
        assert_eq!(loaded.pin, Pin::Shared);
        let two = ["--sched", "deadline:3ms/10ms", "--vcpus-per-cpu", "2"];
        assert_eq!(settings(&two), Err(Contradiction::Bound));
    }

    #[test]
    fn two_virtual_cpus_per_cpu_are_pinned() {
        let settings = |words: &[&str]| parsed(words).unwrap().settings();
        let two = settings(&["--vcpus-per-cpu", "2"]).unwrap();
        assert_eq!(
            (two.scheduling.pin, two.conditions.per_cpu),
            (Pin::Shared, PerCpu::Two)
        );
        let alone = ["--vcpus-per-cpu", "2", "--pin", "exclusive"];
        assert!(settings(&alone).is_ok());
        let free = ["--vcpus-per-cpu", "2", "--pin", "free"];
        assert_eq!(settings(&free), Err(Contradiction::Apart));
    }

    #[test]
    fn halt_in_guest_sets_the_halt_exit() {
        for word in ["halt-in-guest", "in-guest"] {
            let settings = parsed(&["--idle", word]).unwrap().settings().unwrap();
            assert_eq!(settings.between, WaitMode::Halt);
            assert_eq!(settings.scheduling.halt, Halt::InGuest);
            assert_eq!(settings.idle(), "halt-in-guest");
        }
    }

    #[test]
    fn invalid_times_and_shares_are_rejected() {
        for words in [
            ["--period", "10us"],
            ["--period", "2s"],
            ["--period", "soon"],
            ["--threshold", "2000insn"],
            ["--require", "99.99"],
            ["--require", "101%"],
            ["--samples", "0"],
            ["--timer", "both,own"],
            ["--load", "cpu:0"],
            ["--load", "disk"],
            ["--pin", "cpu0"],
            ["--sched", "fifo:100"],
            ["--sched", "deadline:11ms/10ms"],
            ["--sched", "credit3"],
            ["--vcpus-per-cpu", "3"],
            ["--idle", "sleep"],
        ] {
            assert!(parsed(&words).is_err(), "{words:?}");
        }
    }
}
