//! The form for programs; docs/gate.md is its contract.

use crate::compare::{Comparison, Row};
use crate::facts::Cause;
use serde_json::{json, Value};

/// One JSON object: the outcome, causes, and every row.
pub fn json(comparison: &Comparison) -> String {
    let rows: Vec<Value> = comparison.rows.iter().map(row).collect();
    let causes: Vec<Value> = comparison.causes.iter().map(cause).collect();
    let object = json!({
        "outcome": comparison.outcome().name(),
        "causes": causes,
        "figures": rows,
    });
    format!("{object:#}\n")
}

fn row(row: &Row) -> Value {
    let mut object = json!({
        "environment": row.environment.name(),
        "operation": row.operation,
        "unit": row.unit,
        "verdict": row.verdict.name(),
        "old": row.old,
        "new": row.new,
        "difference": row.difference(),
        "percent": row.percent(),
    });
    if let Some(reason) = &row.reason {
        object["reason"] = json!(reason);
    }
    object
}

fn cause(cause: &Cause) -> Value {
    let names: Vec<_> = cause.environments.iter().map(|id| id.name()).collect();
    json!({
        "fact": cause.fact.name,
        "around": cause.fact.around,
        "old": cause.old,
        "new": cause.new,
        "environments": names,
    })
}
