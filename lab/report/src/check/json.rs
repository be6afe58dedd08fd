//! JSON, as described in docs/gate.md.

use serde_json::{json, Value};
use trapline_gate::Cause;
use trapline_gate::{Comparison, Row};
use trapline_profile::Change;

/// Formats one JSON object: the outcome, causes, and all rows.
pub fn json(comparison: &Comparison) -> String {
    let rows: Vec<Value> = comparison.rows.iter().map(row).collect();
    let causes: Vec<Value> = comparison.causes.iter().map(cause).collect();
    let object = json!({
        "outcome": comparison.outcome().name(),
        "causes": causes,
        "notes": comparison.notes,
        "figures": rows,
    });
    format!("{object:#}\n")
}

fn row(row: &Row) -> Value {
    let mut object = json!({
        "environment": row.config.to_string(),
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
    if let Some(explained) = &row.explained {
        let functions: Vec<Value> = explained.changes.iter().map(function).collect();
        let (old, new) = explained.totals;
        object["functions"] = json!(functions);
        object["ledgers"] = json!({ "old": old, "new": new });
    }
    object
}

fn function(change: &Change) -> Value {
    json!({
        "component": change.function.component,
        "function": change.function.name,
        "old": change.insn.0,
        "new": change.insn.1,
        "difference": change.difference(),
    })
}

fn cause(cause: &Cause) -> Value {
    let names: Vec<_> = cause.configs.iter().map(ToString::to_string).collect();
    json!({
        "fact": cause.fact.name,
        "around": cause.fact.around,
        "old": cause.old,
        "new": cause.new,
        "environments": names,
    })
}
