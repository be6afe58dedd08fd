//! Records of a report: one for each cell, figures unformatted, names as in the JSON format.

use crate::Report;
use trapline_stats::{Cell, Figure, Value};

pub const HEADER: &[&str] = &[
    "environment",
    "workload",
    "operation",
    "clock",
    "unit",
    "estimate",
    "low",
    "high",
    "min",
    "max",
    "p50",
    "p90",
    "p99",
    "samples",
    "boots",
    "ratio",
    "ratio_low",
    "ratio_high",
    "exits",
    "host_cpu_ns",
    "flags",
    "skip",
    "failure",
    "failed",
    "variant",
    "level",
    "ratio_level",
];

/// Columns that only a figure fills.
const OF_FIGURES: usize = 16;

/// Returns a record for each cell.
pub fn records(report: &Report, cells: &[Cell]) -> Vec<Vec<String>> {
    let overrides = report.overrides.to_string();
    cells.iter().map(|cell| line(cell, &overrides)).collect()
}

fn line(cell: &Cell, overrides: &str) -> Vec<String> {
    let names = [
        cell.environment.name(),
        cell.op.workload().name(),
        cell.op.name(),
        cell.clock.name(),
        cell.unit,
    ];
    let mut line: Vec<String> = names.map(str::to_owned).to_vec();
    let (figure, [skip, failure, failed]) = match &cell.value {
        Value::Measured(figure) => (figure_fields(figure), ["", "", ""]),
        Value::Skip(reason) => (empty_fields(), [reason.as_str(), "", ""]),
        Value::Failed(failure) => {
            let reason = failure.reason.as_str();
            (empty_fields(), ["", failure.kind.name(), reason])
        }
    };
    line.extend(figure);
    line.extend([skip, failure, failed, overrides].map(str::to_owned));
    line.extend(levels(cell));
    line
}

/// The levels of the intervals of the figure and of its ratio.
fn levels(cell: &Cell) -> [String; 2] {
    let figure = cell.value.figure();
    let ratio = figure.and_then(|figure| figure.ratio?.interval);
    let levels = [
        figure.and_then(|figure| Some(figure.interval?.level)),
        ratio.map(|ratio| ratio.level),
    ];
    levels.map(|level| level.map_or(String::new(), |level| level.to_string()))
}

fn empty_fields() -> Vec<String> {
    vec![String::new(); OF_FIGURES]
}

fn figure_fields(figure: &Figure) -> Vec<String> {
    let optional = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    let flags: Vec<&str> = figure.flags.iter().map(|flag| flag.name()).collect();
    vec![
        figure.estimate.to_string(),
        optional(figure.interval.map(|one| one.low)),
        optional(figure.interval.map(|one| one.high)),
        figure.min.to_string(),
        figure.max.to_string(),
        figure.p50.to_string(),
        figure.p90.to_string(),
        figure.p99.to_string(),
        figure.samples.to_string(),
        figure.boots.to_string(),
        optional(figure.ratio.map(|ratio| ratio.estimate)),
        optional(figure.ratio.and_then(|ratio| Some(ratio.interval?.low))),
        optional(figure.ratio.and_then(|ratio| Some(ratio.interval?.high))),
        optional(figure.exits),
        optional(figure.host_cpu_ns),
        flags.join(" "),
    ]
}
