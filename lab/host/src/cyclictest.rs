//! cyclictest of the distribution's package rt-tests, the reference for `irq/own-timer` on `host`.

use crate::cache::{Cache, Kind};
use crate::package::{self, Package};
use crate::{tool, Error};
use std::path::PathBuf;
use std::process::Command;

/// Its package, and that of a library not installed everywhere.
const PACKAGE: Package = Package {
    kind: Kind::RtTests,
    names: &["rt-tests", "libnuma1"],
    program: "usr/bin/cyclictest",
    without: &[],
};

/// Directory of libraries in the packages.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Number of histogram buckets of one microsecond.
const BUCKETS: u32 = 20_000;

/// A downloaded cyclictest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cyclictest {
    directory: PathBuf,
}

/// Options of a measurement by one thread with one timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Period of the timer, in microseconds.
    pub interval: u32,
    /// Number of expiries.
    pub loops: u32,
    /// Priority under SCHED_FIFO; `None` for SCHED_OTHER.
    pub fifo: Option<u8>,
    /// CPU of the thread.
    pub cpu: usize,
    /// Keep the default timer slack of 50 us for SCHED_OTHER, which the agent sets to 1 ns.
    pub slack: bool,
}

/// Histogram of lateness, in microseconds, rounded down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    buckets: Vec<(u64, u64)>,
    beyond: u64,
    /// Maximum.
    pub max: u64,
}

impl Cyclictest {
    /// Returns the program from the cache, downloading it if needed.
    ///
    /// # Errors
    /// It is not in the cache and cannot be downloaded.
    pub fn fetched(cache: &Cache) -> Result<Self, Error> {
        let directory = PACKAGE.fetched(cache)?;
        Ok(Self { directory })
    }

    /// Returns the name of its package.
    pub fn origin(&self) -> String {
        package::origin(&self.directory)
    }

    /// Runs a measurement.
    ///
    /// # Errors
    /// The program cannot be started, or fails.
    pub fn measure(&self, setting: &Setting) -> Result<Distribution, Error> {
        let program = self.directory.join(PACKAGE.program);
        let mut command = Command::new(&program);
        command
            .env("LD_LIBRARY_PATH", self.directory.join(LIBRARIES))
            .args(arguments(setting));
        let slack = if setting.slack { DEFAULT_SLACK } else { 1 };
        let output = with_slack(slack, || tool::output(&mut command))?;
        let text = String::from_utf8_lossy(&output.stdout);
        match Distribution::parse(&text) {
            Some(found) if output.status.success() => Ok(found),
            _ => Err(Error::unavailable(format!(
                "cyclictest failed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ))),
        }
    }
}

/// Restores the default slack of a thread (prctl(2)).
const DEFAULT_SLACK: u64 = 0;

/// Starts a program with this timer slack, in nanoseconds: threads inherit it (prctl(2)).
fn with_slack<T>(ns: u64, start: impl FnOnce() -> T) -> T {
    // SAFETY: PR_SET_TIMERSLACK takes a number and changes this thread only.
    let set = |ns: u64| unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns) };
    set(ns);
    let started = start();
    set(DEFAULT_SLACK);
    started
}

/// Returns the arguments. `--laptop` leaves power management unchanged.
fn arguments(setting: &Setting) -> Vec<String> {
    let Setting {
        interval,
        loops,
        fifo,
        cpu,
        slack: _,
    } = setting;
    let rules = match fifo {
        Some(priority) => format!("--policy=fifo --priority={priority}"),
        None => "--policy=other".to_owned(),
    };
    let all = format!(
        "--laptop --quiet --threads=1 --affinity={cpu} --interval={interval} --loops={loops} \
         --histogram={BUCKETS} {rules}"
    );
    all.split(' ').map(str::to_owned).collect()
}

impl Distribution {
    /// Parses its output: a line per microsecond, then comments.
    fn parse(text: &str) -> Option<Self> {
        let mut found = Self::default();
        let mut is_complete = false;
        for line in text.lines() {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            match fields.as_slice() {
                ["#", "Max", "Latencies:", max] => {
                    found.max = max.parse().ok()?;
                    is_complete = true;
                }
                ["#", "Histogram", "Overflows:", count] => found.beyond = count.parse().ok()?,
                ["#", ..] | [] => {}
                [late, count] => match (late.parse(), count.parse()) {
                    (Ok(_), Ok(0)) => {}
                    (Ok(late), Ok(count)) => found.buckets.push((late, count)),
                    _ => {}
                },
                _ => {}
            }
        }
        is_complete.then_some(found)
    }

    /// Adds another histogram.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.buckets.extend(other.buckets);
        self.buckets.sort_unstable();
        self.beyond += other.beyond;
        self.max = self.max.max(other.max);
        self
    }

    /// Returns the number of expiries.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum::<u64>() + self.beyond
    }

    /// Returns a quantile in thousandths (nearest rank). Values without a bucket count as the maximum.
    pub fn permille(&self, share: u64) -> u64 {
        let rank = (self.count() * share).div_ceil(1000).max(1);
        let mut seen = 0;
        let reached = self.buckets.iter().find(|(_, count)| {
            seen += count;
            seen >= rank
        });
        reached.map_or(self.max, |(late, _)| *late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    const OUTPUT: &str = "# /dev/cpu_dma_latency set to 0us\n# Histogram\n000000 000000\n\
                        000002 000006\n000003 000002\n000040 000001\n# Total: 000000009\n\
                        # Min Latencies: 00002\n# Avg Latencies: 00007\n\
                        # Max Latencies: 25000\n# Histogram Overflows: 00001\n\
                        # Histogram Overflow at cycle number:\n# Thread 0: 00003\n";

    #[test]
    fn output_is_parsed_to_a_histogram() {
        let found = Distribution::parse(OUTPUT).unwrap();
        assert_eq!((found.count(), found.max), (10, 25_000));
        let of = |share| found.permille(share);
        assert_eq!((of(1), of(600), of(601), of(900)), (2, 2, 3, 40));
        assert_eq!((of(901), of(1000)), (25_000, 25_000));
        let twice = found.clone().merge(found);
        assert_eq!((twice.count(), twice.permille(600)), (20, 2));
        assert_eq!(Distribution::parse("usage: cyclictest"), None);
    }

    #[test]
    fn arguments_follow_the_setting() {
        let setting = Setting {
            interval: 1000,
            loops: 5000,
            fifo: Some(10),
            cpu: 1,
            slack: true,
        };
        let text = arguments(&setting).join(" ");
        expect!["--laptop --quiet --threads=1 --affinity=1 --interval=1000 --loops=5000 --histogram=20000 --policy=fifo --priority=10"].assert_eq(&text);
        let other = arguments(&Setting {
            fifo: None,
            ..setting
        });
        assert_eq!(other.last().map(String::as_str), Some("--policy=other"));
    }
}
