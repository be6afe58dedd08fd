//! The JSON object of rates: every trial, and the figures of each path.

use super::{Cell, FrameTable, Rates};
use crate::document::json::Object;
use serde_json::{json, Value};
use trapline_model::packets::{Latency, Trial};
use trapline_stats::order::Interval;
use trapline_stats::packets::GOALS;

/// Returns the object; `version` is Trapline's.
pub fn object(rates: &Rates, version: &str) -> Object {
    let cells = rates.tables.iter().flat_map(|table| {
        let cells = table.cells.iter();
        cells.map(|cell| cell_value(table, cell))
    });
    let reasons = |all: &mut dyn Iterator<Item = (&String, &String)>| -> Vec<Value> {
        all.map(|(at, reason)| json!({"path": at, "reason": reason}))
            .collect()
    };
    let mut object = Object::default();
    object.push("cells", cells.collect::<Vec<_>>());
    object.push("cpus", rates.cpus.to_vec());
    let mut failed = rates.failed.iter().map(|(at, reason)| (at, reason));
    object.push("failed", reasons(&mut failed));
    object.push("skipped", reasons(&mut rates.skipped.iter()));
    object.push("trapline", version.to_owned());
    object.push("workload", "packets");
    object
}

fn cell_value(table: &FrameTable, cell: &Cell) -> Value {
    let frames = table.frames;
    let rate = cell.rate();
    let ratio = table.ratio(cell);
    let goals = GOALS.iter().filter_map(|goal| {
        let bounds = cell.bounds(*goal)?;
        Some(json!({"loss": goal, "lower": bounds.lower, "upper": bounds.upper}))
    });
    json!({
        "path": cell.path,
        "size": frames.size,
        "ring": frames.ring.name(),
        "queues": frames.queues,
        "direction": frames.direction.name(),
        "distance": table.distance.name(),
        "rate": rate.map(|rate| rate.value),
        "rate_interval": interval(rate.and_then(|rate| rate.interval)),
        "first_by_it": ratio.map(|ratio| ratio.estimate),
        "first_by_it_interval": interval(ratio.and_then(|ratio| ratio.interval)),
        "ports_cpu_ns": cell.ports_cpu(),
        "forwarder_cpu_ns": cell.forwarder_cpu(),
        "notifications": cell.notifications(),
        "p50_ns": cell.latency(|it| it.p50),
        "p99_ns": cell.latency(|it| it.p99),
        "searched": goals.collect::<Vec<_>>(),
        "trials": cell.trials.iter().filter_map(trial).collect::<Vec<_>>(),
    })
}

fn interval(interval: Option<Interval>) -> Value {
    interval.map_or(
        Value::Null,
        |it| json!({"level": it.level, "low": it.low, "high": it.high}),
    )
}

fn trial(trial: &Trial) -> Option<Value> {
    let figures = trial.figures()?;
    let percentile = |of: fn(&Latency) -> u64| figures.latency.as_ref().map(of);
    Some(json!({
        "round": trial.planned.round,
        "purpose": trial.purpose.name(),
        "offered": trial.offered,
        "rate": figures.rate(),
        "duration_ns": figures.duration_ns,
        "sent": figures.sent,
        "refused": figures.refused,
        "received": figures.received,
        "damaged": figures.damaged,
        "ports_cpu_ns": figures.ports_cpu_ns,
        "forwarder_cpu_ns": figures.forwarder_cpu_ns,
        "kicks": figures.kicks,
        "calls": figures.calls,
        "p50_ns": percentile(|it| it.p50),
        "p99_ns": percentile(|it| it.p99),
        "max_ns": percentile(|it| it.max),
        "round_trip_ns": figures.round_trip_ns,
    }))
}
