//! Checks steal time and clock jumps of this host while interrupts are measured on it. Both delay
//! interrupts independently of guest and VMM: they are stored as facts, and flagged above a bound.

use crate::TscRate;
use rustix::time::{clock_getres, clock_gettime, ClockId};
use std::fs;
use trapline_model::irq::Time;
use trapline_model::Unavailable;
use trapline_spawn::ticks;

/// Steal time above this share is flagged, if it is more than one tick.
const MAX_STEAL: f64 = 0.001;

/// Clocks that diverge by more than this plus their drift have jumped, in nanoseconds. NTP slews
/// CLOCK_MONOTONIC by at most 500 ppm (adjtimex(2)), the measured TSC rate is off by at most 100 ppm,
/// and CLOCK_BOOTTIME differs only after a suspend.
const MIN_JUMP: f64 = 1e6;
const DRIFTS: [(&str, f64); 3] = [
    ("CLOCK_MONOTONIC", 500e-6),
    ("CLOCK_BOOTTIME", 500e-6),
    ("the TSC", 100e-6),
];

/// All clocks at nearly the same instant, and the steal time so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// CLOCK_MONOTONIC_RAW, which is never set or slewed, in nanoseconds.
    pub raw: f64,
    /// CLOCK_MONOTONIC, CLOCK_BOOTTIME and the TSC, in nanoseconds.
    pub others: [f64; 3],
    /// Steal time of all CPUs together, in nanoseconds, if the kernel reports it.
    pub stolen: Option<f64>,
    /// Number of CPUs.
    pub cpus: u32,
}

/// A source of readings.
pub trait ClockSource {
    /// Returns the clocks now.
    fn read(&mut self) -> Reading;
}

/// The clocks of this host.
pub struct HostClocks;

/// Difference of two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockCheck {
    elapsed: f64,
    cpus: u32,
    stolen: Option<f64>,
    /// Advance of each other clock over CLOCK_MONOTONIC_RAW, in nanoseconds.
    ahead: [f64; 3],
}

/// Reads a clock source before and after a measurement.
pub struct ClockSampler<S> {
    source: S,
    before: Reading,
}

impl<S: ClockSource> ClockSampler<S> {
    /// Takes the first reading.
    pub fn begin(mut source: S) -> Self {
        let before = source.read();
        Self { source, before }
    }

