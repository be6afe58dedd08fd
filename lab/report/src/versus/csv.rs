//! The comparison for spreadsheets: one line an operation.

use super::{more_boots, Versus};
use trapline_stats::contest::Match;

const HEADER: [&str; 21] = [
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

/// The comparison as CSV, with a header; what is not known is empty.
pub fn csv(versus: &Versus) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing lines of equal length to memory cannot fail.
    let _ = writer.write_record(HEADER);
    for one in &versus.matches {
        let _ = writer.write_record(line(one));
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

fn line(one: &Match) -> [String; HEADER.len()] {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let count = |value: Option<usize>| value.map_or_else(String::new, |value| value.to_string());
    let figure = |cell: &trapline_stats::Cell| number(cell.value.figure().map(|it| it.estimate));
    let told = one.outcome.as_ref().ok();
    let interval = told.and_then(|told| told.interval);
    let decisive = told.and_then(|told| told.decisive);
    let reason = one.outcome.as_ref().err().map(ToString::to_string);
    [
        one.op.workload().name().to_owned(),
        one.op.name().to_owned(),
        one.clock().name().to_owned(),
        one.a.unit.to_owned(),
        one.contenders[0].to_string(),
        one.contenders[1].to_string(),
        figure(&one.a),
        figure(&one.b),
        number(told.map(|told| told.effect)),
        number(interval.map(|interval| interval.low)),
        number(interval.map(|interval| interval.high)),
        number(told.and_then(|told| told.p)),
        number(told.and_then(|told| told.q)),
        told.map_or("undecided", |told| told.verdict.name())
            .to_owned(),
        count(told.map(|told| told.blocks)),
        told.map_or("", |told| told.method.name()).to_owned(),
        count(told.and_then(more_boots)),
        reason.unwrap_or_default(),
        number(decisive.map(|interval| interval.level)),
        number(decisive.map(|interval| interval.low)),
        number(decisive.map(|interval| interval.high)),
    ]
}
