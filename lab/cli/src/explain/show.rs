//! How ledgers are printed.

use super::{flame, Explained};
use crate::args::PlainFormat;
use crate::failure::Failure;
use crate::terminal;
use serde_json::{json, Value};
use trapline_abi::Op;
use trapline_model::names;
use trapline_profile::stages::StageLedger;
use trapline_profile::{text, Ledger};

/// An operation, explained in one environment, or in two to be compared.
pub struct Page<'a> {
    pub op: Op,
    pub first: Explained<'a>,
    pub second: Option<Explained<'a>>,
}

/// Prints pages one after the other. In JSON one that stands alone is the object;
/// others are a list in it.
///
/// # Errors
/// Output cannot be written.
pub fn print(pages: &[Page<'_>], is_one: bool, format: PlainFormat) -> Result<(), Failure> {
    match (format, pages) {
        (PlainFormat::Json, [page]) if is_one => terminal::print_json(&page.json()),
        (PlainFormat::Json, _) => {
            let ledgers: Vec<_> = pages.iter().map(Page::json).collect();
            terminal::print_json(&json!({ "ledgers": ledgers }))
        }
        (PlainFormat::Table, _) => {
            let texts: Vec<_> = pages.iter().map(Page::text).collect();
            terminal::print_text(&texts.join("\n"))
        }
    }
}

impl Page<'_> {
    fn text(&self) -> String {
        let width = terminal::width();
        let title = |of: &Explained<'_>| format!("{} in {}", names::path(self.op), of.environment);
        let first = &self.first;
        match &self.second {
            None => text::table(&title(first), first.ledger, width),
            Some(second) => text::changes(
                (&title(first), &title(second)),
                (first.ledger, second.ledger),
                width,
            ),
        }
    }

    fn json(&self) -> Value {
        match &self.second {
            None => ledger(self.op, &self.first),
            Some(second) => difference(self.op, &self.first, second),
        }
    }
}

fn ledger(op: Op, explained: &Explained<'_>) -> Value {
    let ledger = explained.ledger;
    let mut value = account(ledger);
    value["trapline"] = json!(env!("CARGO_PKG_VERSION"));
    value["environment"] = json!(explained.environment.name());
    value["operation"] = json!(names::path(op));
    value["operations"] = json!(ledger.operations);
    if !ledger.stages.is_empty() {
        value["stages"] = ledger.stages.iter().map(stage).collect();
    }
    if !ledger.stacks.is_empty() {
        value["stacks"] = stacks(ledger);
    }
    value
}

fn stage(stage: &StageLedger) -> Value {
    let mut value = account(&stage.ledger);
    value["from"] = json!(stage.from.name());
    value["stage"] = json!(stage.to.name());
    value
}

/// What a ledger says, whatever it is of.
fn account(ledger: &Ledger) -> Value {
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
        "total": ledger.total,
        "residual": ledger.residual,
        "counted": ledger.counted,
        "exits": ledger.exits,
        "faults": ledger.faults,
        "interrupts": ledger.interrupts,
        "halts": ledger.halts,
        "functions": functions,
    })
}

fn stacks(ledger: &Ledger) -> Value {
    let stacks = ledger.stacks.iter().map(|stack| {
        let frames: Vec<_> = stack.frames.iter().map(flame::label).collect();
        let insn = stack.count as f64 / ledger.operations as f64;
        json!({ "frames": frames, "insn": insn })
    });
    stacks.collect()
}

fn difference(op: Op, before: &Explained<'_>, after: &Explained<'_>) -> Value {
    let changes: Vec<_> = before
        .ledger
        .changes(after.ledger)
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
