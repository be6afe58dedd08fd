//! How ledgers are printed.

use super::Explained;
use crate::args::PlainFormat;
use crate::failure::Failure;
use crate::terminal;
use serde_json::{json, Value};
use trapline_abi::Op;
use trapline_ledger::text;
use trapline_plan::names;

/// Prints one ledger, or what differs in the second.
///
/// # Errors
/// Output cannot be written.
pub fn print(
    op: Op,
    first: &Explained,
    second: Option<&Explained>,
    format: PlainFormat,
) -> Result<(), Failure> {
    let width = terminal::width();
    let title = |explained: &Explained| format!("{} in {}", names::path(op), explained.environment);
    match (format, second) {
        (PlainFormat::Json, None) => terminal::print_json(&ledger(op, first)),
        (PlainFormat::Json, Some(second)) => terminal::print_json(&difference(op, first, second)),
        (PlainFormat::Table, None) => {
            terminal::print_text(&text::table(&title(first), &first.ledger, width))
        }
        (PlainFormat::Table, Some(second)) => terminal::print_text(&text::changes(
            (&title(first), &title(second)),
            (&first.ledger, &second.ledger),
            width,
        )),
    }
}

fn ledger(op: Op, explained: &Explained) -> Value {
    let ledger = &explained.ledger;
    let functions: Vec<_> = ledger
        .items
        .iter()
        .map(|item| {
            json!({
                "component": item.function.component,
                "function": item.function.name,
                "insn": item.insn,
            })
        })
        .collect();
    json!({
        "trapline": env!("CARGO_PKG_VERSION"),
        "environment": explained.environment.name(),
        "operation": names::path(op),
        "total": ledger.total,
        "residual": ledger.residual,
        "operations": ledger.operations,
        "counted": ledger.counted,
        "exits": ledger.exits,
        "faults": ledger.faults,
        "interrupts": ledger.interrupts,
        "functions": functions,
    })
}

fn difference(op: Op, before: &Explained, after: &Explained) -> Value {
    let changes: Vec<_> = before
        .ledger
        .changes(&after.ledger)
        .iter()
        .map(|change| {
            json!({
                "component": change.function.component,
                "function": change.function.name,
                "before": change.insn.0,
                "after": change.insn.1,
                "difference": change.difference(),
            })
        })
        .collect();
    json!({
        "before": ledger(op, before),
        "after": ledger(op, after),
        "difference": after.ledger.total - before.ledger.total,
        "changes": changes,
    })
}
