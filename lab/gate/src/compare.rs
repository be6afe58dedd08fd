//! Verdicts on figures. An operation that has lost or gained its figure has changed. One whose digits
//! differ between two new boots has no figure.

use crate::baseline::{fastest, Baseline, EnvironmentBaseline};
use crate::facts::{causes, Cause};
use crate::kept_profile::FunctionChanges;
use crate::layouts::LayoutChange;
use crate::tolerance::Tolerances;
use std::collections::BTreeSet;
use trapline_model::{Config, Operation};
use trapline_stats::{Cell, FailureKind, Summary, Value};

/// Comparison of a baseline with new figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Differences of facts, the likeliest cause of a change first.
    pub causes: Vec<Cause>,
    /// Further remarks.
    pub notes: Vec<String>,
    /// All operations with an old or a new figure, and those that are skipped, in table order.
    pub rows: Vec<Row>,
}

/// One operation in one configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The configuration.
    pub config: Config,
    /// `workload/operation`.
    pub operation: String,
    /// Unit of both figures.
    pub unit: String,
    /// The figure of the baseline.
    pub old: Option<f64>,
    /// The new figure.
    pub new: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
    /// Reason for a missing new figure, or for a change that the figure does not show.
    pub reason: Option<String>,
    /// Functions whose counts differ, if both profiles are known.
    pub explained: Option<FunctionChanges>,
}

/// Verdict on a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The digits are equal.
    Same,
    /// The difference is within the tolerance.
    Tolerated,
    /// The figures differ.
    Changed,
    /// There is no new figure.
    Vanished,
    /// There is no old figure.
    Appeared,
    /// Two new boots disagree.
    Undetermined,
    /// The operation was requested, and is skipped as it was in the baseline.
    Skipped,
}

impl Verdict {
    /// Returns the name in JSON output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Tolerated => "tolerated",
            Self::Changed => "changed",
            Self::Vanished => "vanished",
            Self::Appeared => "appeared",
            Self::Undetermined => "undetermined",
            Self::Skipped => "skipped",
        }
    }

    /// Returns true if the figure passes the gate.
    pub const fn is_accepted(self) -> bool {
        matches!(self, Self::Same | Self::Tolerated | Self::Skipped)
    }
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All figures are the same or within their tolerance.
    Same,
    /// At least one figure has changed.
    Changed,
    /// At least one figure is undetermined.
    Undetermined,
}

impl Outcome {
    /// Returns the name in JSON output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Changed => "changed",
            Self::Undetermined => "undetermined",
        }
    }
}

impl Row {
    /// Returns the new figure less the old.
    pub fn difference(&self) -> Option<f64> {
        Some(self.new? - self.old?)
    }

    /// Returns the difference in percent of the old figure; `None` if that is 0.
    pub fn percent(&self) -> Option<f64> {
        let old = self.old.filter(|old| *old != 0.0)?;
        Some(self.difference()? / old.abs() * 100.0)
    }
}

impl Comparison {
    /// Returns the rows that do not pass the gate.
    pub fn changes(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.verdict.is_accepted())
    }

    /// Returns the number of rows with a verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows
            .iter()
            .filter(|row| row.verdict == verdict)
            .count()
    }

    /// Returns the result.
    pub fn outcome(&self) -> Outcome {
        if self.count(Verdict::Undetermined) > 0 {
            Outcome::Undetermined
        } else if self.changes().next().is_some() {
            Outcome::Changed
        } else {
            Outcome::Same
        }
    }
}

/// Compares a baseline with new figures.
pub fn compare(baseline: &Baseline, summary: &Summary, tolerances: &Tolerances) -> Comparison {
    let mut rows = Vec::new();
    // Parsing has checked the names.
    for config in baseline.configs().unwrap_or_default() {
        rows.extend(rows_of(&config, baseline, summary, tolerances));
    }
    Comparison {
        causes: causes(
            |config| Some(&baseline.environments.get(&config.to_string())?.facts),
            &summary.facts,
        ),
        notes: Vec::new(),
        rows,
    }
}

fn rows_of(
    config: &Config,
    baseline: &Baseline,
    summary: &Summary,
    tolerances: &Tolerances,
) -> Vec<Row> {
    let kept = &baseline.environments[&config.to_string()];
    let cells: Vec<&Cell> = summary
        .cells
        .iter()
        .filter(|cell| cell.config == *config)
        .collect();
    let of_now = cells.iter().map(|cell| cell.op.path());
    let operations: BTreeSet<String> = kept
        .operations()
        .chain(kept.skipped.keys())
        .cloned()
        .chain(of_now)
        .collect();
    let mut rows: Vec<Row> = operations
        .into_iter()
        .filter_map(|operation| {
            let cell = cells.iter().find(|cell| cell.op.path() == operation);
            let layouts = LayoutChange::of(baseline, summary, config, &operation);
            let allowed = Allowed {
                tolerances,
                layouts,
                raw_layouts: LayoutChange::of_raw(baseline, summary, config, &operation),
            };
            row(config, operation, kept, cell.copied(), allowed)
        })
        .collect();
    rows.sort_by_key(|row| position(&row.operation));
    rows
}

