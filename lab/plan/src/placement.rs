//! Where a virtual CPU runs while interrupts are measured, by which rules it gets its
//! processor, and what else there is: the conditions of a measurement.

use crate::irq::Time;
use crate::load::Loads;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Under which conditions interrupts are measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// What disturbs.
    pub loads: Loads,
    /// Where the virtual CPU runs.
    pub pin: Pin,
    /// By which rules.
    pub sched: Sched,
}

/// Where the thread of the virtual CPU runs. Whoever measures runs elsewhere, if there
/// is another CPU and either was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pin {
    /// Where the kernel puts it.
    #[default]
    Free,
    /// On a CPU on which nothing else of ours runs.
    Exclusive,
    /// On one CPU, with all threads of its VMM and with the loads.
    Shared,
}

/// By which rules the thread of the virtual CPU gets a CPU (sched(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sched {
    /// As any other.
    #[default]
    Other,
    /// Before all others, with this priority.
    Fifo(u8),
    /// So much of each period.
    Deadline {
        /// What it gets.
        runtime: Time,
        /// Of this.
        period: Time,
    },
}

/// Priorities that there are.
pub const PRIORITIES: std::ops::RangeInclusive<u8> = 1..=99;

/// The priority where none is named: above those of interrupt threads would be rude.
const PRIORITY: u8 = 10;

/// Periods that the kernel takes without being told otherwise
/// (`/proc/sys/kernel/sched_deadline_period_{min,max}_us`), in nanoseconds.
const DEADLINE_PERIODS: std::ops::RangeInclusive<u64> = 100_000..=4_000_000_000;

/// The least runtime that it takes (kernel/sched/deadline.c, `DL_SCALE`).
const LEAST_RUNTIME: u64 = 1 << 10;

/// What was typed is no way to be scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSched {
    /// There is no such way.
    #[error("name other, fifo, fifo:PRIORITY or deadline:RUNTIME/PERIOD, as in deadline:3ms/10ms")]
    Unknown,
    /// No such priority.
    #[error("a priority is from {} to {}", PRIORITIES.start(), PRIORITIES.end())]
    Priority,
    /// No such deadline.
    #[error("a runtime is from 1024ns to its period, and that from 100us to 4s")]
    Deadline,
}

impl Sched {
    /// How late a thread that is scheduled so may be at the most: who has used up its
    /// budget at the beginning of one period may get the next at the end of the other.
    pub fn bound(self) -> Option<Time> {
        match self {
            Self::Deadline { runtime, period } => Some(Time(2 * (period.0 - runtime.0))),
            Self::Other | Self::Fifo(_) => None,
        }
    }
}

impl FromStr for Sched {
    type Err = BadSched;

    fn from_str(text: &str) -> Result<Self, BadSched> {
        match text.split_once(':') {
            None if text == "other" => Ok(Self::Other),
            None if text == "fifo" => Ok(Self::Fifo(PRIORITY)),
            Some(("fifo", priority)) => {
                let priority = priority.parse().ok();
                let priority = priority.filter(|number| PRIORITIES.contains(number));
                priority.map(Self::Fifo).ok_or(BadSched::Priority)
            }
            Some(("deadline", times)) => deadline(times),
            _ => Err(BadSched::Unknown),
        }
    }
}

fn deadline(times: &str) -> Result<Sched, BadSched> {
    let (runtime, period) = times.split_once('/').ok_or(BadSched::Unknown)?;
    let time = |text: &str| text.parse::<Time>().map_err(|_| BadSched::Unknown);
    let (runtime, period) = (time(runtime)?, time(period)?);
    let fits = (LEAST_RUNTIME..=period.0).contains(&runtime.0);
    match fits && DEADLINE_PERIODS.contains(&period.0) {
        true => Ok(Sched::Deadline { runtime, period }),
        false => Err(BadSched::Deadline),
    }
}

impl fmt::Display for Sched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => f.write_str("other"),
            Self::Fifo(priority) => write!(f, "fifo:{priority}"),
            Self::Deadline { runtime, period } => write!(f, "deadline:{runtime}/{period}"),
        }
    }
}

impl Pin {
    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        }
    }

    /// The one called `name`, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Free, Self::Exclusive, Self::Shared];
        all.into_iter().find(|pin| pin.name() == name)
    }
}

