//! The arguments of `irq`: how late interrupts are, and whether that is good enough.

use super::{environment_parser, ExtentArgs, Format, MannerArgs};
use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use std::str::FromStr;
use trapline_abi::job::Wait;
use trapline_abi::{Op, OpSet};
use trapline_model::irq::{self, Settings, Share, Time, Unreadable};
use trapline_model::{Conditions, EnvironmentId, Halt, Loads, PerCpu, Sched};

/// Of `trapline irq`.
#[derive(Args, Debug)]
#[command(after_help = STATUS, mut_arg("boots", |boots| boots.help(BOOTS)))]
pub struct IrqArgs {
    /// Environments to measure in [default: all]
    #[arg(long = "env", value_name = "A,B", value_delimiter = ',', value_parser = environment_parser())]
    pub environments: Vec<EnvironmentId>,
    /// Expiries of each timer [default: 10000; full: 1000000 on the wall clock]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(irq::MOST_EXPIRIES)))]
    pub samples: Option<u32>,
    /// From one expiry to the next, 100us to 1s
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = period_parser())]
    pub period: Time,
    /// Whose timer interrupts
    #[arg(long, value_enum, default_value_t = Timer::Both)]
    pub timer: Timer,
    /// What the guest does while it waits [default: halt]
    #[arg(long, value_enum)]
    pub idle: Option<Idle>,
    /// Virtual CPUs for its CPU: with 2 there is a second guest of the same kind
    /// that does the same
    #[arg(long, value_name = "1|2", default_value = "1", value_parser = per_cpu_parser())]
    pub vcpus_per_cpu: PerCpu,
    /// What disturbs it meanwhile: cpu, cpu:N, memory, exits,
    /// create-vm[:MIB][:4k|2m][:demand|steps|whole], and console-direct or
    /// console-buffered
    #[arg(long, value_name = "A,B", default_value = "none", value_parser = Loads::from_str)]
    pub load: Loads,
    /// Where the virtual CPU runs [default: shared with a load or another virtual
    /// CPU, else free]
    #[arg(long, value_enum)]
    pub pin: Option<Pin>,
    /// An interrupt later than this is too late; where instructions are counted,
    /// one is a nanosecond
    #[arg(long, value_name = "TIME", default_value = "30us", value_parser = Time::from_str)]
    pub threshold: Time,
    /// Require that at least this share of all expiries is served in time: met,
    /// not met or not proven, by the 95% interval; by count on an exact clock
    #[arg(long, value_name = "SHARE%", value_parser = Share::from_str)]
    pub require: Option<Share>,
    #[command(flatten)]
    pub extent: ExtentArgs,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    #[command(flatten)]
    pub manner: MannerArgs,
}

/// A boot with interrupts is long.
const BOOTS: &str = "Boots of each wall-clock environment [default: 1]";

const STATUS: &str = "\
With the period of 10 ms a timer takes 100 s for 10,000 expiries.

Exit status:
  0  done; with --require: every timer in every environment meets it
  1  something failed; with --require: some timer does not meet it
  2  the command line was not understood
  3  two runs on the instruction clock gave different digits
  4  --require, and nothing could be measured here
  5  --require: not proven for some timer, and violated by none";

/// Whose timer interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Timer {
    /// The guest's
    Own,
    /// That of whoever runs the guest
    Host,
    /// First the one, then the other
    Both,
}

/// What the guest does while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Idle {
    /// It halts its processor
    Halt,
    /// It looks again and again
    Poll,
    /// It halts without leaving: KVM does not intercept that
    HaltInGuest,
}

/// Where the virtual CPU runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pin {
    /// Where the kernel puts it
    Free,
    /// Alone on a CPU
    Exclusive,
    /// On one CPU with its VMM and the loads
    Shared,
}

impl From<Pin> for trapline_model::Pin {
    fn from(pin: Pin) -> Self {
        match pin {
            Pin::Free => Self::Free,
            Pin::Exclusive => Self::Exclusive,
            Pin::Shared => Self::Shared,
        }
    }
}

impl Timer {
    /// The operations of this timer.
    pub fn operations(self) -> OpSet {
        match self {
            Self::Own => Op::OwnTimer.bit(),
            Self::Host => Op::HostTimer.bit(),
            Self::Both => irq::operations(),
        }
    }
}

/// Why settings do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// A guest that floods its console cannot idle in a way of its own.
    Busy,
    /// The kernel admits no deadline to a thread that is bound to a CPU.
    Bound,
    /// Two virtual CPUs that are not bound to a CPU do not share one.
    Apart,
}

