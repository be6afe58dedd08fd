//! The JSON object of kernel builds: every build with its two clocks, and the ratios.

use super::{Cell, Matrix};
use crate::document::json::Object;
use serde_json::{json, Value};
use trapline_model::kernel_build::Column;
use trapline_model::EnvironmentId;
use trapline_stats::paired::PairedRatio;

/// Returns the object; `version` is Trapline's.
pub fn object(matrix: &Matrix, version: &str) -> Object {
    let cells = matrix.cells.iter();
    let cells: Vec<_> = cells
        .map(|(place, cell)| cell_value(matrix, *place, cell))
        .collect();
    let mut object = Object::default();
    object.push("cells", cells);
    object.push("facts", matrix.facts.clone());
    object.push("size", matrix.size.name());
    object.push("trapline", version.to_owned());
    object.push("workload", "kernel-build");
    object
}

fn cell_value(matrix: &Matrix, (id, column): (EnvironmentId, Column), cell: &Cell) -> Value {
    let took = cell.took();
    let builds = cell.done.iter().map(|(round, done)| {
        json!({
            "round": round,
            "took": done.took,
            "own_ns": done.own_ns,
            "objects": done.objects,
            "proof": done.proof,
        })
    });
    let (base, native) = (
        matrix.ratio_to_base(id, column),
        matrix.ratio_to_native(id, column),
    );
    json!({
        "environment": id.name(),
        "clock": id.clock().name(),
        "unit": if id.clock().is_exact() { "insn" } else { "ns" },
        "column": column.to_string(),
        "cpus": column.cpus,
        "place": column.place.name(),
        "median": took.as_ref().map(|took| took.median()),
        "min": took.as_ref().map(|took| took.min()),
        "max": took.as_ref().map(|took| took.max()),
        "over_base": over(base),
        "over_base_interval": interval(id, base),
        "over_native": over(native),
        "over_native_interval": interval(id, native),
        "clock_off": cell.disagreement(),
        "skip": cell.skipped,
        "failed": cell.failed,
        "builds": builds.collect::<Vec<_>>(),
    })
}

/// A ratio as a share above 1.
fn over(ratio: Option<PairedRatio>) -> Option<f64> {
    ratio.map(|ratio| ratio.estimate - 1.0)
}

/// The interval of a ratio, as shares above 1; `null` on exact clocks and of one round.
fn interval(id: EnvironmentId, ratio: Option<PairedRatio>) -> Value {
    let ratio = ratio.filter(|_| !id.clock().is_exact());
    let interval = ratio.and_then(|ratio| Some((ratio.rounds, ratio.interval?)));
    interval.map_or(Value::Null, |(rounds, interval)| {
        json!({
            "level": interval.level,
            "low": interval.low - 1.0,
            "high": interval.high - 1.0,
            "rounds": rounds,
        })
    })
}
