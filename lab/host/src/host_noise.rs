//! Host noise during a boot on the wall clock: steal time, other programs, throttling, frequency,
//! limits that took effect, and changes of the clock source.
//!
//! Noise above a bound is stored as facts of the boot and marks its figures. Nothing is dropped.

use crate::control_group::Limited;
use std::fs;
use std::time::{Duration, Instant};

use trapline_model::observed::HOST_NOISE;

/// Bound of steal time, as a share of all CPUs' time.
const MAX_STEAL: f64 = 0.01;

/// Bound of the CPU time of other programs, as a share of one CPU.
const MAX_OTHERS: f64 = 0.1;

/// Less than three ticks of the kernel, of 10 ms (USER_HZ), is not significant.
const MIN_TIME: Duration = Duration::from_millis(30);
const TICK: Duration = Duration::from_millis(10);

/// Bound of the decrease in frequency, as a share.
const MAX_SLOWDOWN: f64 = 0.1;

const CPUS: &str = "/sys/devices/system/cpu";
const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Host counters at one instant.
#[derive(Clone, Debug, Default, PartialEq)]
struct Reading {
    cpus: u32,
    /// Steal time of all CPUs.
    stolen: Duration,
    /// Time of all CPUs in which they were not idle.
    busy: Duration,
    /// CPU time of this process and its reaped children.
    own: Duration,
    /// Number of throttling events since the host booted.
    throttled: u64,
    limited: Limited,
    /// Highest frequency of any CPU in kHz, if the kernel reports it.
    frequency: Option<f64>,
    clock: String,
}

/// Samples host counters before and after a boot.
pub struct NoiseSampler {
    since: Instant,
    before: Reading,
}

impl NoiseSampler {
    /// Takes the first sample.
    pub fn begin() -> Self {
        Self {
            since: Instant::now(),
            before: Reading::now(),
        }
    }

    /// Takes the second sample and returns what is above a bound, as facts. All guests must have
    /// been reaped.
    pub fn end(self) -> Vec<(String, String)> {
        noise(self.since.elapsed(), &self.before, &Reading::now())
    }
}

impl Reading {
    fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self {
            own: own(&fs::read_to_string("/proc/self/stat").unwrap_or_default()),
            throttled: per_cpu("thermal_throttle/core_throttle_count")
                .iter()
                .sum::<f64>() as u64,
            limited: Limited::now(),
            frequency: per_cpu("cpufreq/scaling_cur_freq")
                .into_iter()
                .reduce(f64::max),
            clock: fs::read_to_string(CLOCK)
                .unwrap_or_default()
                .trim()
                .to_owned(),
            ..Self::parse_stat(&stat)
        }
    }

    /// Parses /proc/stat (proc(5)): user, which includes guest time, nice, system, idle, iowait, irq,
    /// softirq, steal.
    fn parse_stat(stat: &str) -> Self {
        let mut lines = stat.lines().filter(|line| line.starts_with("cpu"));
        let all = lines.next().unwrap_or_default();
        let ticks: Vec<u32> = all
            .split_ascii_whitespace()
            .skip(1)
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        let of = |field: usize| TICK * ticks.get(field).copied().unwrap_or(0);
        Self {
            cpus: lines.count() as u32,
            stolen: of(7),
            busy: of(0) + of(1) + of(2) + of(5) + of(6),
            ..Self::default()
        }
    }
}

/// Parses utime, stime, cutime and cstime: fields 14 to 17 of proc_pid_stat(5).
fn own(stat: &str) -> Duration {
    // The program's name, in parentheses, may contain anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_ascii_whitespace().skip(11).take(4);
    ticks
        .filter_map(|field| field.parse::<u32>().ok())
        .map(|ticks| TICK * ticks)
        .sum()
}

/// Reads a number of each CPU, where the kernel reports it.
fn per_cpu(file: &str) -> Vec<f64> {
    let entries = fs::read_dir(CPUS).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join(file)).ok()?;
        text.trim().parse().ok()
    };
    entries.filter_map(number).collect()
}

