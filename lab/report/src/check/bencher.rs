//! New figures in the Bencher Metric Format.

use crate::formats::{Measure, Metric};
use trapline_gate::{Comparison, Row};

/// Formats one JSON object.
pub fn bencher(comparison: &Comparison) -> String {
    crate::formats::bencher(comparison.rows.iter().filter_map(measured))
}

fn measured(row: &Row) -> Option<(String, Metric)> {
    let metric = Metric {
        measure: Measure::of(&row.unit)?,
        value: row.new?,
        interval: None,
    };
    Some((format!("{} {}", row.config, row.operation), metric))
}
