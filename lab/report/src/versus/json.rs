//! The comparison for programs. `docs/json.md` describes this form.

use super::{more_boots, Direction, Versus};
use crate::json::{written, JsonCell};
use serde::Serialize;
use std::collections::BTreeMap;
use trapline_stats::contest::Match;
use trapline_stats::judge::{Comparison, Tail, Verdict};
use trapline_stats::order::Interval;

/// The comparison as one JSON object, on several lines, with a line feed at its end.
pub fn json(versus: &Versus) -> String {
    let counts = versus.counts();
    written(&Document {
        trapline: &versus.version,
        facts: &versus.facts,
        a: &versus.a,
        b: &versus.b,
        margin: versus.settings.margin,
        alpha: versus.settings.alpha,
        seed: versus.seed(),
        counts: Counts {
            changed: counts.better + counts.worse,
            better: counts.better,
            worse: counts.worse,
            equivalent: counts.equivalent,
            unsure: counts.unsure,
            undecided: counts.undecided,
        },
        more_boots: versus.more_boots(),
        operations: versus.matches.iter().map(JsonMatch::from).collect(),
        remarks: &versus.remarks,
    })
}

#[derive(Serialize)]
struct Document<'a> {
    trapline: &'a str,
    facts: &'a BTreeMap<String, String>,
    a: &'a str,
    b: &'a str,
    margin: f64,
    alpha: f64,
    seed: Option<u64>,
    counts: Counts,
    more_boots: Option<usize>,
    operations: Vec<JsonMatch<'a>>,
    remarks: &'a [String],
}

#[derive(Serialize)]
struct Counts {
    changed: usize,
    better: usize,
    worse: usize,
    equivalent: usize,
    unsure: usize,
    undecided: usize,
}

#[derive(Serialize)]
struct JsonMatch<'a> {
    workload: &'static str,
    operation: &'static str,
    clock: &'static str,
    verdict: &'static str,
    /// Of what changed.
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
    /// Why there is no verdict.
    reason: Option<String>,
    contenders: [String; 2],
    a: JsonCell<'a>,
    b: JsonCell<'a>,
}

/// The interval that the verdict rests on.
#[derive(Serialize)]
struct JsonInterval {
    level: f64,
    low: f64,
    high: f64,
}

impl From<Interval> for JsonInterval {
    fn from(interval: Interval) -> Self {
        Self {
            level: interval.level,
            low: interval.low,
            high: interval.high,
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

impl<'a> From<&'a Match> for JsonMatch<'a> {
    fn from(one: &'a Match) -> Self {
        let told = one.outcome.as_ref().ok();
        let of = |value: fn(&Comparison) -> Option<f64>| told.and_then(value);
        Self {
            workload: one.op.workload().name(),
            operation: one.op.name(),
            clock: one.clock().name(),
            verdict: told.map_or("undecided", |told| told.verdict.name()),
            direction: told.and_then(|told| direction(one, told)),
            effect: of(|told| Some(told.effect)),
            low: of(|told| told.interval.map(|interval| interval.low)),
            high: of(|told| told.interval.map(|interval| interval.high)),
            decisive: told.and_then(|told| told.decisive).map(JsonInterval::from),
            p: of(|told| told.p),
            q: of(|told| told.q),
            p_equivalent: of(|told| told.p_equivalent),
            q_equivalent: of(|told| told.q_equivalent),
            method: told.map(|told| told.method.name()),
            blocks: told.map(|told| told.blocks),
            boots: told.map(|told| [told.boots.0, told.boots.1]),
            lone: told.map(|told| [told.lone.0, told.lone.1]),
            spread: of(|told| told.spread),
            tail: told.and_then(|told| told.tail).map(JsonTail::from),
            more_boots: told.and_then(more_boots),
            reason: one.outcome.as_ref().err().map(ToString::to_string),
            contenders: one.contenders.each_ref().map(ToString::to_string),
            a: (&one.a).into(),
            b: (&one.b).into(),
        }
    }
}

fn direction(one: &Match, told: &Comparison) -> Option<&'static str> {
    (told.verdict == Verdict::Changed).then(|| match Direction::of(one.op, told.effect) {
        Direction::Better => "better",
        Direction::Worse => "worse",
    })
}