fn noise(elapsed: Duration, before: &Reading, after: &Reading) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let mut note = |name: &str, value: String| facts.push((format!("{HOST_NOISE}{name}"), value));
    let seconds = elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let stolen = after.stolen.saturating_sub(before.stolen);
    let share = stolen.as_secs_f64() / seconds / f64::from(after.cpus.max(1));
    if share > MAX_STEAL && stolen >= MIN_TIME {
        note("steal", format!("{:.1}% of all CPUs", share * 100.0));
    }
    let busy = after.busy.saturating_sub(before.busy);
    let others = busy.saturating_sub(after.own.saturating_sub(before.own));
    let share = others.as_secs_f64() / seconds;
    if share > MAX_OTHERS && others >= MIN_TIME {
        note("others", format!("{:.0}% of a CPU", share * 100.0));
    }
    let throttled = after.throttled.saturating_sub(before.throttled);
    if throttled > 0 {
        note("throttled", format!("{throttled} times"));
    }
    let limits = [&before.limited, &after.limited];
    let grown = |count: fn(&Limited) -> u64| count(limits[1]).saturating_sub(count(limits[0]));
    let stopped = grown(|it| it.stopped);
    if stopped > 0 {
        note("quota", format!("{stopped} times"));
    }
    let killed = grown(|it| it.killed);
    if killed > 0 {
        note("memory", format!("{killed} times"));
    }
    if let (Some(first), Some(last)) = (before.frequency, after.frequency) {
        if last < first * (1.0 - MAX_SLOWDOWN) {
            note(
                "frequency",
                format!("from {:.0} to {:.0} MHz", first / 1e3, last / 1e3),
            );
        }
    }
    if before.clock != after.clock {
        note(
            "clock",
            format!("{} instead of {}", after.clock, before.clock),
        );
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn reading(stolen_ms: u64, busy_ms: u64, own_ms: u64) -> Reading {
        Reading {
            cpus: 2,
            stolen: Duration::from_millis(stolen_ms),
            busy: Duration::from_millis(busy_ms),
            own: Duration::from_millis(own_ms),
            frequency: Some(3_000_000.0),
            clock: "tsc".to_owned(),
            ..Reading::default()
        }
    }

    #[test]
    fn quiet_host_has_no_noise() {
        let before = reading(0, 0, 0);
        assert_eq!(noise(SECOND, &before, &reading(10, 1_050, 1_000)), []);
        // Two ticks are not significant.
        let short = Duration::from_millis(50);
        assert_eq!(noise(short, &before, &reading(0, 20, 0)), []);
    }

    #[test]
    fn noise_above_bounds_is_quantified() {
        let before = reading(100, 1_000, 500);
        let mut after = reading(200, 2_400, 1_500);
        after.throttled = 3;
        (after.limited.stopped, after.limited.killed) = (4, 1);
        after.frequency = Some(2_000_000.0);
        after.clock = "hpet".to_owned();
        let noise = noise(SECOND, &before, &after);
        let noise: Vec<_> = noise
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let expected = [
            ("host-noise-steal", "5.0% of all CPUs"),
            ("host-noise-others", "40% of a CPU"),
            ("host-noise-throttled", "3 times"),
            ("host-noise-quota", "4 times"),
            ("host-noise-memory", "1 times"),
            ("host-noise-frequency", "from 3000 to 2000 MHz"),
            ("host-noise-clock", "hpet instead of tsc"),
        ];
        assert_eq!(noise, expected);
    }

    #[test]
    fn counters_of_the_kernel_are_parsed() {
        let stat = "cpu  10 1 5 1000 7 2 3 4 0 0\ncpu0 5 0 2 500 3 1 1 2 0 0\ncpu1 5 1 3 500 4 1 2 2 0 0\nintr 1\n";
        let read = Reading::parse_stat(stat);
        assert_eq!(read.cpus, 2);
        assert_eq!(read.stolen, 4 * TICK);
        assert_eq!(read.busy, 21 * TICK);
        let line = "1 (a) b) S 1 1 1 0 -1 0 0 0 0 0 3 4 5 6 20 0";
        assert_eq!(own(line), 18 * TICK);
        let here = Reading::now();
        assert!(here.cpus > 0 && here.busy > Duration::ZERO, "{here:?}");
    }
}
