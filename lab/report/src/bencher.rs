//! The figures of reports in the Bencher Metric Format: a benchmark is an operation of a
//! contender, `kvm:memory=1G/exits/port-out`.

use crate::Report;
use trapline_ci::{Measure, Metric};
use trapline_model::{names, Contender};
use trapline_stats::Cell;

/// The figures of all reports as one JSON object. What is below resolution is in no figure.
pub fn bencher(reports: &[Report]) -> String {
    let figures = reports.iter().flat_map(|report| {
        let cells = report.summary.cells.iter();
        cells.filter_map(|cell| named(&report.contender(cell.environment), cell))
    });
    trapline_ci::bencher(figures)
}

/// A benchmark and its figure, where there is one that can be resolved.
pub(crate) fn named(contender: &Contender, cell: &Cell) -> Option<(String, Metric)> {
    let figure = cell.value.figure()?;
    if figure.resolution().is_some() {
        return None;
    }
    let metric = Metric {
        measure: Measure::of(cell.unit)?,
        value: figure.estimate,
        interval: figure.interval.map(|one| (one.low, one.high)),
    };
    Some((format!("{contender}/{}", names::path(cell.op)), metric))
}
