//! Bencher Metric Format: benchmark -> measure -> value, of everything that was
//! measured now. Bencher keeps its own history, so nothing old is in it.

use crate::compare::Comparison;
use serde_json::{json, Map, Value};

/// One JSON object.
pub fn bencher(comparison: &Comparison) -> String {
    let measured = comparison.rows.iter().filter_map(|row| {
        let name = format!("{} {}", row.environment, row.operation);
        Some((name, json!({ measure(&row.unit): { "value": row.new? } })))
    });
    let object: Map<String, Value> = measured.collect();
    format!("{:#}\n", Value::Object(object))
}

/// Measures are named by slugs.
fn measure(unit: &str) -> &'static str {
    match unit {
        "insn" => "instructions",
        _ => "megabytes-per-ginsn",
    }
}