impl Conditions {
    const LOAD: &'static str = "irq-load";
    const PIN: &'static str = "irq-pin";
    const SCHED: &'static str = "irq-policy";

    /// Where the virtual CPU runs if nobody says: where the loads are, so that they are
    /// felt. The kernel admits no deadline to a thread that is bound to a CPU.
    pub fn usual_pin(loads: &Loads, sched: Sched) -> Pin {
        let beside = loads.beside().next().is_some();
        match (beside, sched) {
            (true, Sched::Other | Sched::Fifo(_)) => Pin::Shared,
            _ => Pin::Free,
        }
    }

    /// Whether nothing is asked for that needs more than the guest.
    pub fn are_plain(&self) -> bool {
        *self == Self::default()
    }

    /// As names and values.
    pub fn facts(&self) -> [(&'static str, String); 3] {
        [
            (Self::LOAD, self.loads.to_string()),
            (Self::PIN, self.pin.name().to_owned()),
            (Self::SCHED, self.sched.to_string()),
        ]
    }

    /// What such names and values tell.
    pub fn from_facts(facts: &BTreeMap<String, String>) -> Self {
        let told = |name: &str| facts.get(name).map(String::as_str);
        Self {
            loads: told(Self::LOAD)
                .and_then(|text| text.parse().ok())
                .unwrap_or_default(),
            pin: told(Self::PIN).and_then(Pin::from_name).unwrap_or_default(),
            sched: told(Self::SCHED)
                .and_then(|text| text.parse().ok())
                .unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_be_scheduled_are_read_as_they_are_told() {
        for (text, told) in [
            ("other", "other"),
            ("fifo", "fifo:10"),
            ("fifo:99", "fifo:99"),
            ("deadline:3ms/10ms", "deadline:3ms/10ms"),
            ("deadline:500us/1000us", "deadline:500us/1ms"),
        ] {
            let sched: Sched = text.parse().unwrap();
            assert_eq!(sched.to_string(), told);
            assert_eq!(told.parse(), Ok(sched));
        }
        for (text, why) in [
            ("", BadSched::Unknown),
            ("idle", BadSched::Unknown),
            ("other:3", BadSched::Unknown),
            ("deadline:3ms", BadSched::Unknown),
            ("deadline:much/10ms", BadSched::Unknown),
            ("fifo:0", BadSched::Priority),
            ("fifo:100", BadSched::Priority),
            ("deadline:11ms/10ms", BadSched::Deadline),
            ("deadline:1us/10ms", BadSched::Deadline),
            ("deadline:10us/50us", BadSched::Deadline),
            ("deadline:1s/5s", BadSched::Deadline),
        ] {
            assert_eq!(text.parse::<Sched>(), Err(why), "{text}");
        }
    }

    #[test]
    fn the_bound_of_a_deadline_is_twice_what_it_leaves_to_others() {
        let sched: Sched = "deadline:3ms/10ms".parse().unwrap();
        assert_eq!(sched.bound(), Some(Time(14_000_000)));
        let all: Sched = "deadline:10ms/10ms".parse().unwrap();
        assert_eq!(all.bound(), Some(Time(0)));
        assert_eq!(Sched::Fifo(1).bound(), None);
    }

    #[test]
    fn a_load_is_put_where_it_is_felt() {
        let loads = |text: &str| text.parse().unwrap();
        let deadline = "deadline:3ms/10ms".parse().unwrap();
        let usual = Conditions::usual_pin;
        assert_eq!(usual(&loads("cpu"), Sched::Other), Pin::Shared);
        assert_eq!(usual(&loads("cpu"), deadline), Pin::Free);
        assert_eq!(usual(&loads("console-direct"), Sched::Other), Pin::Free);
        assert_eq!(usual(&loads("none"), Sched::Fifo(1)), Pin::Free);
    }

    #[test]
    fn conditions_survive_their_facts() {
        let conditions = Conditions {
            loads: "cpu:3,exits".parse().unwrap(),
            pin: Pin::Exclusive,
            sched: "deadline:3ms/10ms".parse().unwrap(),
        };
        let facts = conditions.facts();
        let facts = facts.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(Conditions::from_facts(&facts.into()), conditions);
        assert!(Conditions::from_facts(&BTreeMap::new()).are_plain());
        assert!(!conditions.are_plain());
    }
}
