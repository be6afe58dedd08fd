//! What chance does on this host, in words and for programs.

use crate::figures;
use serde::Serialize;
use std::collections::BTreeMap;
use trapline_model::names;
use trapline_stats::chance::Chance;

/// The sentences of it.
pub fn sentences(chance: &Chance) -> Vec<String> {
    let alarms = &chance.alarms;
    let expected = alarms.tests as f64 * chance.level;
    let mut told = vec![format!(
        "{} was booted twice in each of {} blocks. Of {} comparisons with itself {} have p of at \
         most {} ({} expected); {} changed, {} equivalent, {} unsure.",
        chance.contender,
        chance.blocks,
        alarms.tests,
        alarms.alarms,
        figures::percent(chance.level),
        figures::quantity(expected),
        alarms.changed,
        alarms.equivalent,
        alarms.unsure
    )];
    let smallest: Vec<String> = chance
        .smallest
        .iter()
        .map(|(op, share)| format!("{} {}", op.name(), digits(*share)))
        .collect();
    if !smallest.is_empty() {
        told.push(format!(
            "The smallest change that as many boots find in 80 of 100 cases: {}.",
            smallest.join(", ")
        ));
    }
    told
}

/// Percent, with a digit behind the point where it matters.
pub(crate) fn digits(share: f64) -> String {
    match share {
        share if share < 0.0995 => format!("{:.1}%", share * 100.0),
        share => figures::percent(share),
    }
}

#[derive(Serialize)]
pub(crate) struct JsonChance {
    contender: String,
    blocks: usize,
    level: f64,
    tests: usize,
    alarms: usize,
    changed: usize,
    equivalent: usize,
    unsure: usize,
    /// Shares, by workload/operation.
    smallest: BTreeMap<String, f64>,
}

impl From<&Chance> for JsonChance {
    fn from(chance: &Chance) -> Self {
        let smallest = chance.smallest.iter();
        Self {
            contender: chance.contender.to_string(),
            blocks: chance.blocks,
            level: chance.level,
            tests: chance.alarms.tests,
            alarms: chance.alarms.alarms,
            changed: chance.alarms.changed,
            equivalent: chance.alarms.equivalent,
            unsure: chance.alarms.unsure,
            smallest: smallest
                .map(|(op, share)| (names::path(*op), *share))
                .collect(),
        }
    }
}
