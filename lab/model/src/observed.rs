//! Raw results of a boot.
//!
//! An [`Observation`] holds the records of a guest with time stamps of guest and host, and no computed values:
//! figures can always be recomputed from it.

use crate::clock::Clock;
use crate::config::Config;
use std::borrow::Cow;
use std::collections::BTreeMap;
use trapline_abi::{Counter, Interrupt, Op, Stage};

/// Prefix of facts about other activity of the host during a boot, which makes its figures doubtful.
pub const HOST_NOISE: &str = "unrest-";

/// Raw results of one boot. A boot of a simulated machine may start several VMMs.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Configuration.
    pub config: Config,
    /// Clock.
    pub clock: Clock,
    /// Index among the boots of the configuration, from 0.
    pub replicate: u32,
    /// Nanoseconds (wall) or instructions (insn) per tick of the guest's clock.
    pub unit_per_tick: f64,
    /// Outcome of each requested operation, in order of time.
    pub operations: Vec<Operation>,
    /// Observed starts of guests, in order of time.
    pub launches: Vec<Launch>,
    /// Properties of the environment: versions, settings, hashes.
    pub facts: BTreeMap<String, String>,
    /// Output of the guest that is not a record.
    pub log: String,
    /// Problems that did not end the boot: damaged frames, clocks that disagree.
    pub problems: Vec<String>,
}

impl Observation {
    /// Appends the results of a further start of the same boot. Of a fact with several values the last one is kept, but
    /// those of `joined` are kept all.
    pub fn append(&mut self, other: Self, joined: &str) {
        self.operations.extend(other.operations);
        self.launches.extend(other.launches);
        for (name, value) in other.facts {
            match self.facts.get_mut(&name) {
                Some(known) if name == joined => {
                    known.push(' ');
                    known.push_str(&value);
                }
                _ => _ = self.facts.insert(name, value),
            }
        }
        self.log.push_str(&other.log);
        for problem in other.problems {
            if !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
        }
    }
}

/// One operation of a boot.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Operation.
    pub op: Op,
    /// Outcome.
    pub outcome: Outcome,
}

/// Outcome of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Measured, with proof of the work.
    Measured {
        /// Ticks of an empty batch.
        clock_cost: u64,
        /// Ticks of 1,024 iterations of the empty loop.
        loop_cost: u64,
        /// Raw batches, in order of time. Empty for workload `irq`, whose batches follow from its interrupts
        /// ([`Outcome::batches`]).
        samples: Vec<Sample>,
        /// Interrupts of workload `irq`, in order of time, with times on the guest's clock.
        interrupts: Vec<Interrupt>,
        /// Checksum of the work; equal wherever the work was equal.
        check: u64,
        /// Number of exits during the operation, if counted.
        exits: Option<u64>,
        /// CPU time of the host during the operation, in nanoseconds.
        host_cpu_ns: Option<u64>,
        /// Work of the guest between the batches that prepared them, if there was any.
        idle: Option<IdleWork>,
        /// Time from the first batch to the last on the guest's clock, in ticks, and on the host's, in nanoseconds
        /// (wall clock only).
        elapsed: Option<(u64, u64)>,
    },
    /// Not supported here, with the reason.
    Skipped(String),
    /// The work was wrong or not reached, with the reason.
    Failed(String),
}

impl Outcome {
    /// Returns the measured batches, in order of time. An interrupt is a batch from its due time to the entry of its
    /// handler.
    pub fn batches(&self) -> Cow<'_, [Sample]> {
        match self {
            Self::Measured {
                samples,
                interrupts,
                ..
            } if interrupts.is_empty() => Cow::Borrowed(samples),
            Self::Measured { interrupts, .. } => interrupts.iter().map(lateness).collect(),
            Self::Skipped(_) | Self::Failed(_) => Cow::Borrowed(&[]),
        }
    }
}

/// Returns an interrupt as a batch. A timer whose due time is approximate may seem to interrupt early; its
/// lateness is 0.
fn lateness(interrupt: &Interrupt) -> Sample {
    Sample {
        start: interrupt.due,
        end: interrupt.entered.max(interrupt.due),
        count: 1,
        host_ns: None,
    }
}

/// Work of a guest between the batches of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleWork {
    /// Duration, in ticks.
    pub ticks: u64,
    /// Memory written, in bytes.
    pub bytes: u64,
}

/// One batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Guest clock at the start, in ticks.
    pub start: u64,
    /// Guest clock at the end, in ticks.
    pub end: u64,
    /// Number of operations, or of bytes for a rate.
    pub count: u64,
    /// Time of receipt on the host, in nanoseconds since the start of the guest.
    pub host_ns: Option<u64>,
}

/// One start of a guest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Launch {
    /// Times of its stages.
    pub timeline: Timeline,
    /// Counters of the VMM.
    pub counters: BTreeMap<Counter, u64>,
}

/// Stages with the time since `Exec`, in units of the observation's clock (nanoseconds or instructions). All
/// times are on the clock of the system that started the VMM.
pub type Timeline = BTreeMap<Stage, u64>;
