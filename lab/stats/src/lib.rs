//! Statistics: raw samples -> values -> figures -> comparisons.
//!
//! A batch becomes a value ([`value`]). The values of a boot become its figure: their median on the wall
//! clock, their mean on an exact clock. The figures of all boots become an estimate with its interval
//! ([`order`]), shown as a [`Cell`] of a [`Summary`]. [`verdict`] tests whether two configurations
//! differ, [`history`] whether the runs of a store do.
//!
//! All functions are pure: equal observations and seeds give equal digits. They touch no file, clock or
//! process, so a report can be rebuilt from stored samples. No sample is dropped.
#![forbid(unsafe_code)]

pub mod aa_test;
pub mod block;
mod bound;
pub mod builds;
mod cell;
pub mod common_factor;
pub mod compare;
pub mod components;
pub mod difference;
mod equal_work;
mod exact;
pub mod history;
pub mod host_use;
pub mod hosts;
pub mod irq;
pub mod layouts;
pub mod modes;
pub mod order;
pub mod packets;
pub mod paired;
pub mod rng;
pub mod serial;
mod sorted;
mod timeline;
pub mod value;
pub mod verdict;

pub use bound::share_interval;
pub use sorted::{least_count, Sorted};
pub use timeline::{BootTimeline, StageTime};

use cell::ComparableCell;
use order::Interval;
use std::collections::{BTreeMap, BTreeSet};
use trapline_model::{Clock, Config, Observation, Operation, Outcome};
use value::Work;

/// Figures of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Cells of all operations with an outcome: operations in table order, within them configurations.
    pub cells: Vec<Cell>,
    /// Boot stages of each configuration.
    pub timelines: Vec<BootTimeline>,
    /// Facts of each configuration's first boot.
    pub facts: BTreeMap<Config, BTreeMap<String, String>>,
    /// Problems that did not end a boot, with the number of boots that had them.
    pub problems: BTreeMap<(Config, String), usize>,
    /// CPU time and energy of the host during boots.
    pub host_use: Vec<host_use::HostUse>,
}

/// One operation in one configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The configuration.
    pub config: Config,
    /// The operation.
    pub op: Operation,
    /// Clock of the figures.
    pub clock: Clock,
    /// Unit of the figures ([`value::unit`]), except `exits`, `host_cpu_ns` and ratios.
    pub unit: &'static str,
    /// The figure, or the reason for its absence.
    pub value: Value,
}

/// Content of a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A figure.
    Measured(Box<Figure>),
    /// The operation cannot be measured in this configuration, with the reason.
    Skip(String),
    /// The measurement failed.
    Failed(Failure),
}

/// A failed measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Kind of failure.
    pub kind: FailureKind,
    /// Description for people.
    pub reason: String,
}

/// Kinds of failed measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// Boots on an exact clock gave different digits.
    NotDeterministic,
    /// The checksums of equal work differ.
    UnequalWork,
    /// The guest failed, stopped early or sent invalid records.
    Broken,
}

impl FailureKind {
    /// Returns the name in JSON output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotDeterministic => "not-deterministic",
            Self::UnequalWork => "unequal-work",
            Self::Broken => "broken",
        }
    }
}

impl Value {
    /// Returns the figure of a measured cell.
    pub fn figure(&self) -> Option<&Figure> {
        match self {
            Self::Measured(figure) => Some(figure),
            _ => None,
        }
    }

    pub(crate) fn failed(kind: FailureKind, reason: String) -> Self {
        Self::Failed(Failure { kind, reason })
    }
}

