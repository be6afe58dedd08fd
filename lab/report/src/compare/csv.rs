//! Records of a comparison: one for each operation.

use super::{more_boots, CompareReport};
use trapline_stats::compare::Row;

pub const HEADER: &[&str] = &[
    "workload",
    "operation",
    "clock",
    "unit",
    "contender_a",
    "contender_b",
    "a",
    "b",
    "effect",
    "low",
    "high",
    "p",
    "q",
    "verdict",
    "blocks",
    "method",
    "more_boots",
    "reason",
    "decisive_level",
    "decisive_low",
    "decisive_high",
];

/// Returns a record for each operation.
pub fn records(compare: &CompareReport) -> Vec<Vec<String>> {
    compare.matches.iter().map(record).collect()
}

fn record(one: &Row) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let count = |value: Option<usize>| value.map_or_else(String::new, |value| value.to_string());
    let figure = |cell: &trapline_stats::Cell| number(cell.value.figure().map(|it| it.estimate));
    let comparison = one.outcome.as_ref().ok();
    let interval = comparison.and_then(|comparison| comparison.interval);
    let decisive = comparison.and_then(|comparison| comparison.decisive);
    let reason = one.outcome.as_ref().err().map(ToString::to_string);
    vec![
        one.op.workload().name().to_owned(),
        one.op.name().to_owned(),
        one.clock().name().to_owned(),
        one.a.unit.to_owned(),
        one.a.config.to_string(),
        one.b.config.to_string(),
        figure(&one.a),
        figure(&one.b),
        number(comparison.map(|comparison| comparison.effect)),
        number(interval.map(|interval| interval.low)),
        number(interval.map(|interval| interval.high)),
        number(comparison.and_then(|comparison| comparison.p)),
        number(comparison.and_then(|comparison| comparison.q)),
        comparison
            .map_or("undecided", |comparison| comparison.verdict.name())
            .to_owned(),
        count(comparison.map(|comparison| comparison.blocks)),
        comparison
            .map_or("", |comparison| comparison.method.name())
            .to_owned(),
        count(comparison.and_then(more_boots)),
        reason.unwrap_or_default(),
        number(decisive.map(|interval| interval.level)),
        number(decisive.map(|interval| interval.low)),
        number(decisive.map(|interval| interval.high)),
    ]
}
