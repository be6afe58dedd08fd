//! `trapline list`: prints environments and workloads, and why any are unavailable.

use crate::args::{InspectArgs, PlainFormat};
use crate::failure::Failure;
use crate::terminal;
use serde::Serialize;
use trapline_abi::{Direction, Op, Unit, Workload};
use trapline_model::{names, request};
use trapline_runner::{EnvironmentEntry, Inventory};

#[derive(Serialize)]
struct List {
    trapline: &'static str,
    environments: Vec<EnvironmentRow>,
    workloads: Vec<WorkloadRow>,
}

#[derive(Serialize)]
struct EnvironmentRow {
    name: &'static str,
    clock: &'static str,
    what: &'static str,
    by_default: bool,
    ready: bool,
    reason: Option<String>,
}

#[derive(Serialize)]
struct WorkloadRow {
    name: &'static str,
    question: &'static str,
    by_default: bool,
    operations: Vec<OperationRow>,
}

#[derive(Serialize)]
struct OperationRow {
    name: &'static str,
    counts: &'static str,
    better: &'static str,
    what: &'static str,
}

/// Lists environments and workloads.
///
/// # Errors
/// An option is invalid, or output cannot be written.
pub fn list(args: &InspectArgs) -> Result<(), Failure> {
    let inventory = args.environment_options.inventory()?;
    let workloads: Vec<_> = Workload::ALL.into_iter().map(workload_row).collect();
    match args.format {
        PlainFormat::Json => {
            let mut environments = Vec::new();
            inventory.try_for_each(|entry| {
                environments.push(environment_row(&inventory, entry));
                Ok::<_, Failure>(())
            })?;
            terminal::print_json(&serde_json::json!(List {
                trapline: env!("CARGO_PKG_VERSION"),
                environments,
                workloads,
            }))
        }
        PlainFormat::Table => {
            let width = terminal::width();
            terminal::print_text("Environments\n")?;
            inventory.try_for_each(|entry| {
                terminal::print_text(&environment_text(
                    &environment_row(&inventory, entry),
                    width,
                ))
            })?;
            terminal::print_text(&workloads_text(&workloads, width))
        }
    }
}

fn environment_row(inventory: &Inventory, entry: &EnvironmentEntry) -> EnvironmentRow {
    EnvironmentRow {
        name: entry.id.name(),
        clock: entry.id.clock().name(),
        what: entry.id.description(),
        by_default: inventory.is_default(entry.id),
        ready: entry.unavailable().is_none(),
        reason: entry.unavailable().map(ToString::to_string),
    }
}

fn workload_row(workload: Workload) -> WorkloadRow {
    let usual = request::usual_operations();
    WorkloadRow {
        name: workload.name(),
        question: workload.question(),
        by_default: names::selected_by(workload) & !usual == 0,
        operations: workload.operations().map(operation_row).collect(),
    }
}

fn operation_row(op: Op) -> OperationRow {
    OperationRow {
        name: op.name(),
        counts: match op.unit() {
            Unit::Time => "time",
            Unit::Rate => "rate",
        },
        better: match op.direction() {
            Direction::Less => "less",
            Direction::More => "more",
        },
        what: op.description(),
    }
}

/// Columns left of the text of an environment, and of an operation.
const NAME: usize = 22;
const OPERATION: usize = 24;

fn environment_text(environment: &EnvironmentRow, width: usize) -> String {
    let clock = environment.clock;
    let only = match environment.by_default {
        true => "",
        false => "; only if asked for",
    };
    let what = format!("{} ({clock} clock{only})", environment.what);
    let state = match &environment.reason {
        None => "Ready".to_owned(),
        Some(reason) => format!("Missing: {reason}"),
    };
    entry(environment.name, 2, NAME, &what, width) + &entry("", 2, NAME, &state, width)
}

fn workloads_text(workloads: &[WorkloadRow], width: usize) -> String {
    let mut text = String::new();
    for workload in workloads {
        let only = match workload.by_default {
            true => "",
            false => " (only if asked for)",
        };
        let title = format!("\nWorkload {}: {}{only}", workload.name, workload.question);
        text.push_str(&textwrap::fill(&title, width));
        text.push('\n');
        for operation in &workload.operations {
            text.push_str(&entry(operation.name, 2, OPERATION, operation.what, width));
        }
    }
    text
}

/// Returns a name and, right of it, a wrapped text.
fn entry(name: &str, indent: usize, column: usize, text: &str, width: usize) -> String {
    let name = format!("{name} ");
    let first = format!("{:indent$}{name:<rest$}", "", rest = column - indent);
    let other = " ".repeat(column);
    let options = textwrap::Options::new(width)
        .initial_indent(&first)
        .subsequent_indent(&other)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(text, options) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_wrapped_in_their_column() {
        let text = entry("name", 2, NAME, &"words ".repeat(30), 60);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0].find("words"), Some(NAME), "{text}");
        assert_eq!(lines[1].find("words"), Some(NAME), "{text}");
        assert!(lines.iter().all(|line| line.len() <= 60), "{text}");
    }

    #[test]
    fn every_operation_is_listed() {
        let workloads: Vec<_> = Workload::ALL.into_iter().map(workload_row).collect();
        let count: usize = workloads.iter().map(|w| w.operations.len()).sum();
        assert_eq!(count, Op::ALL.len());
        for operation in workloads.iter().flat_map(|w| &w.operations) {
            let text = entry(operation.name, 2, OPERATION, operation.what, 80);
            let gap = &text[2 + operation.name.len()..OPERATION];
            assert!(gap.trim().is_empty() && !gap.is_empty(), "{text}");
        }
    }
}
