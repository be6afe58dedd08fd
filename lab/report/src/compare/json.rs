//! The JSON object of a comparison. `docs/json-commands.md` describes it.

use super::{least_boots, more_boots, CompareReport, Direction};
use crate::cell_columns::JsonCell;
use crate::document::json::{JsonInterval, Object};
use serde::Serialize;
use trapline_stats::compare::{Row, RunNoise};
use trapline_stats::verdict::{Assessment, Design, Tail, Verdict};

/// Returns the object of a comparison.
pub fn object(compare: &CompareReport) -> Object {
    let counts = compare.counts();
    let mut object = Object::default();
    object.push("trapline", compare.version.clone());
    object.push("facts", compare.facts.clone());
    object.push("a", compare.a.clone());
    object.push("b", compare.b.clone());
    object.push("margin", compare.settings.margin);
    object.push("alpha", compare.settings.alpha);
    object.push("seed", compare.seed());
    let replicate = match compare.design {
        Design::Blocked => "block",
        Design::Hosts { .. } => "host",
        Design::Boots => "boot",
        Design::Runs => "run",
    };
    object.push("replicate", replicate);
    let counts = Counts {
        changed: counts.better + counts.worse,
        better: counts.better,
        worse: counts.worse,
        equivalent: counts.equivalent,
        runs_differ: counts.runs_differ,
        runs_agree: counts.runs_agree,
        unsure: counts.unsure,
        undecided: counts.undecided,
    };
    object.push("counts", counts);
    object.push("more_boots", compare.more_boots());
    let operations = compare.matches.iter().map(JsonMatch::from);
    object.push("operations", operations.collect::<Vec<_>>());
    object.push("remarks", compare.remarks.clone());
    object
}

#[derive(Serialize)]
struct Counts {
    changed: usize,
    better: usize,
    worse: usize,
    equivalent: usize,
    runs_differ: usize,
    runs_agree: usize,
    unsure: usize,
    undecided: usize,
}

#[derive(Serialize)]
struct JsonMatch {
    workload: &'static str,
    operation: String,
    clock: &'static str,
    verdict: &'static str,
    /// Direction of a change.
    direction: Option<&'static str>,
    effect: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    decisive: Option<JsonInterval>,
    p: Option<f64>,
    q: Option<f64>,
    p_equivalent: Option<f64>,
    q_equivalent: Option<f64>,
    method: Option<&'static str>,
    blocks: Option<usize>,
    boots: Option<[usize; 2]>,
    lone: Option<[usize; 2]>,
    spread: Option<f64>,
    tail: Option<JsonTail>,
    more_boots: Option<usize>,
    least_boots: Option<usize>,
    noise: Option<JsonNoise>,
    /// Why there is no verdict.
    reason: Option<String>,
    #[serde(rename = "contenders")]
    configs: [String; 2],
    a: JsonCell,
    b: JsonCell,
}

/// Standard deviation between runs of the baseline's request, as a share.
#[derive(Serialize)]
struct JsonNoise {
    runs: usize,
    deviation: f64,
}

impl From<RunNoise> for JsonNoise {
    fn from(noise: RunNoise) -> Self {
        Self {
            runs: noise.runs,
            deviation: noise.deviation,
        }
    }
}

/// Blocks outside the margin that alone prevent *equivalent*.
#[derive(Serialize)]
struct JsonTail {
    blocks: usize,
    farthest: f64,
}

impl From<Tail> for JsonTail {
    fn from(tail: Tail) -> Self {
        Self {
            blocks: tail.blocks,
            farthest: tail.farthest,
        }
    }
}

impl From<&Row> for JsonMatch {
    fn from(one: &Row) -> Self {
        let comparison = one.outcome.as_ref().ok();
        let of = |value: fn(&Assessment) -> Option<f64>| comparison.and_then(value);
        Self {
            workload: one.op.workload_name(),
            operation: one.op.name(),
            clock: one.clock().name(),
            verdict: comparison.map_or("undecided", |comparison| comparison.verdict.name()),
            direction: comparison.and_then(|comparison| direction(one, comparison)),
            effect: of(|comparison| Some(comparison.effect)),
            low: of(|comparison| comparison.interval.map(|interval| interval.low)),
            high: of(|comparison| comparison.interval.map(|interval| interval.high)),
            decisive: comparison
                .and_then(|comparison| comparison.decisive)
                .map(JsonInterval::from),
            p: of(|comparison| comparison.p),
            q: of(|comparison| comparison.q),
            p_equivalent: of(|comparison| comparison.p_equivalent),
            q_equivalent: of(|comparison| comparison.q_equivalent),
            method: comparison.map(|comparison| comparison.method.name()),
            blocks: comparison.map(|comparison| comparison.blocks),
            boots: comparison.map(|comparison| [comparison.boots.0, comparison.boots.1]),
            lone: comparison.map(|comparison| [comparison.unmatched.0, comparison.unmatched.1]),
            spread: of(|comparison| comparison.spread),
            tail: comparison
                .and_then(|comparison| comparison.tail)
                .map(JsonTail::from),
            more_boots: comparison.and_then(more_boots),
            least_boots: comparison.and_then(least_boots),
            noise: one.noise.map(JsonNoise::from),
            reason: one.outcome.as_ref().err().map(ToString::to_string),
            configs: [&one.a, &one.b].map(|cell| cell.config.to_string()),
            a: (&one.a).into(),
            b: (&one.b).into(),
        }
    }
}

fn direction(one: &Row, comparison: &Assessment) -> Option<&'static str> {
    let has_direction = matches!(comparison.verdict, Verdict::Changed | Verdict::RunsDiffer);
    has_direction.then(|| match Direction::of(one.op, comparison.effect) {
        Direction::Better => "better",
        Direction::Worse => "worse",
    })
}
