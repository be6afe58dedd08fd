//! What one boot yielded, raw.
//!
//! An [`Observation`] holds what a guest said, with the host's stamps beside
//! the guest's, and nothing computed. Summaries can always be made again from
//! it.

use crate::clock::Clock;
use crate::config::Config;
use crate::environment::EnvironmentId;
use crate::overrides::Overrides;
use std::borrow::Cow;
use std::collections::BTreeMap;
use trapline_abi::{Counter, Interrupt, Op, Stage};

/// What begins the name of a fact that makes all figures of its boot doubtful: what else the
/// host did meanwhile.
pub const HOST_NOISE: &str = "unrest-";

/// All that one boot of an environment yielded. On the simulated machine that
/// is one run of the whole machine, in which several VMMs may have started.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Where.
    pub environment: EnvironmentId,
    /// With which settings.
    pub overrides: Overrides,
    /// On which clock.
    pub clock: Clock,
    /// Which repetition, from 0.
    pub replicate: u32,
    /// Nanoseconds (wall) or instructions (insn) per tick of the guest's clock.
    pub unit_per_tick: f64,
    /// What was found for each operation that was asked for, in order of time.
    pub operations: Vec<Operation>,
    /// Every start of a guest that was observed, in order of time.
    pub launches: Vec<Launch>,
    /// What the environment was made of: versions, settings, hashes.
    pub facts: BTreeMap<String, String>,
    /// What the guest printed beside its records.
    pub log: String,
    /// What went wrong without ending the boot: damaged frames, clocks that disagree.
    pub problems: Vec<String>,
}

impl Observation {
    /// Who was booted.
    pub fn config(&self) -> Config {
        Config {
            environment: self.environment,
            overrides: self.overrides.clone(),
        }
    }
}

/// One operation of a boot.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Which.
    pub op: Op,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It was measured and its work was proved.
    Measured {
        /// Ticks that an empty batch takes.
        clock_cost: u64,
        /// Ticks that 1,024 turns of the empty loop take.
        loop_cost: u64,
        /// The raw batches, in order of time. Those of workload `irq` follow from
        /// its interrupts, see [`Outcome::batches`], and are not kept twice.
        samples: Vec<Sample>,
        /// The interrupts of workload `irq`, in order of time, all their times on the
        /// guest's clock.
        interrupts: Vec<Interrupt>,
        /// Checksum of the work; equal wherever the work was equal.
        check: u64,
        /// Exits during the operation, where something counts them.
        exits: Option<u64>,
        /// CPU time that the host spent on the operation, in nanoseconds.
        host_cpu_ns: Option<u64>,
        /// From the first batch to the last by the guest's clock, in ticks, and
        /// by the host's, in nanoseconds (wall clock only).
        elapsed: Option<(u64, u64)>,
    },
    /// It cannot be measured here.
    Skipped(String),
    /// Its work was not done as it should have been, or the guest did not
    /// get that far.
    Failed(String),
}

impl Outcome {
    /// The batches of what was measured, in order of time. An interrupt is one, from
    /// when it was due until its handler was entered.
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

/// A timer whose setting is only roughly known may seem to interrupt too early: that
/// is not late.
fn lateness(interrupt: &Interrupt) -> Sample {
    Sample {
        start: interrupt.due,
        end: interrupt.entered.max(interrupt.due),
        count: 1,
        host_ns: None,
    }
}

/// One batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Guest clock before, in ticks.
    pub start: u64,
    /// Guest clock after, in ticks.
    pub end: u64,
    /// Operations, or bytes for a rate.
    pub count: u64,
    /// When the host received it: nanoseconds since the guest was started.
    pub host_ns: Option<u64>,
}

/// One start of a guest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Launch {
    /// When it reached which stage.
    pub timeline: Timeline,
    /// What the VMM counted.
    pub counters: BTreeMap<Counter, u64>,
}

/// Stages with the time since `Exec`, in units of the observation's clock
/// (nanoseconds or instructions), all on the clock of whoever started the VMM.
pub type Timeline = BTreeMap<Stage, u64>;
