//! Scheduling of a virtual CPU: a policy of Linux for its thread, or a scheduler of Xen for its domain.

use crate::environment::EnvironmentId;
use crate::features::Feature;
use crate::named::named;
use crate::units::Time;
use std::fmt;
use std::str::FromStr;

/// Scheduling of a virtual CPU: a policy of its thread, see sched(7), or Xen's scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sched {
    /// SCHED_OTHER.
    #[default]
    Other,
    /// SCHED_FIFO with this priority.
    Fifo(u8),
    /// SCHED_DEADLINE.
    Deadline {
        /// CPU time per period.
        runtime: Time,
        /// Period, and deadline.
        period: Time,
    },
    /// A scheduler of Xen.
    Xen(Scheduler),
}

/// A scheduler of Xen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheduler {
    /// The older scheduler, which distributes credits every 30 ms.
    Credit,
    /// The default since Xen 4.12.
    Credit2,
}

named!(Scheduler { Credit "credit", Credit2 "credit2" });

/// Valid priorities.
pub const PRIORITIES: std::ops::RangeInclusive<u8> = 1..=99;

/// Default priority, below that of interrupt threads.
const PRIORITY: u8 = 10;

/// Periods that the kernel accepts by default
/// (`/proc/sys/kernel/sched_deadline_period_{min,max}_us`), in nanoseconds.
const DEADLINE_PERIODS: std::ops::RangeInclusive<u64> = 100_000..=4_000_000_000;

/// The smallest runtime that it accepts (kernel/sched/deadline.c, `DL_SCALE`).
const LEAST_RUNTIME: u64 = 1 << 10;

/// Invalid text of a scheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSched {
    /// There is no such policy or scheduler.
    #[error("name other, fifo, fifo:PRIORITY or deadline:RUNTIME/PERIOD, as in deadline:3ms/10ms, or credit or credit2 of Xen")]
    Unknown,
    /// The priority is out of range.
    #[error("a priority is from {} to {}", PRIORITIES.start(), PRIORITIES.end())]
    Priority,
    /// Runtime or period is out of range.
    #[error("a runtime is from 1024ns to its period, and that from 100us to 4s")]
    Deadline,
}

impl Sched {
    /// Returns the largest delay of a thread with this policy, if it is bounded. A thread that used its runtime at
    /// the start of one period may get the next at the end of the following one.
    pub fn bound(self) -> Option<Time> {
        match self {
            Self::Deadline { runtime, period } => Some(Time(2 * (period.0 - runtime.0))),
            Self::Other | Self::Fifo(_) | Self::Xen(_) => None,
        }
    }

    /// Returns the scheduler of Xen, if it is one.
    pub fn of_xen(self) -> Option<Scheduler> {
        match self {
            Self::Xen(scheduler) => Some(scheduler),
            Self::Other | Self::Fifo(_) | Self::Deadline { .. } => None,
        }
    }

    /// Returns whether a policy of the thread must be set.
    pub fn is_of_thread(self) -> bool {
        matches!(self, Self::Fifo(_) | Self::Deadline { .. })
    }

    /// Returns the feature that it needs, if it needs one.
    pub fn feature(self) -> Option<Feature> {
        match self {
            Self::Other => None,
            Self::Fifo(_) | Self::Deadline { .. } => Some(Feature::ThreadPolicy),
            Self::Xen(_) => Some(Feature::CpuShares),
        }
    }

    /// Returns whether virtual CPUs of the environment support this scheduler.
    pub fn is_supported_by(self, environment: EnvironmentId) -> bool {
        self.feature().is_none_or(|it| environment.has(it))
    }

    /// Returns why the environment does not support it, with the remedy.
    pub fn unsupported_reason(self, environment: EnvironmentId) -> Option<String> {
        self.feature()?
            .unsupported_reason(&format!("--sched {self}"), environment)
    }
}

impl FromStr for Sched {
    type Err = InvalidSched;

    fn from_str(text: &str) -> Result<Self, InvalidSched> {
        match text.split_once(':') {
            None if text == "other" => Ok(Self::Other),
            None if text == "fifo" => Ok(Self::Fifo(PRIORITY)),
            Some(("fifo", priority)) => {
                let priority = priority.parse().ok();
                let priority = priority.filter(|number| PRIORITIES.contains(number));
                priority.map(Self::Fifo).ok_or(InvalidSched::Priority)
            }
            Some(("deadline", times)) => deadline(times),
            None => {
                let scheduler = Scheduler::from_name(text);
                scheduler.map(Self::Xen).ok_or(InvalidSched::Unknown)
            }
            _ => Err(InvalidSched::Unknown),
        }
    }
}

