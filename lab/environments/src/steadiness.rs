//! Whether this host stood still while interrupts were measured on it: how much of its
//! CPUs' time another machine's owner took (steal, proc(5)), and whether its clocks
//! jumped against each other. Either makes interrupts late for which no guest and no
//! VMM can answer, so it is told beside the figures, and flagged beyond a bound.

use crate::error::EnvError;
use crate::tsc::Rate;
use rustix::time::{clock_getres, clock_gettime, ClockId};
use std::fs;
use trapline_model::irq::Time;
use trapline_spawn::ticks;

/// A larger share of the CPUs' time is flagged when stolen: one thousandth, and more
/// than the one tick by which the kernel counts.
pub const MOST_STOLEN: f64 = 0.001;

/// Clocks that come further apart have jumped, in nanoseconds: by as much at once, or by
/// as much more as they may drift. NTP slews CLOCK_MONOTONIC by 500 ppm at the most
/// (adjtimex(2)), our own reading of the counter's rate is off by 100 ppm at the most,
/// and CLOCK_BOOTTIME differs only if the host slept.
pub const LEAST_JUMP: f64 = 1e6;
const DRIFTS: [(&str, f64); 3] = [
    ("CLOCK_MONOTONIC", 500e-6),
    ("CLOCK_BOOTTIME", 500e-6),
    ("the TSC", 100e-6),
];

/// What all clocks showed at nearly one moment, and what had been stolen by then.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// CLOCK_MONOTONIC_RAW, which nobody sets or slews, in nanoseconds.
    pub raw: f64,
    /// CLOCK_MONOTONIC, CLOCK_BOOTTIME and the time stamp counter, in nanoseconds.
    pub others: [f64; 3],
    /// Time that was stolen from all CPUs together, in nanoseconds, where the kernel tells.
    pub stolen: Option<f64>,
    /// How many CPUs those are.
    pub cpus: u32,
}

/// Where readings come from.
pub trait Source {
    /// The next one.
    fn read(&mut self) -> Reading;
}

/// This host.
pub struct Host;

/// Between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steadiness {
    elapsed: f64,
    cpus: u32,
    stolen: Option<f64>,
    /// By how much each of the other clocks went further.
    ahead: [f64; 3],
}

/// One who looks twice.
pub struct Lookout<S> {
    source: S,
    before: Reading,
}

impl<S: Source> Lookout<S> {
    /// Looks for the first time.
    pub fn begin(mut source: S) -> Self {
        let before = source.read();
        Self { source, before }
    }

    /// Looks again.
    pub fn end(mut self) -> Steadiness {
        let (before, after) = (self.before, self.source.read());
        let elapsed = after.raw - before.raw;
        let ahead = |number: usize| after.others[number] - before.others[number] - elapsed;
        Steadiness {
            elapsed,
            cpus: after.cpus.max(1),
            stolen: after
                .stolen
                .zip(before.stolen)
                .map(|(after, before)| after - before),
            ahead: [ahead(0), ahead(1), ahead(2)],
        }
    }
}

impl Steadiness {
    /// As facts about an environment.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let apart = self.ahead.iter().map(|ns| ns.abs()).fold(0.0, f64::max);
        let mut facts = vec![("irq-clocks-apart-us", format!("{:.0}", apart / 1e3))];
        facts.extend(
            self.stolen
                .map(|ns| ("irq-steal-ms", format!("{:.0}", ns / 1e6))),
        );
        facts
    }

    /// What is beyond a bound.
    pub fn flags(&self) -> Vec<String> {
        let all = self.elapsed * f64::from(self.cpus);
        let bound = (all * MOST_STOLEN).max(TICK_NS);
        let stolen = self.stolen.filter(|ns| *ns > bound);
        let stolen = stolen.map(|ns| {
            format!(
                "another machine had {:.0} ms of the {} CPUs' time ({:.2}% steal, more than \
                 {:.1}%): what is late may be late because of that",
                ns / 1e6,
                self.cpus,
                100.0 * ns / all,
                100.0 * MOST_STOLEN
            )
        });
        let clocks = DRIFTS.iter().zip(self.ahead);
        let jumped =
            clocks.filter(|((_, drift), ahead)| ahead.abs() > LEAST_JUMP + drift * self.elapsed);
        let jumped = jumped.map(|((name, _), ahead)| {
            format!(
                "{name} went {:+.1} ms further than CLOCK_MONOTONIC_RAW: a clock was set, or \
                 the host slept; measure again",
                ahead / 1e6
            )
        });
        stolen.into_iter().chain(jumped).collect()
    }
}

/// Whether timers of this host can have such a period, in nanoseconds.
///
/// # Errors
/// They are too coarse, with what mends that.
pub fn check_timers(period: u64) -> Result<(), EnvError> {
    let resolution = clock_getres(ClockId::Monotonic);
    let ns = resolution.tv_sec as u64 * 1_000_000_000 + resolution.tv_nsec as u64;
    fits(ns, period).map_err(EnvError::Missing)
}

fn fits(resolution: u64, period: u64) -> Result<(), String> {
    if resolution <= period {
        return Ok(());
    }
    let (resolution, period) = (Time(resolution), Time(period));
    Err(format!(
        "this kernel's timers keep time by {resolution}, too coarse for a period of {period}: ask \
         for --period {resolution} at least, or boot it with highres=on"
    ))
}

/// Readings of which the quickest is used: what comes between its clocks is least.
const TRIES: u32 = 16;

impl Source for Host {
    fn read(&mut self) -> Reading {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let (stolen, cpus) = stolen_in(&stat);
        let mut best = clocks();
        for _ in 1..TRIES {
            let next = clocks();
            if next.0 < best.0 {
                best = next;
            }
        }
        Reading {
            stolen,
            cpus,
            ..best.1
        }
    }
}

