//! Metrics of figures: a benchmark is an operation in an environment with its settings,
//! `kvm:memory=1G/exits/port-out`.

use crate::formats::{Measure, Metric};
use crate::Report;
use trapline_stats::Cell;

/// Returns the figures above the resolution.
pub fn metrics(report: &Report) -> Vec<(String, Metric)> {
    let cells = report.summary.cells.iter();
    cells.filter_map(metric).collect()
}

/// Returns the benchmark and the figure of a cell, if it is above the resolution.
pub(crate) fn metric(cell: &Cell) -> Option<(String, Metric)> {
    let figure = cell.value.figure()?;
    if figure.resolution().is_some() {
        return None;
    }
    let metric = Metric {
        measure: Measure::of(cell.unit)?,
        value: figure.estimate,
        interval: figure.interval.map(|one| (one.low, one.high)),
    };
    Some((format!("{}/{}", cell.config, cell.op.path()), metric))
}
