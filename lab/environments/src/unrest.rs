//! What else this host did while a boot was measured on it on the wall clock: who else had its
//! CPUs, whether they were slowed down, and whether its clock stayed what it was.
//!
//! Each is told with the boot if it is beyond a bound, and every figure that the boot is part
//! of is marked. Nothing is dropped because of it.

use std::fs;
use std::time::{Duration, Instant};

/// What begins the name of such a fact. Its value is a number for people, with its unit.
pub use trapline_model::observed::UNREST;

/// A larger share of all CPUs' time is told when another machine had it.
const MOST_STOLEN: f64 = 0.01;

/// A larger share of one CPU is told when other programs had it.
const MOST_OTHERS: f64 = 0.1;

/// The kernel counts by ticks of 10 ms (USER_HZ): less than three of them say nothing.
const LEAST: Duration = Duration::from_millis(30);
const TICK: Duration = Duration::from_millis(10);

/// A processor that becomes slower by more than this share has been slowed down.
const MOST_SLOWED: f64 = 0.1;

const PROCESSORS: &str = "/sys/devices/system/cpu";
const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// What a host shows at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
struct Reading {
    cpus: u32,
    /// Time of all CPUs that another machine had.
    stolen: Duration,
    /// Time in which they were not idle.
    busy: Duration,
    /// Time that this process had, and all that it has waited for.
    own: Duration,
    /// How often a processor was throttled, since the host started.
    throttled: u64,
    /// The fastest processor's frequency in kHz, where the kernel tells.
    frequency: Option<f64>,
    clock: String,
}

/// Somebody who looks before a boot and after it.
pub struct Watcher {
    since: Instant,
    before: Reading,
}

impl Watcher {
    /// Looks for the first time.
    pub fn begin() -> Self {
        Self {
            since: Instant::now(),
            before: Reading::now(),
        }
    }

    /// Looks again, when all guests have been waited for: what is beyond a bound, as facts.
    pub fn end(self) -> Vec<(String, String)> {
        told(self.since.elapsed(), &self.before, &Reading::now())
    }
}

impl Reading {
    fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self {
            own: own(&fs::read_to_string("/proc/self/stat").unwrap_or_default()),
            throttled: of_processors("thermal_throttle/core_throttle_count")
                .iter()
                .sum::<f64>() as u64,
            frequency: of_processors("cpufreq/scaling_cur_freq")
                .into_iter()
                .reduce(f64::max),
            clock: fs::read_to_string(CLOCK)
                .unwrap_or_default()
                .trim()
                .to_owned(),
            ..Self::of_stat(&stat)
        }
    }

    /// proc(5): user, nice, system, idle, iowait, irq, softirq, steal; guest's time is in
    /// user's.
    fn of_stat(stat: &str) -> Self {
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

/// proc_pid_stat(5), fields 14 to 17: this process's time in user and kernel mode, and that
/// of the children it has waited for.
fn own(stat: &str) -> Duration {
    // The program's name, in brackets, may hold anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_ascii_whitespace().skip(11).take(4);
    ticks
        .filter_map(|field| field.parse::<u32>().ok())
        .map(|ticks| TICK * ticks)
        .sum()
}

/// A number that the kernel tells of each processor, where it does.
fn of_processors(file: &str) -> Vec<f64> {
    let entries = fs::read_dir(PROCESSORS).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join(file)).ok()?;
        text.trim().parse().ok()
    };
    entries.filter_map(number).collect()
}

fn told(elapsed: Duration, before: &Reading, after: &Reading) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let mut tell = |name: &str, value: String| facts.push((format!("{UNREST}{name}"), value));
    let seconds = elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let stolen = after.stolen.saturating_sub(before.stolen);
    let share = stolen.as_secs_f64() / seconds / f64::from(after.cpus.max(1));
    if share > MOST_STOLEN && stolen >= LEAST {
        tell("steal", format!("{:.1}% of all CPUs", share * 100.0));
    }
    let busy = after.busy.saturating_sub(before.busy);
    let others = busy.saturating_sub(after.own.saturating_sub(before.own));
    let share = others.as_secs_f64() / seconds;
    if share > MOST_OTHERS && others >= LEAST {
        tell("others", format!("{:.0}% of a CPU", share * 100.0));
    }
    let throttled = after.throttled.saturating_sub(before.throttled);
    if throttled > 0 {
        tell("throttled", format!("{throttled} times"));
    }
    if let (Some(first), Some(last)) = (before.frequency, after.frequency) {
        if last < first * (1.0 - MOST_SLOWED) {
            tell(
                "frequency",
                format!("from {:.0} to {:.0} MHz", first / 1e3, last / 1e3),
            );
        }
    }
    if before.clock != after.clock {
        tell(
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

    fn reading(stolen_ms: u64, busy_ms: u64, linems: u64) -> Reading {
        Reading {
            cpus: 2,
            stolen: Duration::from_millis(stolen_ms),
            busy: Duration::from_millis(busy_ms),
            own: Duration::from_millis(linems),
            frequency: Some(3_000_000.0),
            clock: "tsc".to_owned(),
            ..Reading::default()
        }
    }

    #[test]
    fn a_host_that_has_nothing_else_to_do_is_not_told_of() {
        let before = reading(0, 0, 0);
        assert_eq!(told(SECOND, &before, &reading(10, 1_050, 1_000)), []);
        // Two ticks within a short boot are no tenth of anything.
        let short = Duration::from_millis(50);
        assert_eq!(told(short, &before, &reading(0, 20, 0)), []);
    }

    #[test]
    fn what_is_beyond_a_bound_is_told_with_how_much_it_is() {
        let before = reading(100, 1_000, 500);
        let mut after = reading(200, 2_400, 1_500);
        after.throttled = 3;
        after.frequency = Some(2_000_000.0);
        after.clock = "hpet".to_owned();
        let told = told(SECOND, &before, &after);
        let told: Vec<_> = told
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let expected = [
            ("unrest-steal", "5.0% of all CPUs"),
            ("unrest-others", "40% of a CPU"),
            ("unrest-throttled", "3 times"),
            ("unrest-frequency", "from 3000 to 2000 MHz"),
            ("unrest-clock", "hpet instead of tsc"),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn the_kernels_counts_are_read() {
        let stat = "cpu  10 1 5 1000 7 2 3 4 0 0\ncpu0 5 0 2 500 3 1 1 2 0 0\ncpu1 5 1 3 500 4 1 2 2 0 0\nintr 1\n";
        let read = Reading::of_stat(stat);
        assert_eq!(read.cpus, 2);
        assert_eq!(read.stolen, 4 * TICK);
        assert_eq!(read.busy, 21 * TICK);
        let line = "1 (a) b) S 1 1 1 0 -1 0 0 0 0 0 3 4 5 6 20 0";
        assert_eq!(own(line), 18 * TICK);
        let here = Reading::now();
        assert!(here.cpus > 0 && here.busy > Duration::ZERO, "{here:?}");
    }
}