/// All clocks once, and how long that took, in nanoseconds.
fn clocks() -> (f64, Reading) {
    let first = ns(ClockId::MonotonicRaw);
    let monotonic = ns(ClockId::Monotonic);
    let boot = ns(ClockId::Boottime);
    let counter = ticks() as f64 * Rate::of_this_host().ns_per_tick();
    let took = ns(ClockId::MonotonicRaw) - first;
    let reading = Reading {
        raw: first + took / 2.0,
        others: [monotonic, boot, counter],
        ..Reading::default()
    };
    (took, reading)
}

fn ns(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The kernel tells in hundredths of a second (USER_HZ).
const TICK_NS: f64 = 1e7;

/// What /proc/stat says was stolen, and of how many CPUs.
fn stolen_in(stat: &str) -> (Option<f64>, u32) {
    let lines = stat.lines().filter(|line| line.starts_with("cpu"));
    // proc(5): user, nice, system, idle, iowait, irq, softirq, steal.
    let all = stat
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("cpu "));
    let steal = all.and_then(|fields| fields.split_ascii_whitespace().nth(7));
    let stolen = steal.and_then(|ticks| ticks.parse::<f64>().ok());
    let cpus = lines.count().saturating_sub(1);
    (stolen.map(|ticks| ticks * TICK_NS), cpus as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake(Vec<Reading>);

    impl Source for Fake {
        fn read(&mut self) -> Reading {
            self.0.remove(0)
        }
    }

    /// Between the first reading and one that is so many nanoseconds later, of which so
    /// many were stolen, and by whose clocks it was so much more.
    fn between(elapsed: f64, stolen: Option<f64>, ahead: [f64; 3]) -> Steadiness {
        let first = Reading {
            raw: 5e9,
            others: [7e9, 9e9, 1e12],
            stolen: Some(3e9),
            cpus: 2,
        };
        let clock = |number: usize| first.others[number] + elapsed + ahead[number];
        let second = Reading {
            raw: first.raw + elapsed,
            others: [clock(0), clock(1), clock(2)],
            stolen: stolen.map(|ns| 3e9 + ns),
            cpus: 2,
        };
        Lookout::begin(Fake(vec![first, second])).end()
    }

    #[test]
    fn a_host_that_stands_still_is_not_flagged() {
        // 100 s of two CPUs, of which a thousandth is 200 ms.
        let steady = between(100e9, Some(0.2e9), [40e6, -0.9e6, 10e6]);
        assert_eq!(steady.flags(), Vec::<String>::new());
        let facts = steady.facts();
        assert_eq!(facts[0], ("irq-clocks-apart-us", "40000".to_owned()));
        assert_eq!(facts[1], ("irq-steal-ms", "200".to_owned()));
    }

    #[test]
    fn steal_beyond_a_thousandth_is_flagged() {
        let flags = between(100e9, Some(0.21e9), [0.0; 3]).flags();
        assert_eq!(flags.len(), 1, "{flags:?}");
        assert!(
            flags[0].starts_with("another machine had 210 ms of the 2 CPUs' time (0.1"),
            "{flags:?}"
        );
        assert_eq!(between(100e9, None, [0.0; 3]).flags().len(), 0);
        // One tick says little of a second.
        assert_eq!(between(1e9, Some(1e7), [0.0; 3]).flags().len(), 0);
        assert_eq!(between(1e9, Some(2e7), [0.0; 3]).flags().len(), 1);
    }

    #[test]
    fn a_clock_that_jumps_either_way_is_flagged_by_its_name() {
        for (number, name) in [
            (0, "CLOCK_MONOTONIC "),
            (1, "CLOCK_BOOTTIME"),
            (2, "the TSC"),
        ] {
            for sign in [1.0, -1.0] {
                let mut ahead = [0.0; 3];
                ahead[number] = sign * 3e6;
                let flags = between(1e9, Some(0.0), ahead).flags();
                assert_eq!(flags.len(), 1, "{flags:?}");
                assert!(flags[0].starts_with(name), "{flags:?}");
            }
        }
    }

    #[test]
    fn a_timer_that_is_coarser_than_the_period_is_a_reason_with_a_remedy() {
        assert_eq!(fits(1, 100_000), Ok(()));
        assert_eq!(fits(4_000_000, 4_000_000), Ok(()));
        let reason = fits(4_000_000, 1_000_000).unwrap_err();
        assert!(
            reason.starts_with("this kernel's timers keep time by 4ms, too coarse for a period of 1ms: ask for --period 4ms"),
            "{reason}"
        );
        assert!(check_timers(1_000_000_000).is_ok());
    }

    #[test]
    fn what_was_stolen_is_the_eighth_field_of_all_cpus() {
        let stat = "cpu  1 2 3 4 5 6 7 42 9 10\ncpu0 1 1 1 1 1 1 1 40 1 1\n\
                    cpu1 1 1 1 1 1 1 1 2 1 1\nintr 5\n";
        assert_eq!(stolen_in(stat), (Some(42e7), 2));
        assert_eq!(stolen_in(""), (None, 0));
        assert_eq!(stolen_in("cpu  1 2 3\ncpu0 1 2 3\n"), (None, 1));
    }

    #[test]
    fn the_clocks_of_this_host_go_together() {
        let lookout = Lookout::begin(Host);
        std::thread::sleep(std::time::Duration::from_millis(30));
        let steady = lookout.end();
        assert!(steady.elapsed >= 30e6, "{steady:?}");
        let jumps = steady
            .flags()
            .into_iter()
            .filter(|flag| flag.contains("further than"));
        assert_eq!(jumps.count(), 0, "{steady:?}");
        assert!(steady.stolen.is_some_and(|ns| ns >= 0.0), "{steady:?}");
    }
}
