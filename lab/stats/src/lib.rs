//! From raw samples to figures, in steps with names: sample -> value
//! ([`value`]), values of a boot -> that boot's figure, a median on the wall clock and a
//! mean on exact clocks, boots -> estimate with its interval ([`spread`]), cells side by side -> checked and compared
//! ([`compare`]).
//!
//! Everything is pure. The same observations and the same seed give the same
//! digits, on any day and any machine; no file, clock or process is touched, so a
//! report can always be rebuilt from stored samples. No sample is ever dropped.
#![forbid(unsafe_code)]

pub mod agreement;
pub mod block;
mod cell;
pub mod chance;
mod compare;
pub mod contest;
mod exact;
pub mod history;
pub mod irq;
pub mod judge;
pub mod modes;
pub mod order;
pub mod paired;
pub mod spread;
mod timeline;
pub mod value;

pub use timeline::{BootTimeline, StageTime};

use cell::Draft;
use order::Interval;
use std::collections::BTreeMap;
use trapline_abi::Op;
use trapline_model::{Clock, EnvironmentId, Observation};
use value::Work;

/// All that a report is made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// One for each operation in each environment that said anything of it,
    /// operations in table order, within them environments.
    pub cells: Vec<Cell>,
    /// How each environment boots.
    pub timelines: Vec<BootTimeline>,
    /// What each environment was made of.
    pub facts: BTreeMap<EnvironmentId, BTreeMap<String, String>>,
    /// What went wrong without ending a boot, and in how many boots.
    pub problems: BTreeMap<(EnvironmentId, String), usize>,
}

/// One operation in one environment.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Where.
    pub environment: EnvironmentId,
    /// What.
    pub op: Op,
    /// By which clock.
    pub clock: Clock,
    /// Of every figure in it but `exits`, `host_cpu_ns` and ratios: see
    /// [`value::unit`].
    pub unit: &'static str,
    /// The figure, or why there is none.
    pub value: Value,
}

/// What a cell holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// It was measured.
    Measured(Box<Figure>),
    /// It cannot be measured here, with the reason.
    Skip(String),
    /// It should have been measured.
    Failed(Failure),
}

/// Why there is no figure where there should be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// What went wrong, for people.
    pub reason: String,
}

/// Kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// Boots on the instruction clock gave different digits.
    NotDeterministic,
    /// The checksums of equal work differ.
    UnequalWork,
    /// The guest failed, or did not get that far, or told nonsense.
    Broken,
}

impl FailureKind {
    /// The name programs read.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotDeterministic => "not-deterministic",
            Self::UnequalWork => "unequal-work",
            Self::Broken => "broken",
        }
    }

    pub(crate) fn because(self, reason: String) -> Value {
        Value::Failed(Failure { kind: self, reason })
    }
}

impl Value {
    /// The figure, if there is one.
    pub fn figure(&self) -> Option<&Figure> {
        match self {
            Self::Measured(figure) => Some(figure),
            _ => None,
        }
    }
}

/// A figure with all that is known of its quality.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// On the wall clock the median, over boots, of each boot's median batch. On an exact
    /// clock the mean over all batches of the first boot, weighted by operations
    /// ([`value::Calibration::mean`]); the other boots gave the same.
    pub estimate: f64,
    /// The interval of the estimate over boots ([`order::median_interval`]): of level 0.9375 for five
    /// boots, at least 0.95 from six on. `None` for a single boot, and on an exact clock, whose figures
    /// are reproduced and not estimated.
    pub interval: Option<Interval>,
    /// The smallest batch.
    pub min: f64,
    /// The largest batch.
    pub max: f64,
    /// Half of all batches are at most this (nearest rank).
    pub p50: f64,
    /// Nine in ten are.
    pub p90: f64,
    /// Ninety-nine in a hundred are.
    pub p99: f64,
    /// Batches that the percentiles are of.
    pub samples: usize,
    /// Boots that the estimate is of; on the instruction clock, those that agreed.
    pub boots: usize,
    /// The ratio to the bare row of the same clock, if that has a figure, did the same amount of work,
    /// and neither is below resolution.
    pub ratio: Option<Ratio>,
    /// Exits during one operation - for a rate, during a megabyte - where
    /// something counts them: median over boots.
    pub exits: Option<f64>,
    /// CPU time that the host spends on one operation - for a rate, on a
    /// megabyte - in nanoseconds, where it is known: median over boots.
    pub host_cpu_ns: Option<f64>,
    /// What a reader has to know before he trusts the figure.
    pub flags: Vec<Flag>,
}