fn deadline(times: &str) -> Result<Sched, InvalidSched> {
    let (runtime, period) = times.split_once('/').ok_or(InvalidSched::Unknown)?;
    let time = |text: &str| text.parse::<Time>().map_err(|_| InvalidSched::Unknown);
    let (runtime, period) = (time(runtime)?, time(period)?);
    let is_valid = (LEAST_RUNTIME..=period.0).contains(&runtime.0);
    if is_valid && DEADLINE_PERIODS.contains(&period.0) {
        Ok(Sched::Deadline { runtime, period })
    } else {
        Err(InvalidSched::Deadline)
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
    use expect_test::expect;

    #[test]
    fn text_is_parsed_as_it_is_formatted() {
        for (text, formatted) in [
            ("other", "other"),
            ("credit2", "credit2"),
            ("fifo", "fifo:10"),
            ("fifo:99", "fifo:99"),
            ("deadline:3ms/10ms", "deadline:3ms/10ms"),
            ("deadline:500us/1000us", "deadline:500us/1ms"),
        ] {
            let sched: Sched = text.parse().unwrap();
            assert_eq!(sched.to_string(), formatted);
            assert_eq!(formatted.parse(), Ok(sched));
        }
        for (text, why) in [
            ("", InvalidSched::Unknown),
            ("idle", InvalidSched::Unknown),
            ("credit3", InvalidSched::Unknown),
            ("credit:3", InvalidSched::Unknown),
            ("other:3", InvalidSched::Unknown),
            ("deadline:3ms", InvalidSched::Unknown),
            ("deadline:much/10ms", InvalidSched::Unknown),
            ("fifo:0", InvalidSched::Priority),
            ("fifo:100", InvalidSched::Priority),
            ("deadline:11ms/10ms", InvalidSched::Deadline),
            ("deadline:1us/10ms", InvalidSched::Deadline),
            ("deadline:10us/50us", InvalidSched::Deadline),
            ("deadline:1s/5s", InvalidSched::Deadline),
        ] {
            assert_eq!(text.parse::<Sched>(), Err(why), "{text}");
        }
    }

    #[test]
    fn the_bound_of_a_deadline_is_twice_the_rest_of_the_period() {
        let sched: Sched = "deadline:3ms/10ms".parse().unwrap();
        assert_eq!(sched.bound(), Some(Time(14_000_000)));
        let all: Sched = "deadline:10ms/10ms".parse().unwrap();
        assert_eq!(all.bound(), Some(Time(0)));
        assert_eq!(Sched::Fifo(1).bound(), None);
    }

    #[test]
    fn unsupported_schedulers_are_reported_with_the_environments_that_support_them() {
        let sched = |text: &str| text.parse::<Sched>().unwrap();
        for id in EnvironmentId::all() {
            assert_eq!(Sched::Other.unsupported_reason(id), None);
            let both = sched("fifo").is_supported_by(id) && sched("credit").is_supported_by(id);
            assert!(!both, "{id} has two kinds of schedulers");
        }
        assert!(
            sched("fifo").is_supported_by(EnvironmentId::KVM)
                && sched("deadline:1ms/2ms").is_supported_by(EnvironmentId::SIM_KVM)
        );
        assert!(!sched("fifo").is_supported_by(EnvironmentId::SIM));
        let unsupported = [
            sched("fifo:3").unsupported_reason(EnvironmentId::SIM_XEN_PVH),
            sched("credit2").unsupported_reason(EnvironmentId::KVM),
        ];
        expect![[r#"
            --sched fifo:3 is not supported by sim/xen-pvh, as its virtual CPU is no thread of the machine's Linux: leave it out, or choose from host, kvm, qemu-kvm, qemu-tcg, sim/linux, sim/kvm, sim/kvm-user-apic, sim-vmx/linux, sim-vmx/kvm, sim-arm64/linux with --env
            --sched credit2 is not supported by kvm, as Xen does not schedule it: leave it out, or choose from sim/xen-pvh, sim/xen-hvm, sim/xen/trapline, sim/kvm/xen-pvh, sim/kvm/xen-hvm, sim-vmx/xen-pvh, sim-vmx/xen/trapline with --env"#]].assert_eq(&unsupported.map(Option::unwrap).join("\n"));
        assert_eq!(sched("credit2").of_xen(), Some(Scheduler::Credit2));
        assert!(sched("fifo").is_of_thread() && !sched("credit").is_of_thread());
    }
}
