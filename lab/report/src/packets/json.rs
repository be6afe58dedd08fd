//! The JSON object of rates: every trial, and the figures of each path.

use crate::rates::{Cell, FrameTable};
use crate::report::Report;
use serde_json::{json, Value};
use trapline_model::packets::{Latency, Purpose, Trial};
use trapline_stats::order::Interval;
use trapline_stats::packets::GOALS;
use trapline_stats::share_interval;

/// Returns the rates of all paths.
pub fn cells(report: &Report) -> Vec<Value> {
    let tables = report.packets.tables.iter();
    let cells = tables.flat_map(|table| table.cells.iter().map(|cell| cell_value(table, cell)));
    cells.collect()
}

fn cell_value(table: &FrameTable, cell: &Cell) -> Value {
    let frames = table.frames;
    let rate = cell.rate();
    let ratio = table.ratio(cell);
    let goals = GOALS.iter().filter_map(|goal| {
        let load = cell.searched(*goal)?;
        let share = share_interval(load.kept, load.further);
        Some(json!({
            "loss": goal,
            "lower": load.lower,
            "lower_interval": interval(load.interval),
            "upper": load.upper,
            "searches": load.searches,
            "further_trials": load.further,
            "kept": load.kept,
            "kept_low": share.map(|(low, _)| low),
            "kept_high": share.map(|(_, high)| high),
        }))
    });
    json!({
        "path": cell.path(),
        "size": frames.size,
        "ring": frames.queues.ring.name(),
        "queues": frames.queues.pairs,
        "direction": frames.direction.name(),
        "distance": frames.distance.name(),
        "rate": rate.map(|rate| rate.value),
        "rate_interval": interval(rate.and_then(|rate| rate.interval)),
        "first_by_it": ratio.map(|ratio| ratio.estimate),
        "first_by_it_interval": interval(ratio.and_then(|ratio| ratio.interval)),
        "lost": cell.lost().map(|(lost, _)| lost),
        "due": cell.lost().map(|(_, due)| due),
        "ports_cpu_ns": cell.ports_cpu(),
        "forwarder_cpu_ns": cell.forwarder_cpu(),
        "notifications": cell.notifications(),
        "p50_ns": cell.latency(|it| it.p50),
        "p99_ns": cell.latency(|it| it.p99),
        "searched": goals.collect::<Vec<_>>(),
        "trials": cell.trials.iter().map(trial).collect::<Vec<_>>(),
    })
}

fn interval(interval: Option<Interval>) -> Value {
    interval.map_or(
        Value::Null,
        |it| json!({"level": it.level, "low": it.low, "high": it.high}),
    )
}

fn trial((round, purpose, trial): &(u32, Purpose, Trial)) -> Value {
    let percentile = |of: fn(&Latency) -> u64| trial.latency.as_ref().map(of);
    json!({
        "round": round,
        "purpose": purpose.name(),
        "offered": trial.offered,
        "rate": trial.rate(),
        "duration_ns": trial.duration_ns,
        "sent": trial.sent,
        "refused": trial.refused,
        "received": trial.received,
        "damaged": trial.damaged,
        "ports_cpu_ns": trial.ports_cpu_ns,
        "forwarder_cpu_ns": trial.forwarder_cpu_ns,
        "kicks": trial.kicks,
        "calls": trial.calls,
        "p50_ns": percentile(|it| it.p50),
        "p99_ns": percentile(|it| it.p99),
        "max_ns": percentile(|it| it.max),
        "round_trip_ns": trial.round_trip_ns,
    })
}
