//! Rates of packets through a forwarder: a switch between two ports, without guests.
//!
//! A trial sends numbered frames for a time. Trials come in rounds, which hold every cell once.

mod request;

pub use request::{InvalidRequest, PacketRequest, PlannedTrial};

use crate::named::named;
use std::fmt;

/// Format of the queues, where the forwarder has queues of virtio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ring {
    /// Split (virtio 1.2, 2.7).
    Split,
    /// Packed (virtio 1.2, 2.8).
    Packed,
}

named!(Ring { Split "split", Packed "packed" });

/// Who sends to whom.
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

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// The rate with as many frames on their way as a queue holds.
    Maximum,
    /// The latency at half of that rate.
    HalfLoad,
    /// Loss at a rate that was asked for.
    Given,
    /// Loss at a rate of a search.
    Search,
}

named!(Purpose { Maximum "maximum", HalfLoad "half-load", Given "given", Search "search" });

/// How far two CPUs are apart, by the round trip of a cache line between them.
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

/// The frames of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frames {
    /// Bytes from the destination address, without the checksum of 4 bytes.
    pub size: u32,
    /// Format of queues.
    pub ring: Ring,
    /// Pairs of queues of each port.
    pub queues: u32,
    /// Who sends.
    pub direction: Direction,
}

impl Frames {
    /// Returns number and format of the queues in words.
    pub fn queues(&self) -> String {
        match (self.queues, self.ring.name()) {
            (1, ring) => format!("{ring} queues"),
            (pairs, ring) => format!("{pairs} pairs of {ring} queues"),
        }
    }
}

impl fmt::Display for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::One => "one way",
            Direction::Both => "both ways, sum",
            Direction::Half => "to the forwarder",
        };
        write!(f, "{} bytes, {}, {direction}", self.size, self.queues())
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

/// What a trial has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrialFigures {
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

impl TrialFigures {
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
        let due = self.sent + self.refused;
        due.saturating_sub(self.received) as f64 / (due as f64).max(1.0)
    }
}

/// Outcome of a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum TrialOutcome {
    /// It was done.
    Done(TrialFigures),
    /// The path is not available.
    Skipped(String),
    /// The forwarder or the program that sends has failed.
    Failed(String),
}

/// A trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Round and cell.
    pub planned: PlannedTrial,
    /// What is measured.
    pub purpose: Purpose,
    /// Offered load in frames a second of each sender; `None` for as many as arrive.
    pub offered: Option<f64>,
    /// Outcome.
    pub outcome: TrialOutcome,
}

impl Trial {
    /// Returns what it has counted.
    pub fn figures(&self) -> Option<&TrialFigures> {
        match &self.outcome {
            TrialOutcome::Done(figures) => Some(figures),
            _ => None,
        }
    }
}
