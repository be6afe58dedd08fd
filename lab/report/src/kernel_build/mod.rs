//! Duration of kernel builds by environment and by number and placement of CPUs, with the spread, a
//! native row and computed percentages.
//!
//! All builds must produce the same object files; a build with other files has failed.

pub(crate) mod json;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use crate::document::Document;
use std::collections::BTreeMap;
use trapline_model::kernel_build::{Build, BuildFigures, BuildOutcome, Column, Size, OF_ALL};
use trapline_model::{Clock, EnvironmentId};
use trapline_stats::paired::{paired_ratio, PairedRatio};
use trapline_stats::Sorted;

/// Clocks that differ by more than this share disagree.
const AGREEMENT: f64 = 0.01;

/// Returns the error of the clock of the guest's Linux, as a share of the time; an instruction of a
/// simulated machine is a nanosecond of its time.
fn off(done: &BuildFigures) -> f64 {
    (done.own_ns as f64 - done.took as f64) / (done.took as f64).max(1.0)
}

/// All builds of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// The cells that there are.
    cells: BTreeMap<(EnvironmentId, Column), Cell>,
    /// Facts about the builds.
    pub(crate) facts: BTreeMap<String, String>,
    size: Size,
}

/// The outcome of all builds of an environment on the same CPUs.
#[derive(Clone, Debug, Default, PartialEq)]
struct Cell {
    /// The builds that were done, with their rounds.
    done: Vec<(u32, BuildFigures)>,
    skipped: Option<String>,
    failed: Option<String>,
}

impl Cell {
    /// The times of its builds, if it has any and all of them count.
    fn took(&self) -> Option<Sorted> {
        let usable = self.failed.is_none();
        let all = self.done.iter().filter(|_| usable);
        Sorted::new(all.map(|(_, done)| done.took as f64).collect())
    }

    /// The same with their rounds.
    fn rounds(&self) -> Vec<(u32, f64)> {
        let usable = self.failed.is_none();
        let all = self.done.iter().filter(|_| usable);
        all.map(|(round, done)| (*round, done.took as f64))
            .collect()
    }

    /// The largest difference of its clocks, if they disagree.
    fn disagreement(&self) -> Option<f64> {
        let off = self.done.iter().map(|(_, done)| off(done));
        let most = off.max_by(|one, other| one.abs().total_cmp(&other.abs()));
        most.filter(|off| off.abs() > AGREEMENT)
    }

    /// Returns true if builds on an exact clock took different times.
    fn wavers(&self) -> bool {
        let first = self.done.first().map(|(_, done)| done.took);
        self.done.iter().any(|(_, done)| Some(done.took) != first)
    }
}

impl Matrix {
    /// Collects builds in the order in which they were done.
    pub fn new(size: Size, builds: &[Build]) -> Self {
        let reference = builds.iter().find_map(|build| match &build.outcome {
            BuildOutcome::Done(done) => {
                Some((done, build.planned.environment, build.planned.column))
            }
            _ => None,
        });
        let mut cells: BTreeMap<_, Cell> = BTreeMap::new();
        for build in builds {
            let place = (build.planned.environment, build.planned.column);
            let cell = cells.entry(place).or_default();
            match &build.outcome {
                BuildOutcome::Done(done) => {
                    let unequal = reference.and_then(|known| unequal(done, known));
                    cell.failed = cell.failed.take().or(unequal);
                    cell.done.push((build.planned.round, done.clone()));
                }
                BuildOutcome::Skipped(reason) => cell.skipped = Some(reason.clone()),
                BuildOutcome::Failed(reason) => cell.failed = Some(reason.clone()),
            }
        }
        Self {
            cells,
            facts: facts_of(builds),
            size,
        }
    }

    /// Returns the document of the builds; `version` is Trapline's.
    pub fn document(&self, version: &str) -> Document {
        Document {
            command: "trapline run",
            sections: table::sections(self),
            object: json::object(self, version),
            ..Document::default()
        }
    }

    /// Returns true if no build failed.
    pub fn is_good(&self) -> bool {
        self.cells.values().all(|cell| cell.failed.is_none())
    }

    /// Returns true if there is a figure.
    pub fn has_figures(&self) -> bool {
        self.cells.values().any(|cell| cell.took().is_some())
    }

    /// Returns true if the same build on an exact clock took another time.
    pub fn wavers(&self) -> bool {
        let exact = self
            .cells
            .iter()
            .filter(|((id, _), _)| id.clock().is_exact());
        exact.into_iter().any(|(_, cell)| cell.wavers())
    }

    /// The environments that were to build on a clock.
    pub(crate) fn environments(&self, clock: Clock) -> Vec<EnvironmentId> {
        let mut all: Vec<_> = self.cells.keys().map(|(id, _)| *id).collect();
        all.dedup();
        all.retain(|id| id.clock() == clock);
        all
    }

    fn columns(&self, clock: Clock) -> Vec<Column> {
        let of_clock = self.cells.keys().filter(|(id, _)| id.clock() == clock);
        let mut all: Vec<_> = of_clock.map(|(_, column)| *column).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn took(&self, environment: EnvironmentId, column: Column) -> Option<Sorted> {
        self.cells.get(&(environment, column))?.took()
    }

    /// The ratio of a cell to another, over the rounds that built both.
    fn ratio(
        &self,
        cell: (EnvironmentId, Column),
        base: (EnvironmentId, Column),
    ) -> Option<PairedRatio> {
        let rounds = |place| self.cells.get(&place).map(Cell::rounds);
        paired_ratio(&rounds(cell)?, &rounds(base)?)
    }

    /// The ratio to the same environment with one CPU of its own.
    fn ratio_to_base(&self, environment: EnvironmentId, column: Column) -> Option<PairedRatio> {
        self.ratio((environment, column), (environment, Column::BASE))
    }

    /// The ratio to the environment without virtualization, on the same CPUs.
    pub(crate) fn ratio_to_native(
        &self,
        environment: EnvironmentId,
        column: Column,
    ) -> Option<PairedRatio> {
        let native = native(environment.clock());
        let other = environment != native;
        other.then(|| self.ratio((environment, column), (native, column)))?
    }
}

/// Returns the facts about the builds: common ones once, the others by environment.
fn facts_of(builds: &[Build]) -> BTreeMap<String, String> {
    let facts = builds.iter().flat_map(|build| {
        let environment = build.planned.environment;
        build.facts.iter().map(move |(name, value)| {
            let name = if name.starts_with(OF_ALL) {
                name.clone()
            } else {
                format!("{environment} {name}")
            };
            (name, value.clone())
        })
    });
    facts.collect()
}

/// The environment without virtualization that has a Linux.
pub(crate) fn native(clock: Clock) -> EnvironmentId {
    clock.bare_linux()
}

/// Returns the difference to the object files of the first build, if there is one.
fn unequal(done: &BuildFigures, known: (&BuildFigures, EnvironmentId, Column)) -> Option<String> {
    let (first, environment, column) = known;
    (done.proof != first.proof).then(|| {
        let digits = |proof: &str| proof.chars().take(12).collect::<String>();
        format!(
            "object files differ from those of {environment} {column}: {} object files with symbols \
             {}, not {} with {}",
            done.objects,
            digits(&done.proof),
            first.objects,
            digits(&first.proof)
        )
    })
}
