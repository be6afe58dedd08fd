//! False alarms of the A/A control, as sentences and as JSON.

use crate::figures;
use serde::Serialize;
use std::collections::BTreeMap;
use trapline_stats::aa_test::AaTest;
use trapline_stats::verdict::Design;

/// Returns the false alarms and the smallest detectable changes, in sentences.
pub fn sentences(aa_test: &AaTest) -> Vec<String> {
    let alarms = &aa_test.false_positives;
    let expected = alarms.tests as f64 * aa_test.level;
    let each = match aa_test.design {
        Design::Hosts { .. } => format!("each block on {} hosts", aa_test.blocks),
        _ => format!("each of {} blocks", aa_test.blocks),
    };
    let mut sentences = vec![format!(
        "{} was booted twice in {each}. Of {} comparisons with itself {} have p of at \
         most {} ({} expected); {} changed, {} equivalent, {} unsure.",
        aa_test.config,
        alarms.tests,
        alarms.significant,
        figures::percent(aa_test.level),
        figures::quantity(expected),
        alarms.changed,
        alarms.equivalent,
        alarms.unsure
    )];
    let smallest: Vec<String> = aa_test
        .detectable
        .iter()
        .map(|(op, share)| format!("{} {}", op.name(), digits(*share)))
        .collect();
    if !smallest.is_empty() {
        sentences.push(format!(
            "The smallest change that as many boots find in 80 of 100 cases: {}.",
            smallest.join(", ")
        ));
    }
    sentences
}

/// Returns a share in percent, with one digit after the point below 10%.
pub(crate) fn digits(share: f64) -> String {
    match share {
        share if share < 0.0995 => format!("{:.1}%", share * 100.0),
        share => figures::percent(share),
    }
}

#[derive(Serialize)]
pub(crate) struct JsonAaControl {
    #[serde(rename = "contender")]
    config: String,
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

impl From<&AaTest> for JsonAaControl {
    fn from(aa_test: &AaTest) -> Self {
        let smallest = aa_test.detectable.iter();
        Self {
            config: aa_test.config.to_string(),
            blocks: aa_test.blocks,
            level: aa_test.level,
            tests: aa_test.false_positives.tests,
            alarms: aa_test.false_positives.significant,
            changed: aa_test.false_positives.changed,
            equivalent: aa_test.false_positives.equivalent,
            unsure: aa_test.false_positives.unsure,
            smallest: smallest.map(|(op, share)| (op.path(), *share)).collect(),
        }
    }
}