/// Returns the position of an operation in tables; one of another version is last.
fn position(operation: &str) -> (bool, Option<(usize, Operation)>) {
    let known = Operation::from_path(operation);
    (known.is_none(), known.map(Operation::display_position))
}

/// Differences that are no change.
#[derive(Clone, Copy)]
struct Allowed<'a> {
    tolerances: &'a Tolerances,
    layouts: Option<LayoutChange>,
    /// The same of figures with what is excluded.
    raw_layouts: Option<LayoutChange>,
}

impl Allowed<'_> {
    /// `may_be_interrupts`: the fastest batch is the same, so the mean may differ only because interrupts of the
    /// machine fall into other batches. Several layouts show by how much they change it.
    fn allow(self, operation: &str, (old, new): (f64, f64), may_be_interrupts: bool) -> bool {
        match self.layouts {
            Some(layouts) if !self.tolerances.has(operation) => layouts.allows(new),
            _ if may_be_interrupts => self.tolerances.allow_interrupts(operation, old, new),
            _ => self.tolerances.allow(operation, old, new),
        }
    }

    /// The same for figures with what is excluded, which tolerances do not concern.
    fn allow_raw(self, operation: &str, (old, new): (f64, f64), may_be_interrupts: bool) -> bool {
        match self.raw_layouts {
            _ if old == new => true,
            Some(layouts) => layouts.allows(new),
            None if may_be_interrupts => {
                Tolerances::default().allow_interrupts(operation, old, new)
            }
            None => false,
        }
    }
}

/// Returns `None` for a failure without an old figure.
fn row(
    config: &Config,
    operation: String,
    kept: &EnvironmentBaseline,
    cell: Option<&Cell>,
    allowed: Allowed<'_>,
) -> Option<Row> {
    let old = kept.figure(&operation);
    let new = cell.and_then(|cell| Some((cell.value.figure()?.estimate, cell.unit)));
    let verdict = match (old, new) {
        _ if cell.is_some_and(is_undetermined) => Verdict::Undetermined,
        (None, None) if cell.is_none_or(is_skipped) => Verdict::Skipped,
        (None, None) => return None,
        (Some(_), None) => Verdict::Vanished,
        (None, Some(_)) => Verdict::Appeared,
        (Some((_, was)), Some((_, is))) if was != is => Verdict::Changed,
        (Some((old, _)), Some((new, _))) => {
            let now = cell.and_then(|cell| Some(fastest(cell.op, cell.value.figure()?)));
            let is_fastest_kept = kept.fastest(&operation) == now;
            // The bare machine has no kernel and takes only requested interrupts.
            let may_be_interrupts = is_fastest_kept && !config.environment.is_bare();
            match allowed.allow(&operation, (old, new), may_be_interrupts) {
                _ if old == new => Verdict::Same,
                true => Verdict::Tolerated,
                false => Verdict::Changed,
            }
        }
    };
    let unit = new.or(old).map_or("", |(_, unit)| unit).to_owned();
    let raw = cell.and_then(|cell| cell.value.figure()?.raw);
    let may_be_interrupts = verdict != Verdict::Same;
    let was = kept.raw.get(&operation).copied();
    let raw = raw_change(&operation, was.zip(raw), allowed, may_be_interrupts);
    let (verdict, raw) = match raw {
        Some(change) if verdict.is_accepted() => (Verdict::Changed, Some(change)),
        _ => (verdict, None),
    };
    Some(Row {
        config: config.clone(),
        unit,
        old: old.map(|(figure, _)| figure),
        new: new.map(|(figure, _)| figure),
        verdict,
        reason: match new {
            None => Some(missing_reason(&operation, kept, cell)),
            Some(_) => raw,
        },
        explained: None,
        operation,
    })
}

/// Describes how a figure with what is excluded has changed; `None` if it has not, or by no more than other layouts or, if
/// that `may_be_interrupts`, interrupts change it.
fn raw_change(
    operation: &str,
    figures: Option<(f64, f64)>,
    allowed: Allowed<'_>,
    may_be_interrupts: bool,
) -> Option<String> {
    let (old, new) = figures?;
    let is_allowed = allowed.allow_raw(operation, (old, new), may_be_interrupts);
    (!is_allowed)
        .then(|| format!("{old:.3} -> {new:.3} with what finds the length of instructions"))
}

fn is_undetermined(cell: &Cell) -> bool {
    matches!(&cell.value, Value::Failed(failure) if failure.kind == FailureKind::NotDeterministic)
}

fn is_skipped(cell: &Cell) -> bool {
    matches!(cell.value, Value::Skip(_))
}

fn missing_reason(operation: &str, kept: &EnvironmentBaseline, cell: Option<&Cell>) -> String {
    match cell.map(|cell| &cell.value) {
        Some(Value::Failed(failure)) => failure.reason.clone(),
        Some(Value::Skip(reason)) => reason.clone(),
        Some(Value::Measured(_)) => String::new(),
        None => match kept.skipped.get(operation) {
            Some(reason) => reason.clone(),
            None => "this version has no such operation".to_owned(),
        },
    }
}
