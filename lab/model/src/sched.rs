//! By which rules a virtual CPU gets its processor: those of Linux for its thread, or
//! those of Xen for its domain. One setting, because it is one question; which
//! environments know an answer is told here.

use crate::environment::EnvironmentId;
use crate::scheduling::Scheduler;
use crate::units::Time;
use std::fmt;
use std::str::FromStr;

/// By which rules a virtual CPU gets a CPU: its thread by sched(7), or its domain.
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
    /// By a scheduler of Xen's.
    Xen(Scheduler),
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
    #[error("name other, fifo, fifo:PRIORITY or deadline:RUNTIME/PERIOD, as in deadline:3ms/10ms, or credit or credit2 of Xen")]
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
            Self::Other | Self::Fifo(_) | Self::Xen(_) => None,
        }
    }
}

impl Sched {
    /// The scheduler of Xen's that is asked for, if one is.
    pub fn of_xen(self) -> Option<Scheduler> {
        match self {
            Self::Xen(scheduler) => Some(scheduler),
            Self::Other | Self::Fifo(_) | Self::Deadline { .. } => None,
        }
    }

    /// Whether a thread has to be found and told.
    pub fn is_of_thread(self) -> bool {
        matches!(self, Self::Fifo(_) | Self::Deadline { .. })
    }

    /// Returns whether virtual CPUs of the environment support this scheduler.
    pub fn is_supported_by(self, environment: EnvironmentId) -> bool {
        match self {
            Self::Other => true,
            Self::Fifo(_) | Self::Deadline { .. } => environment.shows_vcpu_thread(),
            Self::Xen(scheduler) => scheduler.is_of(environment),
        }
    }

    /// Returns the names of the environments that support it.
    pub fn supported_by(self) -> String {
        EnvironmentId::names_of(|id| self.is_supported_by(id))
    }

    /// Returns why the environment does not support it, with the remedy.
    pub fn unsupported_reason(self, environment: EnvironmentId) -> Option<String> {
        (!self.is_supported_by(environment)).then(|| {
            format!(
                "--sched {self} is not supported by {environment}: leave it out, or choose from {} \
                 with --env",
                self.supported_by()
            )
        })
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
            None => {
                let scheduler = Scheduler::from_name(text);
                scheduler.map(Self::Xen).ok_or(BadSched::Unknown)
            }
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
            Self::Xen(scheduler) => f.write_str(scheduler.name()),
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
            ("credit2", "credit2"),
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
            ("credit3", BadSched::Unknown),
            ("credit:3", BadSched::Unknown),
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
    fn who_cannot_schedule_so_says_who_can() {
        let sched = |text: &str| text.parse::<Sched>().unwrap();
        for id in EnvironmentId::ALL {
            assert_eq!(Sched::Other.unsupported_reason(id), None);
            let both = sched("fifo").is_supported_by(id) && sched("credit").is_supported_by(id);
            assert!(!both, "{id} has two kinds of schedulers");
        }
        assert!(
            sched("fifo").is_supported_by(EnvironmentId::KVM)
                && sched("deadline:1ms/2ms").is_supported_by(EnvironmentId::SIM_KVM)
        );
        assert!(!sched("fifo").is_supported_by(EnvironmentId::SIM));
        let reason = sched("fifo:3")
            .unsupported_reason(EnvironmentId::SIM_XEN_PVH)
            .unwrap();
        assert!(
            reason.starts_with("--sched fifo:3 is not supported by sim/xen-pvh: leave it out, or choose from host, kvm,"),
            "{reason}"
        );
        let reason = sched("credit2")
            .unsupported_reason(EnvironmentId::KVM)
            .unwrap();
        assert!(
            reason.ends_with("choose from sim/xen-pvh, sim/xen-hvm, sim-vmx/xen-pvh with --env"),
            "{reason}"
        );
        assert_eq!(sched("credit2").of_xen(), Some(Scheduler::Credit2));
        assert!(sched("fifo").is_of_thread() && !sched("credit").is_of_thread());
    }
}