/// A figure with its precision and caveats.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// On the wall clock the median, over boots, of each boot's median batch. On an exact
    /// clock the mean over all batches of the first boot, weighted by operations
    /// ([`value::Calibration::mean`]); the other boots gave the same.
    pub estimate: f64,
    /// Interval of the estimate over boots ([`order::median_interval`]): of level 0.9375 for five
    /// boots, at least 0.95 from six on. `None` for a single boot, and on an exact clock, whose figures
    /// are reproduced and not estimated.
    pub interval: Option<Interval>,
    /// The estimate with what is excluded ([`trapline_model::Sample::excluded`]); `None` if nothing is.
    pub raw: Option<f64>,
    /// Smallest batch.
    pub min: f64,
    /// Largest batch.
    pub max: f64,
    /// Median of all batches (nearest rank).
    pub p50: f64,
    /// 90th percentile of all batches; `None` for fewer than [`least_count`].
    pub p90: Option<f64>,
    /// 99th percentile of all batches, likewise.
    pub p99: Option<f64>,
    /// Number of batches in the percentiles.
    pub samples: usize,
    /// Number of boots in the estimate; on an exact clock, of boots that agreed.
    pub boots: usize,
    /// Number of hosts of these boots. On the wall clock several are the replicates ([`hosts`]): estimate, interval and ratio
    /// are over hosts.
    pub hosts: usize,
    /// Block and median of each of these boots, in order of blocks; of several hosts the number of each and its estimate. Empty
    /// on an exact clock.
    pub medians: Vec<(u32, f64)>,
    /// Ratio to the bare row of the same clock, if that has a figure, did the same amount of work,
    /// and neither is below resolution.
    pub ratio: Option<Ratio>,
    /// Exits per operation, or per megabyte for a rate: median over boots. `None` if they are not counted.
    pub exits: Option<f64>,
    /// Host CPU time per operation, or per megabyte for a rate, in nanoseconds: median over boots. `None`
    /// if it is unknown.
    pub host_cpu_ns: Option<f64>,
    /// Work of the guest between the batches, which is not part of the estimate. `None` if there was none.
    pub idle: Option<Idle>,
    /// Figures of several layouts of the machine's memory, this one among them ([`layouts::folded`]).
    pub layouts: Option<layouts::Layouts>,
    /// Components of the variance, on the wall clock.
    pub components: Option<components::Components>,
    /// Caveats.
    pub flags: Vec<Flag>,
}

impl Figure {
    /// Returns the resolution in the cell's unit if the figure is below it. The operation then costs less
    /// than that; the estimate is not significant.
    pub fn resolution(&self) -> Option<f64> {
        self.flags.iter().find_map(|flag| match flag {
            Flag::BelowResolution(limit) => Some(*limit),
            _ => None,
        })
    }

    /// Returns the number of boots that gave no figure, and of all boots.
    pub fn lost(&self) -> (usize, usize) {
        match self.boots_lost() {
            Some(Flag::BootsLost { boots, of, .. }) => (*boots, *of),
            _ => (0, self.boots),
        }
    }

    /// Returns the flag of a figure that some boots did not give.
    pub fn boots_lost(&self) -> Option<&Flag> {
        let is_lost = |flag: &&Flag| matches!(flag, Flag::BootsLost { .. });
        self.flags.iter().find(is_lost)
    }
}

/// Work of a guest between the batches that prepared them, per operation: medians over boots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Idle {
    /// Time in nanoseconds or instructions.
    pub time: f64,
    /// Memory written, in bytes.
    pub bytes: f64,
}

/// Ratio of a figure to that of the bare row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// On the wall clock the median, over the blocks that hold a boot of both, of the ratio of the two
    /// boots' medians; on an exact clock the ratio of the two figures.
    pub estimate: f64,
    /// Interval between two order statistics of the blocks' ratios. `None` for a single block, and on an
    /// exact clock.
    pub interval: Option<Interval>,
}

/// Caveat of a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Flag {
    /// The operation costs no more than the loop or the clock read around it: the figure is only an upper
    /// bound, this value in the cell's unit.
    BelowResolution(f64),
    /// Guest and host measured an interval of at least 5 ms and differ by more than 1%, and by more than
    /// the jitter of record delivery.
    ClocksDisagree {
        /// The largest difference, as a share of the host's interval.
        share: f64,
        /// Number of boots that differ by more than 1%.
        boots: usize,
    },
    /// The operation uses another mechanism in the bare row, by design.
    OtherMechanism(&'static str),
    /// The amount of work differs from that of the bare row, so there is no ratio.
    OtherSize {
        /// Work of this cell.
        here: Work,
        /// Work of the bare row.
        bare: Work,
    },
    /// Some boots gave no figure.
    BootsLost {
        /// Number of these boots.
        boots: usize,
        /// Number of all boots.
        of: usize,
        /// Reason of the first of them.
        reason: String,
    },
    /// A figure on an exact clock from one boot only, so that its reproducibility is not verified.
    Unproved,
    /// The figures of consecutive boots resemble each other more than independent ones do: the interval is too
    /// narrow.
    Autocorrelated,
    /// Other load on the host during boots.
    HostNoise {
        /// Kind of load and its amount in the first such boot.
        what: BTreeMap<String, String>,
        /// Number of boots with any of it.
        boots: usize,
    },
}

impl Flag {
    /// The names of all kinds.
    pub const NAMES: [&str; 8] = [
        "below-resolution",
        "clocks-disagree",
        "other-mechanism",
        "other-size",
        "boots-lost",
        "unproved",
        "host-noise",
        "autocorrelated",
    ];

    /// Returns whether it is about the ratio to the bare row.
    pub(crate) const fn is_of_ratio(&self) -> bool {
        matches!(self, Self::OtherMechanism(_) | Self::OtherSize { .. })
    }

