//! Raw results of a boot.
//!
//! An [`Observation`] holds the records of a guest with time stamps of guest and host, and no computed values:
//! figures can always be recomputed from it.

use crate::clock::Clock;
use crate::config::Config;
use crate::operation::Operation;
use crate::packets::{PacketOperation, Purpose, Trial};
use std::borrow::Cow;
use std::collections::BTreeMap;
use trapline_abi::{Counter, Interrupt, Stage};

/// Prefix of facts about other activity of the host during a boot, which makes its figures doubtful.
pub const HOST_NOISE: &str = "host-noise-";

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
    pub operations: Vec<OperationResult>,
    /// Observed starts of guests, in order of time.
    pub launches: Vec<Launch>,
    /// Properties of the environment: versions, settings, hashes.
    pub facts: BTreeMap<String, String>,
    /// Output of the guest that is not a record.
    pub log: String,
    /// Problems that did not end the boot: damaged frames, clocks that disagree.
    pub problems: Vec<String>,
    /// Id of the host on which it was measured; empty until it is stored.
    pub host: String,
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
pub struct OperationResult {
    /// Operation.
    pub op: Operation,
    /// Outcome.
    pub outcome: Outcome,
}

impl OperationResult {
    /// Creates the result of an operation.
    pub fn new(op: impl Into<Operation>, outcome: Outcome) -> Self {
        let op = op.into();
        Self { op, outcome }
    }
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
        /// Trials of packets, in order of time.
        trials: Vec<Trial>,
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
    /// Returns the outcome of a build that took this time on the clock of its environment, and `own_ns` on that of the Linux
    /// in which it ran: an instruction of a simulated machine is a nanosecond of its time. `proof` is the hash of what was
    /// made, in hexadecimal.
    pub fn of_build(own_ns: u64, took: u64, proof: &str) -> Self {
        let sample = Sample {
            start: 0,
            end: took,
            count: 1,
            host_ns: None,
            excluded: 0,
        };
        let digits = proof.get(..16).unwrap_or_default();
        Self::Measured {
            clock_cost: 0,
            loop_cost: 0,
            samples: vec![sample],
            interrupts: Vec::new(),
            trials: Vec::new(),
            check: u64::from_str_radix(digits, 16).unwrap_or_default(),
            exits: None,
            host_cpu_ns: None,
            idle: None,
            elapsed: Some((own_ns, took)),
        }
    }

    /// Returns the outcome of trials of packets, each of which is a sample: frames in the time of a trial, or the median
    /// latency of one, if any frame was sampled.
    pub fn of_trials(operation: PacketOperation, trials: Vec<Trial>) -> Self {
        let sample = |trial: &Trial| {
            let (end, count) = match operation.purpose {
                Purpose::HalfLoad => (trial.latency?.p50, 1),
                _ => (trial.duration_ns, trial.received),
            };
            Some(Sample {
                start: 0,
                end,
                count,
                host_ns: None,
                excluded: 0,
            })
        };
        Self::Measured {
            clock_cost: 0,
            loop_cost: 0,
            samples: trials.iter().filter_map(sample).collect(),
            interrupts: Vec::new(),
            trials,
            check: 0,
            exits: None,
            host_cpu_ns: None,
            idle: None,
            elapsed: None,
        }
    }

    /// Returns the number of damaged frames of all trials of packets.
    pub fn damaged_frames(&self) -> u64 {
        match self {
            Self::Measured { trials, .. } => {
                let damaged = trials.iter().map(|trial| trial.damaged);
                damaged.fold(0, u64::saturating_add)
            }
            Self::Skipped(_) | Self::Failed(_) => 0,
        }
    }

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
        excluded: 0,
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
    /// Ticks between start and end that the simulated processor needed to find the lengths of intercepted instructions,
    /// which processors report themselves. They are no part of the figure.
    pub excluded: u64,
}

impl Sample {
    /// Returns the ticks of the batch: those between its start and its end that are not excluded.
    pub const fn ticks(&self) -> u64 {
        self.elapsed().saturating_sub(self.excluded)
    }

    /// Returns all ticks between start and end; 0 if the end is before the start.
    pub const fn elapsed(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
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
