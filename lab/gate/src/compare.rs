//! What became of each figure. An operation that has lost its figure, or gained
//! one, has changed; one whose digits differ between two runs of now has no
//! figure to compare at all.

use crate::baseline::{fastest, Baseline, Kept};
use crate::explained::Explained;
use crate::facts::{causes, Cause};
use crate::tolerance::Tolerances;
use std::collections::BTreeSet;
use trapline_abi::Op;
use trapline_model::{names, EnvironmentId};
use trapline_stats::{Cell, FailureKind, Summary, Value};

/// A baseline against figures of now.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What differs beside figures, the likeliest cause of a change first.
    pub causes: Vec<Cause>,
    /// What else somebody should know who reads it.
    pub notes: Vec<String>,
    /// Every operation that had a figure or has one, in table order.
    pub rows: Vec<Row>,
}

/// One operation in one environment.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Where.
    pub environment: EnvironmentId,
    /// `workload/operation`.
    pub operation: String,
    /// Of both figures.
    pub unit: String,
    /// The figure of the baseline.
    pub old: Option<f64>,
    /// The figure of now.
    pub new: Option<f64>,
    /// What became of it.
    pub verdict: Verdict,
    /// Why there is no new figure.
    pub reason: Option<String>,
    /// Which functions gained or lost, where that is known.
    pub explained: Option<Explained>,
}

/// What became of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has the same digits.
    Same,
    /// It has others, within what is let pass.
    Tolerated,
    /// It has others.
    Changed,
    /// There is none any more.
    Vanished,
    /// There was none.
    Appeared,
    /// Two runs of now disagree.
    Undetermined,
}

impl Verdict {
    /// The name programs read.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Tolerated => "tolerated",
            Self::Changed => "changed",
            Self::Vanished => "vanished",
            Self::Appeared => "appeared",
            Self::Undetermined => "undetermined",
        }
    }

    /// Whether nobody needs to look at it.
    pub const fn is_fine(self) -> bool {
        matches!(self, Self::Same | Self::Tolerated)
    }
}

/// What a comparison comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every figure is the same, or within its tolerance.
    Same,
    /// At least one is not.
    Changed,
    /// At least one has no digits of its own.
    Undetermined,
}

impl Outcome {
    /// The name programs read.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Changed => "changed",
            Self::Undetermined => "undetermined",
        }
    }
}

impl Row {
    /// The new figure less the old, where there are both.
    pub fn difference(&self) -> Option<f64> {
        Some(self.new? - self.old?)
    }

    /// That in percent of the old figure, where that is not zero.
    pub fn percent(&self) -> Option<f64> {
        let old = self.old.filter(|old| *old != 0.0)?;
        Some(self.difference()? / old.abs() * 100.0)
    }
}

impl Comparison {
    /// The rows that somebody has to look at.
    pub fn changes(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.verdict.is_fine())
    }

    /// How many rows came to this.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows
            .iter()
            .filter(|row| row.verdict == verdict)
            .count()
    }

    /// What it all comes to.
    pub fn outcome(&self) -> Outcome {
        match () {
            () if self.count(Verdict::Undetermined) > 0 => Outcome::Undetermined,
            () if self.changes().next().is_some() => Outcome::Changed,
            () => Outcome::Same,
        }
    }
}

/// Compares what is kept with what was measured now.
pub fn compare(baseline: &Baseline, summary: &Summary, tolerances: &Tolerances) -> Comparison {
    let mut rows = Vec::new();
    for id in EnvironmentId::ALL {
        if let Some(kept) = baseline.environments.get(id.name()) {
            rows.extend(environment_rows(id, kept, summary, tolerances));
        }
    }
    Comparison {
        causes: causes(baseline, summary),
        notes: Vec::new(),
        rows,
    }
}

fn environment_rows(
    id: EnvironmentId,
    kept: &Kept,
    summary: &Summary,
    tolerances: &Tolerances,
) -> Vec<Row> {
    let cells: Vec<&Cell> = summary
        .cells
        .iter()
        .filter(|cell| cell.environment == id)
        .collect();
    let of_now = cells.iter().map(|cell| names::path(cell.op));
    let operations: BTreeSet<String> = kept.operations().cloned().chain(of_now).collect();
    let mut rows: Vec<Row> = operations
        .into_iter()
        .filter_map(|operation| {
            let cell = cells.iter().find(|cell| names::path(cell.op) == operation);
            row(id, operation, kept, cell.copied(), tolerances)
        })
        .collect();
    rows.sort_by_key(|row| position(&row.operation));
    rows
}

/// Where tables show an operation; one of another version stands last.
fn position(operation: &str) -> usize {
    let found = Op::ALL.iter().position(|op| names::path(*op) == operation);
    found.unwrap_or(Op::ALL.len())
}

/// `None` where there neither was nor is a figure.
fn row(
    environment: EnvironmentId,
    operation: String,
    kept: &Kept,
    cell: Option<&Cell>,
    tolerances: &Tolerances,
) -> Option<Row> {
    let old = kept.figure(&operation);
    let new = cell.and_then(|cell| Some((cell.value.figure()?.estimate, cell.unit)));
    let verdict = match (old, new) {
        _ if cell.is_some_and(is_undetermined) => Verdict::Undetermined,
        (None, None) => return None,
        (Some(_), None) => Verdict::Vanished,
        (None, Some(_)) => Verdict::Appeared,
        (Some((_, was)), Some((_, is))) if was != is => Verdict::Changed,
        (Some((old, _)), Some((new, _))) => {
            let now = cell.and_then(|cell| Some(fastest(cell.op, cell.value.figure()?)));
            let is_fastest_kept = kept.fastest(&operation) == now;
            // The bare machine has no kernel, and takes no interrupt that is not asked for.
            let may_be_interrupts = is_fastest_kept && !environment.is_bare();
            judge(&operation, (old, new), may_be_interrupts, tolerances)
        }
    };
    let unit = new.or(old).map_or("", |(_, unit)| unit).to_owned();
    Some(Row {
        environment,
        unit,
        old: old.map(|(figure, _)| figure),
        new: new.map(|(figure, _)| figure),
        verdict,
        reason: new.is_none().then(|| why_not(cell)),
        explained: None,
        operation,
    })
}

/// `may_be_interrupts`: the fastest batch is the same, so what moved the mean may be that
/// interrupts of the machine fall into other batches.
fn judge(
    operation: &str,
    (old, new): (f64, f64),
    may_be_interrupts: bool,
    tolerances: &Tolerances,
) -> Verdict {
    let is_allowed = match may_be_interrupts {
        true => tolerances.allow_interrupts(operation, old, new),
        false => tolerances.allow(operation, old, new),
    };
    match () {
        () if old == new => Verdict::Same,
        () if is_allowed => Verdict::Tolerated,
        () => Verdict::Changed,
    }
}

fn is_undetermined(cell: &Cell) -> bool {
    matches!(&cell.value, Value::Failed(failure) if failure.kind == FailureKind::NotDeterministic)
}

fn why_not(cell: Option<&Cell>) -> String {
    match cell.map(|cell| &cell.value) {
        Some(Value::Failed(failure)) => failure.reason.clone(),
        Some(Value::Skip(reason)) => reason.clone(),
        Some(Value::Measured(_)) => String::new(),
        None => "this version has no such operation".to_owned(),
    }
}