    /// Returns the name in JSON output.
    pub const fn name(&self) -> &'static str {
        Self::NAMES[match self {
            Self::BelowResolution(_) => 0,
            Self::ClocksDisagree { .. } => 1,
            Self::OtherMechanism(_) => 2,
            Self::OtherSize { .. } => 3,
            Self::BootsLost { .. } => 4,
            Self::Unproved => 5,
            Self::HostNoise { .. } => 6,
            Self::Autocorrelated => 7,
        }]
    }
}

impl Summary {
    /// Returns true if any cell has a failure of this kind.
    pub fn has_failure(&self, kind: FailureKind) -> bool {
        let failed =
            |cell: &Cell| matches!(&cell.value, Value::Failed(failure) if failure.kind == kind);
        self.cells.iter().any(failed)
    }
}

/// Returns the figures of `observations`.
pub fn summarise(observations: &[Observation]) -> Summary {
    let all: Vec<&Observation> = observations.iter().collect();
    let hosts = hosts::by_host(observations);
    let mut cells = cells(&all);
    if hosts.len() > 1 {
        let of_hosts: Vec<Cell> = hosts
            .values()
            .flat_map(|boots| self::cells(boots))
            .collect();
        over_hosts(&mut cells, &of_hosts);
    }
    Summary {
        cells,
        timelines: timeline::timelines(observations),
        facts: facts(observations),
        problems: problems(observations),
        host_use: host_use::host_use(observations),
    }
}

/// Returns the cells of boots that are taken together.
fn cells(boots: &[&Observation]) -> Vec<Cell> {
    let configs: BTreeSet<&Config> = boots.iter().map(|boot| &boot.config).collect();
    let mut cells: Vec<ComparableCell> = Vec::new();
    for op in operations_of(boots.iter().copied()) {
        for config in &configs {
            cells.extend(ComparableCell::new(boots.iter().copied(), config, op));
        }
    }
    equal_work::require_equal_work(&mut cells);
    equal_work::add_bare_ratios(&mut cells);
    cells.into_iter().map(|one| one.cell).collect()
}

/// Replaces the figures of the wall clock by those over hosts.
fn over_hosts(cells: &mut [Cell], of_hosts: &[Cell]) {
    let is_measured = |cell: &&mut Cell| !cell.clock.is_exact() && cell.value.figure().is_some();
    for cell in cells.iter_mut().filter(is_measured) {
        let same = |other: &&Cell| (&other.config, other.op) == (&cell.config, cell.op);
        let of_hosts: Vec<&Cell> = of_hosts.iter().filter(same).collect();
        let of_boots = cell.value.figure();
        if let Some(figure) = of_boots.and_then(|of_boots| hosts::figure(of_boots, &of_hosts)) {
            cell.value = Value::Measured(Box::new(figure));
        }
    }
}

/// An outcome of one operation, with the boot it is from.
pub(crate) type BootOutcome<'a> = (&'a Observation, &'a Outcome);

/// Returns the operations with outcomes, in display order.
pub(crate) fn operations_of<'a>(
    boots: impl IntoIterator<Item = &'a Observation>,
) -> Vec<Operation> {
    let all = boots.into_iter().flat_map(|boot| &boot.operations);
    Operation::in_display_order(all.map(|one| one.op))
}

/// Returns the outcomes of `op` in the order of boots.
pub(crate) fn outcomes<'a>(
    boots: impl IntoIterator<Item = &'a Observation>,
    op: impl Into<Operation>,
) -> impl Iterator<Item = BootOutcome<'a>> {
    let op = op.into();
    boots.into_iter().flat_map(move |boot| {
        let of_op = boot.operations.iter().filter(move |one| one.op == op);
        of_op.map(move |one| (boot, &one.outcome))
    })
}

/// Returns the boots of `config`.
pub(crate) fn boots_of<'a>(
    observations: impl IntoIterator<Item = &'a Observation>,
    config: &'a Config,
) -> impl Iterator<Item = &'a Observation> {
    observations
        .into_iter()
        .filter(move |boot| boot.config == *config)
}

/// Returns the facts of each configuration's first boot.
fn facts(observations: &[Observation]) -> BTreeMap<Config, BTreeMap<String, String>> {
    let mut facts = BTreeMap::new();
    for boot in observations {
        facts
            .entry(boot.config.clone())
            .or_insert_with(|| boot.facts.clone());
    }
    facts
}

fn problems(observations: &[Observation]) -> BTreeMap<(Config, String), usize> {
    let mut problems = BTreeMap::new();
    for boot in observations {
        let distinct: BTreeSet<&String> = boot.problems.iter().collect();
        for problem in distinct {
            let key = (boot.config.clone(), problem.clone());
            *problems.entry(key).or_default() += 1;
        }
    }
    problems
}