impl Figure {
    /// What the figure would have to exceed, if it does not: it says "less than
    /// this" and nothing else.
    pub fn resolution(&self) -> Option<f64> {
        self.flags.iter().find_map(|flag| match flag {
            Flag::BelowResolution(limit) => Some(*limit),
            _ => None,
        })
    }
}

/// The ratio of a figure to that of the bare row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// On the wall clock the median, over the blocks that hold a boot of both, of the ratio of the two
    /// boots' medians; on an exact clock the ratio of the two figures.
    pub estimate: f64,
    /// Its interval: an order statistic of the blocks' ratios. `None` for a single block, and on an exact
    /// clock.
    pub interval: Option<Interval>,
}

/// What a reader has to know before he trusts a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Flag {
    /// What is left after taking off the loop is not more than what the loop or
    /// the clock costs: the figure only says "less than this", in the cell's unit.
    BelowResolution(f64),
    /// Guest and host measured an interval of at least 5 ms and differ by more
    /// than 1%, and by more than deliveries may be late.
    ClocksDisagree {
        /// The largest difference, as a share of the host's interval.
        share: f64,
        /// In how many boots they differ by more than 1%.
        boots: usize,
    },
    /// The same operation is another mechanism in the bare row, by design.
    OtherMechanism(&'static str),
    /// It did another amount of work than the bare row, so it has no ratio.
    OtherSize {
        /// What it did.
        here: Work,
        /// What the bare row did.
        bare: Work,
    },
    /// Some boots gave no figure.
    BootsLost {
        /// How many.
        boots: usize,
        /// Why the first of them did not.
        reason: String,
    },
    /// A figure on the instruction clock that was measured once only.
    Unproved,
    /// The host did something else, too, while boots were measured.
    Unrest {
        /// What, and how much of it in the first such boot.
        what: BTreeMap<String, String>,
        /// In how many boots there was any of it.
        boots: usize,
    },
}

impl Flag {
    /// The name programs read.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::BelowResolution(_) => "below-resolution",
            Self::ClocksDisagree { .. } => "clocks-disagree",
            Self::OtherMechanism(_) => "other-mechanism",
            Self::OtherSize { .. } => "other-size",
            Self::BootsLost { .. } => "boots-lost",
            Self::Unproved => "unproved",
            Self::Unrest { .. } => "unrest",
        }
    }
}

impl Summary {
    /// Whether any cell failed in this way.
    pub fn has_failure(&self, kind: FailureKind) -> bool {
        let failed =
            |cell: &Cell| matches!(&cell.value, Value::Failed(failure) if failure.kind == kind);
        self.cells.iter().any(failed)
    }
}

/// Returns the figures of `observations`.
pub fn summarise(observations: &[Observation]) -> Summary {
    let mut drafts: Vec<Draft> = Vec::new();
    for op in Op::ALL {
        for environment in EnvironmentId::ALL {
            drafts.extend(cell::draft(observations, environment, op));
        }
    }
    compare::require_equal_work(&mut drafts);
    compare::relate_to_bare(&mut drafts);
    Summary {
        cells: drafts.into_iter().map(|draft| draft.cell).collect(),
        timelines: timeline::timelines(observations),
        facts: facts(observations),
        problems: problems(observations),
    }
}

/// The facts of each environment's first boot.
fn facts(observations: &[Observation]) -> BTreeMap<EnvironmentId, BTreeMap<String, String>> {
    let mut facts = BTreeMap::new();
    for seen in observations {
        facts
            .entry(seen.environment)
            .or_insert_with(|| seen.facts.clone());
    }
    facts
}

fn problems(observations: &[Observation]) -> BTreeMap<(EnvironmentId, String), usize> {
    let mut problems = BTreeMap::new();
    for seen in observations {
        let mut told: Vec<&String> = seen.problems.iter().collect();
        told.sort();
        told.dedup();
        for problem in told {
            let key = (seen.environment, problem.clone());
            *problems.entry(key).or_default() += 1;
        }
    }
    problems
}
