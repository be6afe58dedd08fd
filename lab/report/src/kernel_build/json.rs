//! The matrix as one JSON object: every build with its two clocks, and the percentages.

use super::{Cell, Matrix};
use serde_json::{json, Value};
use trapline_plan::kernel_build::Column;
use trapline_plan::EnvironmentId;

/// The object; `version` is Trapline's.
pub fn json(matrix: &Matrix, version: &str) -> Value {
    let cells = matrix.cells.iter();
    let cells: Vec<_> = cells
        .map(|(place, cell)| of_cell(matrix, *place, cell))
        .collect();
    json!({
        "trapline": version,
        "workload": "kernel-build",
        "size": matrix.size.name(),
        "facts": matrix.facts,
        "cells": cells,
    })
}

fn of_cell(matrix: &Matrix, (id, column): (EnvironmentId, Column), cell: &Cell) -> Value {
    let took = cell.took();
    let builds = cell.done.iter().map(|done| {
        json!({
            "took": done.took,
            "own_ns": done.own_ns,
            "objects": done.objects,
            "proof": done.proof,
        })
    });
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
        "over_base": matrix.above_base(id, column),
        "over_native": matrix.above_native(id, column),
        "clock_off": cell.disagreement(),
        "skip": cell.skipped,
        "failed": cell.failed,
        "builds": builds.collect::<Vec<_>>(),
    })
}