impl IrqArgs {
    /// How interrupts are to be made and judged.
    ///
    /// # Errors
    /// They contradict each other.
    pub fn settings(&self) -> Result<Settings, Contradiction> {
        let between = match (self.idle, self.load.flood()) {
            (Some(_), Some(_)) => return Err(Contradiction::Busy),
            (None, Some(_)) => Wait::Flood,
            (Some(Idle::Poll), None) => Wait::Poll,
            (None | Some(Idle::Halt | Idle::HaltInGuest), None) => Wait::Halt,
        };
        Ok(Settings {
            period: self.period,
            expiries: self.samples,
            between,
            conditions: self.conditions()?,
            threshold: self.threshold,
            require: self.require,
        })
    }
}

impl IrqArgs {
    fn conditions(&self) -> Result<Conditions, Contradiction> {
        let sched = self.manner.simulated.scheduling.sched();
        let usual = Conditions::usual_pin(&self.load, sched, self.vcpus_per_cpu);
        let pin = self.pin.map_or(usual, Into::into);
        use trapline_model::Pin::{Exclusive, Free, Shared};
        match (sched, pin, self.vcpus_per_cpu) {
            (Sched::Deadline { .. }, Exclusive | Shared, _)
            | (Sched::Deadline { .. }, _, PerCpu::Two) => Err(Contradiction::Bound),
            (_, Free, PerCpu::Two) => Err(Contradiction::Apart),
            _ => Ok(Conditions {
                loads: self.load.clone(),
                pin,
                sched,
                halt: self.halt(),
                per_cpu: self.vcpus_per_cpu,
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

/// A time that a timer can be set to.
#[derive(Debug, thiserror::Error)]
enum BadPeriod {
    #[error("{0}")]
    Unreadable(#[from] Unreadable),
    #[error("a period is from 100us to 1s")]
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

    fn parsed(words: &[&str]) -> Result<IrqArgs, clap::Error> {
        match command("irq", words)? {
            Command::Irq(args) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_said_is_what_the_plan_takes_for_granted() {
        let args = parsed(&[]).unwrap();
        assert_eq!(args.settings().ok(), Some(Settings::default()));
        assert_eq!(args.timer.operations(), irq::operations());
    }

    #[test]
    fn what_is_chosen_is_what_the_guest_does() {
        let between = |words: &[&str]| {
            let settings = parsed(words).unwrap().settings();
            settings.ok().map(|settings| settings.between)
        };
        assert_eq!(between(&["--idle", "poll"]), Some(Wait::Poll));
        assert_eq!(between(&["--load", "console-direct"]), Some(Wait::Flood));
        assert_eq!(
            between(&["--load", "none", "--idle", "halt"]),
            Some(Wait::Halt)
        );
        assert_eq!(
            between(&["--load", "cpu", "--idle", "poll"]),
            Some(Wait::Poll)
        );
        let both = ["--load", "console-buffered", "--idle", "poll"];
        assert_eq!(between(&both), None);
        assert_eq!(
            Timer::Own.operations() | Timer::Host.operations(),
            irq::operations()
        );
    }

    #[test]
    fn a_deadline_goes_with_no_pin() {
        let settings = |words: &[&str]| parsed(words).unwrap().settings();
        let deadline = ["--sched", "deadline:3ms/10ms", "--load", "cpu:2"];
        let free = settings(&deadline).unwrap().conditions;
        assert_eq!(free.pin, trapline_model::Pin::Free);
        let bound = [&deadline[..], &["--pin", "shared"]].concat();
        assert_eq!(settings(&bound), Err(Contradiction::Bound));
        let loaded = settings(&["--load", "cpu"]).unwrap().conditions;
        assert_eq!(loaded.pin, trapline_model::Pin::Shared);
        let two = ["--sched", "deadline:3ms/10ms", "--vcpus-per-cpu", "2"];
        assert_eq!(settings(&two), Err(Contradiction::Bound));
    }

    #[test]
    fn two_virtual_cpus_of_one_cpu_are_bound_to_it() {
        let settings = |words: &[&str]| parsed(words).unwrap().settings();
        let two = settings(&["--vcpus-per-cpu", "2"]).unwrap().conditions;
        assert_eq!(
            (two.pin, two.per_cpu),
            (trapline_model::Pin::Shared, PerCpu::Two)
        );
        let alone = ["--vcpus-per-cpu", "2", "--pin", "exclusive"];
        assert!(settings(&alone).is_ok());
        let free = ["--vcpus-per-cpu", "2", "--pin", "free"];
        assert_eq!(settings(&free), Err(Contradiction::Apart));
    }

    #[test]
    fn a_halt_in_the_guest_is_a_halt_for_the_guest() {
        let settings = parsed(&["--idle", "halt-in-guest"]).unwrap().settings();
        let settings = settings.unwrap();
        assert_eq!(settings.between, Wait::Halt);
        assert_eq!(settings.conditions.halt, Halt::InGuest);
        assert_eq!(settings.idle(), "halt-in-guest");
    }

    #[test]
    fn bad_times_and_shares_are_refused() {
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
