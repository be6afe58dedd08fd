//! Rates of packets through a forwarder: a switch between two ports, without guests.
//!
//! A forwarder is an environment (`net/NAME`), the queues of its ports are settings of it. A trial sends numbered
//! frames for a time.

mod operation;

pub use crate::forwarders::{Ring, QUEUES};
pub use operation::{PacketOperation, Purpose};

use crate::config::Config;
use crate::environment::EnvironmentId;
use crate::named::named;
use std::fmt;
use std::ops::RangeInclusive;

/// Ports that send, and that receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// The first port to the second one.
    One,
    /// Both to each other.
    Both,
    /// The first port to the forwarder: the second one receives nothing.
    Half,
}

named!(Direction { One "one", Both "both", Half "half" });

impl Direction {
    /// Returns it in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::One => "one way",
            Self::Both => "both ways, sum",
            Self::Half => "to the forwarder",
        }
    }
}

/// Distance of two CPUs, by the round trip of a cache line between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Distance {
    /// Below 150 ns, as between CPUs that share a cache.
    Near,
    /// Below 600 ns, as within a processor.
    Mid,
    /// More, as between processors.
    Far,
}

named!(Distance { Near "near", Mid "mid", Far "far" });

impl Distance {
    /// Says how far the CPUs are apart, behind their name.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Mid => "at mid distance",
            Self::Far => "far",
        }
    }
}

/// Sizes of frames that are measured by default, in bytes without checksum: the shortest frame, and those of the fourth
/// source document's table.
pub const SIZES: [u32; 3] = [60, 200, 1500];

/// Sizes of a frame, in bytes without checksum.
pub const FRAME: RangeInclusive<u32> = 60..=1514;

/// Default number of rounds, each of which measures every forwarder once: the smallest whose ratios have an interval of
/// 93.75%.
pub const ROUNDS: u32 = 5;

/// Numbers of rounds that can be asked for.
pub const MOST_ROUNDS: RangeInclusive<u32> = 1..=1_000;

/// Durations of a trial that can be asked for, in milliseconds.
pub const DURATIONS: RangeInclusive<u32> = 10..=600_000;

/// Settings of trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Duration of a trial, in milliseconds.
    pub milliseconds: u32,
    /// CPU of the ports, and that of the forwarder.
    pub cpus: [u32; 2],
}

/// The last of the two CPUs is that of the forwarder.
impl Default for Settings {
    fn default() -> Self {
        Self {
            milliseconds: 300,
            cpus: [1, 0],
        }
    }
}

/// Returns the configurations of forwarders with all combinations of queues.
pub fn configs(environments: &[EnvironmentId], rings: &[Ring], pairs: &[u32]) -> Vec<Config> {
    let mut all = Vec::new();
    for environment in environments {
        for &ring in rings {
            let queues = pairs.iter().map(|&pairs| Queues { ring, pairs });
            all.extend(queues.map(|queues| queues.config(*environment)));
        }
    }
    all
}

/// Returns operations with all combinations of parameters, each once. Nothing arrives behind a forwarder that drops frames, so that
/// those sent to it have no latency.
pub fn operations(
    sizes: &[u32],
    directions: &[Direction],
    purposes: &[Purpose],
) -> Vec<PacketOperation> {
    let mut all = Vec::new();
    for &direction in directions {
        let is_possible = |it: &&Purpose| {
            let receives = matches!(it, Purpose::HalfLoad | Purpose::Search | Purpose::Confirm);
            direction != Direction::Half || !receives
        };
        for &size in sizes {
            let purposes = purposes.iter().filter(is_possible);
            all.extend(purposes.map(|&purpose| PacketOperation {
                direction,
                size,
                purpose,
                distance: None,
            }));
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Queues of each port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Queues {
    /// Format.
    pub ring: Ring,
    /// Pairs.
    pub pairs: u32,
}

impl Queues {
    /// Default queues.
    pub const DEFAULT: Self = Self {
        ring: Ring::Split,
        pairs: 1,
    };

    /// Returns the configuration of a forwarder with these queues.
    pub fn config(self, environment: EnvironmentId) -> Config {
        let mut config = Config::new(environment);
        if self.ring != Self::DEFAULT.ring {
            config.overrides.replace_text("ring", self.ring.name());
        }
        if self.pairs != Self::DEFAULT.pairs {
            config
                .overrides
                .replace_text("queues", &self.pairs.to_string());
        }
        config
    }

    /// Returns the queues of a configuration.
    pub fn of(config: &Config) -> Self {
        let overrides = &config.overrides;
        let ring = overrides.text("ring");
        Self {
            ring: ring
                .and_then(|name| Ring::from_name(&name))
                .unwrap_or(Self::DEFAULT.ring),
            pairs: overrides
                .value("queues")
                .map_or(Self::DEFAULT.pairs, |it| it.number()),
        }
    }
}

impl fmt::Display for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pairs, self.ring.name()) {
            (1, ring) => write!(f, "{ring} queues"),
            (pairs, ring) => write!(f, "{pairs} pairs of {ring} queues"),
        }
    }
}

/// Latency of one in 64 frames, from the time at which it was due until it arrived, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
}

/// A trial: what it has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Trial {
    /// Offered load in frames a second of each sender; `None` for as many as arrive.
    pub offered: Option<f64>,
    /// Time in which frames were sent, in nanoseconds.
    pub duration_ns: u64,
    /// Frames that were accepted.
    pub sent: u64,
    /// Frames that were due, but not accepted.
    pub refused: u64,
    /// Frames that arrived.
    pub received: u64,
    /// Frames that were damaged.
    pub damaged: u64,
    /// CPU time of the thread that sends and receives, in nanoseconds.
    pub ports_cpu_ns: u64,
    /// CPU time of the forwarder, in nanoseconds; `None` if the kernel forwards.
    pub forwarder_cpu_ns: Option<u64>,
    /// Notifications to the forwarder.
    pub kicks: u64,
    /// Notifications from it.
    pub calls: u64,
    /// Latency; `None` if no frame was sampled, or with the maximum load.
    pub latency: Option<Latency>,
    /// Round trip of a cache line between both CPUs, in nanoseconds.
    pub round_trip_ns: f64,
}

impl Trial {
    /// Returns how far both CPUs were apart. Rates of different distances cannot be compared.
    pub fn distance(&self) -> Distance {
        match self.round_trip_ns {
            ns if ns < 150.0 => Distance::Near,
            ns if ns < 600.0 => Distance::Mid,
            _ => Distance::Far,
        }
    }

    /// Returns frames that arrived in a second.
    pub fn rate(&self) -> f64 {
        self.received as f64 * 1e9 / (self.duration_ns as f64).max(1.0)
    }

    /// Returns the share of frames that did not arrive, of those that were due.
    pub fn loss(&self) -> f64 {
        let due = self.sent.saturating_add(self.refused);
        due.saturating_sub(self.received) as f64 / (due as f64).max(1.0)
    }
}