    /// Takes the second reading.
    pub fn end(mut self) -> ClockCheck {
        let (before, after) = (self.before, self.source.read());
        let elapsed = after.raw - before.raw;
        let ahead = |number: usize| after.others[number] - before.others[number] - elapsed;
        ClockCheck {
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

impl ClockCheck {
    /// Returns facts to be stored.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let apart = self.ahead.iter().map(|ns| ns.abs()).fold(0.0, f64::max);
        let mut facts = vec![("irq-clocks-apart-us", format!("{:.0}", apart / 1e3))];
        facts.extend(
            self.stolen
                .map(|ns| ("irq-steal-ms", format!("{:.0}", ns / 1e6))),
        );
        facts
    }

    /// Returns a message per exceeded bound.
    pub fn flags(&self) -> Vec<String> {
        let all = self.elapsed * f64::from(self.cpus);
        let bound = (all * MAX_STEAL).max(TICK_NS);
        let stolen = self.stolen.filter(|ns| *ns > bound);
        let stolen = stolen.map(|ns| {
            format!(
                "steal time: {:.0} ms on {} CPUs ({:.2}%, above {:.1}%); interrupts may be late \
                 because of it",
                ns / 1e6,
                self.cpus,
                100.0 * ns / all,
                100.0 * MAX_STEAL
            )
        });
        let clocks = DRIFTS.iter().zip(self.ahead);
        let jumped =
            clocks.filter(|((_, drift), ahead)| ahead.abs() > MIN_JUMP + drift * self.elapsed);
        let jumped = jumped.map(|((name, _), ahead)| {
            format!(
                "{name} advanced {:+.1} ms more than CLOCK_MONOTONIC_RAW: a clock was set, or the \
                 host was suspended; measure again",
                ahead / 1e6
            )
        });
        stolen.into_iter().chain(jumped).collect()
    }
}

/// Checks that timers of this host support a period, in nanoseconds.
///
/// # Errors
/// Their resolution is coarser.
pub fn check_timers(period: u64) -> Result<(), Unavailable> {
    let resolution = clock_getres(ClockId::Monotonic);
    let ns = resolution.tv_sec as u64 * 1_000_000_000 + resolution.tv_nsec as u64;
    check_resolution(ns, period)
}

fn check_resolution(resolution: u64, period: u64) -> Result<(), Unavailable> {
    if resolution <= period {
        return Ok(());
    }
    let (resolution, period) = (Time(resolution), Time(period));
    Err(Unavailable::new(format!(
        "timers of this kernel have a resolution of {resolution}, too coarse for a period of {period}"
    ))
    .help(format!(
        "use --period {resolution} or more, or boot the kernel with highres=on"
    )))
}

/// Number of readings; the fastest is used.
const TRIES: u32 = 16;

impl ClockSource for HostClocks {
    fn read(&mut self) -> Reading {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let (stolen, cpus) = parse_steal(&stat);
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

/// Reads all clocks once. Returns the duration of the reading, in nanoseconds, too.
fn clocks() -> (f64, Reading) {
    let first = ns(ClockId::MonotonicRaw);
    let monotonic = ns(ClockId::Monotonic);
    let boot = ns(ClockId::Boottime);
    let counter = ticks() as f64 * TscRate::host().ns_per_tick();
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

/// Unit of steal time: 10 ms (USER_HZ).
const TICK_NS: f64 = 1e7;

/// Parses steal time and number of CPUs from /proc/stat.
fn parse_steal(stat: &str) -> (Option<f64>, u32) {
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
    use expect_test::expect;

    struct Fake(Vec<Reading>);

    impl ClockSource for Fake {
        fn read(&mut self) -> Reading {
            self.0.remove(0)
        }
    }

    /// Returns the check of two readings with these differences, in nanoseconds.
    fn between(elapsed: f64, stolen: Option<f64>, ahead: [f64; 3]) -> ClockCheck {
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
        ClockSampler::begin(Fake(vec![first, second])).end()
    }

    #[test]
    fn small_differences_are_not_flagged() {
        // 100 s of two CPUs, of which a thousandth is 200 ms.
        let check = between(100e9, Some(0.2e9), [40e6, -0.9e6, 10e6]);
        assert_eq!(check.flags(), Vec::<String>::new());
        let facts = check.facts();
        assert_eq!(facts[0], ("irq-clocks-apart-us", "40000".to_owned()));
        assert_eq!(facts[1], ("irq-steal-ms", "200".to_owned()));
    }

    #[test]
    fn steal_beyond_a_thousandth_is_flagged() {
        let flags = between(100e9, Some(0.21e9), [0.0; 3]).flags();
        expect!["steal time: 210 ms on 2 CPUs (0.10%, above 0.1%); interrupts may be late because of it"].assert_eq(&flags.join("\n"));
        assert_eq!(between(100e9, None, [0.0; 3]).flags().len(), 0);
        // One tick is not significant.
        assert_eq!(between(1e9, Some(1e7), [0.0; 3]).flags().len(), 0);
        assert_eq!(between(1e9, Some(2e7), [0.0; 3]).flags().len(), 1);
    }

    #[test]
    fn jumped_clock_is_flagged_by_name() {
        let mut all = Vec::new();
        for number in 0..3 {
            for sign in [1.0, -1.0] {
                let mut ahead = [0.0; 3];
                ahead[number] = sign * 3e6;
                let flags = between(1e9, Some(0.0), ahead).flags();
                assert_eq!(flags.len(), 1, "{flags:?}");
                all.extend(flags);
            }
        }
        expect![[r#"
            CLOCK_MONOTONIC advanced +3.0 ms more than CLOCK_MONOTONIC_RAW: a clock was set, or the host was suspended; measure again
            CLOCK_MONOTONIC advanced -3.0 ms more than CLOCK_MONOTONIC_RAW: a clock was set, or the host was suspended; measure again
            CLOCK_BOOTTIME advanced +3.0 ms more than CLOCK_MONOTONIC_RAW: a clock was set, or the host was suspended; measure again
            CLOCK_BOOTTIME advanced -3.0 ms more than CLOCK_MONOTONIC_RAW: a clock was set, or the host was suspended; measure again
            the TSC advanced +3.0 ms more than CLOCK_MONOTONIC_RAW: a clock was set, or the host was suspended; measure again
            the TSC advanced -3.0 ms more than CLOCK_MONOTONIC_RAW: a clock was set, or the host was suspended; measure again"#]].assert_eq(&all.join("\n"));
    }

    #[test]
    fn coarse_timer_is_unavailable_with_a_remedy() {
        assert_eq!(check_resolution(1, 100_000), Ok(()));
        assert_eq!(check_resolution(4_000_000, 4_000_000), Ok(()));
        let unavailable = check_resolution(4_000_000, 1_000_000).unwrap_err();
        expect!["timers of this kernel have a resolution of 4ms, too coarse for a period of 1ms: use --period 4ms or more, or boot the kernel with highres=on"].assert_eq(&unavailable.to_string());
        assert!(check_timers(1_000_000_000).is_ok());
    }

    #[test]
    fn steal_is_the_eighth_field_of_all_cpus() {
        let stat = "cpu  1 2 3 4 5 6 7 42 9 10\ncpu0 1 1 1 1 1 1 1 40 1 1\n\
                    cpu1 1 1 1 1 1 1 1 2 1 1\nintr 5\n";
        assert_eq!(parse_steal(stat), (Some(42e7), 2));
        assert_eq!(parse_steal(""), (None, 0));
        assert_eq!(parse_steal("cpu  1 2 3\ncpu0 1 2 3\n"), (None, 1));
    }

    #[test]
    fn clocks_of_this_host_agree() {
        let sampler = ClockSampler::begin(HostClocks);
        std::thread::sleep(std::time::Duration::from_millis(30));
        let check = sampler.end();
        assert!(check.elapsed >= 30e6, "{check:?}");
        let jumps = check
            .flags()
            .into_iter()
            .filter(|flag| flag.contains("advanced"));
        assert_eq!(jumps.count(), 0, "{check:?}");
        assert!(check.stolen.is_some_and(|ns| ns >= 0.0), "{check:?}");
    }
}
