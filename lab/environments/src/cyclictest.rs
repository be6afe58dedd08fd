//! cyclictest of the distribution's package rt-tests: what our own thread with a timer
//! (`host`, `own-timer`) is held against. Downloaded and unpacked into the cache as
//! kernels are, never installed.

use crate::cache::{Cache, Kind};
use crate::error::EnvError;
use crate::package::{self, Package};
use std::path::PathBuf;
use std::process::Command;

/// The program's package, and that of a library which not every host has.
const PACKAGE: Package = Package {
    kind: Kind::RtTests,
    names: &["rt-tests", "libnuma1"],
    program: "usr/bin/cyclictest",
    without: &[],
};

/// Where they have libraries.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Later than this it counts without a bucket, in microseconds.
const BUCKETS: u32 = 20_000;

/// The program, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cyclictest {
    directory: PathBuf,
}

/// What it is to measure: one thread with one timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// From one expiry to the next, in microseconds.
    pub interval: u32,
    /// How many.
    pub loops: u32,
    /// Its priority under SCHED_FIFO, or else it is as any other.
    pub fifo: Option<u8>,
    /// Its CPU.
    pub cpu: usize,
    /// Whether its timer may be 50 us late so that several can be woken at once, which is
    /// what threads of SCHED_OTHER have if they ask for nothing else; ours does.
    pub slack: bool,
}

/// How late it was how often, in whole microseconds, rounded down as it does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    buckets: Vec<(u64, u64)>,
    beyond: u64,
    /// The latest of all.
    pub max: u64,
}

impl Cyclictest {
    /// The program from the cache, or else downloaded into it.
    ///
    /// # Errors
    /// It is not in the cache and cannot be had.
    pub fn fetched(cache: &Cache) -> Result<Self, EnvError> {
        let directory = PACKAGE.fetched(cache)?;
        Ok(Self { directory })
    }

    /// The package that it comes from.
    pub fn origin(&self) -> String {
        package::origin(&self.directory)
    }

    /// Lets it measure.
    ///
    /// # Errors
    /// It cannot be started, or fails.
    pub fn measure(&self, setting: &Setting) -> Result<Distribution, EnvError> {
        let program = self.directory.join(PACKAGE.program);
        let mut command = Command::new(&program);
        command
            .env("LD_LIBRARY_PATH", self.directory.join(LIBRARIES))
            .args(words(setting));
        let slack = if setting.slack { USUAL } else { 1 };
        let output = with_slack(slack, || command.output()).map_err(EnvError::file(&program))?;
        let said = String::from_utf8_lossy(&output.stdout);
        match Distribution::read(&said) {
            Some(found) if output.status.success() => Ok(found),
            _ => Err(EnvError::Missing(format!(
                "cyclictest failed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ))),
        }
    }
}

/// As much slack as a thread has by default.
const USUAL: u64 = 0;

/// Starts a program from a thread with so much timer slack, in nanoseconds: that is what
/// all of the program's threads have by default (prctl(2)).
fn with_slack<T>(ns: u64, start: impl FnOnce() -> T) -> T {
    // SAFETY: sets a number of this thread.
    let set = |ns: u64| unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns) };
    set(ns);
    let started = start();
    set(USUAL);
    started
}

/// It leaves power management alone (`--laptop`), as we do.
fn words(setting: &Setting) -> Vec<String> {
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
    /// What it prints: a line for each microsecond, and comments behind them.
    fn read(text: &str) -> Option<Self> {
        let mut found = Self::default();
        let mut is_whole = false;
        for line in text.lines() {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            match fields.as_slice() {
                ["#", "Max", "Latencies:", max] => {
                    found.max = max.parse().ok()?;
                    is_whole = true;
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
        is_whole.then_some(found)
    }

    /// The same with another's added.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.buckets.extend(other.buckets);
        self.buckets.sort_unstable();
        self.beyond += other.beyond;
        self.max = self.max.max(other.max);
        self
    }

    /// How many expiries there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum::<u64>() + self.beyond
    }

    /// The lateness that so many of a thousand do not exceed (nearest rank); what has no
    /// bucket is as late as the latest.
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

    const SAID: &str = "# /dev/cpu_dma_latency set to 0us\n# Histogram\n000000 000000\n\
                        000002 000006\n000003 000002\n000040 000001\n# Total: 000000009\n\
                        # Min Latencies: 00002\n# Avg Latencies: 00007\n\
                        # Max Latencies: 25000\n# Histogram Overflows: 00001\n\
                        # Histogram Overflow at cycle number:\n# Thread 0: 00003\n";

    #[test]
    fn what_it_prints_is_a_distribution() {
        let found = Distribution::read(SAID).unwrap();
        assert_eq!((found.count(), found.max), (10, 25_000));
        let of = |share| found.permille(share);
        assert_eq!((of(1), of(600), of(601), of(900)), (2, 2, 3, 40));
        assert_eq!((of(901), of(1000)), (25_000, 25_000));
        let twice = found.clone().and(found);
        assert_eq!((twice.count(), twice.permille(600)), (20, 2));
        assert_eq!(Distribution::read("usage: cyclictest"), None);
    }

    #[test]
    fn it_is_asked_for_what_our_own_thread_does() {
        let setting = Setting {
            interval: 1000,
            loops: 5000,
            fifo: Some(10),
            cpu: 1,
            slack: true,
        };
        let asked = words(&setting).join(" ");
        for word in ["--affinity=1 ", "--interval=1000 ", "--loops=5000 "] {
            assert!(asked.contains(word), "{asked}");
        }
        assert!(asked.ends_with("--policy=fifo --priority=10"), "{asked}");
        let other = words(&Setting {
            fifo: None,
            ..setting
        });
        assert_eq!(other.last().map(String::as_str), Some("--policy=other"));
    }
}
