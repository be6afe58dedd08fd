//! `trapline list`: what there is to measure, where, and what keeps any of it
//! from running here.

use crate::args::{ListArgs, PlainFormat};
use crate::failure::Failure;
use crate::lab::{Lab, Place};
use crate::terminal;
use serde::Serialize;
use trapline_abi::{Direction, Op, Unit, Workload};
use trapline_environments::Availability;
use trapline_model::request;

#[derive(Serialize)]
struct List {
    trapline: &'static str,
    environments: Vec<EnvironmentEntry>,
    workloads: Vec<WorkloadEntry>,
}

#[derive(Serialize)]
struct EnvironmentEntry {
    name: &'static str,
    clock: &'static str,
    what: &'static str,
    by_default: bool,
    ready: bool,
    reason: Option<String>,
}

#[derive(Serialize)]
struct WorkloadEntry {
    name: &'static str,
    question: &'static str,
    by_default: bool,
    operations: Vec<OperationEntry>,
}

#[derive(Serialize)]
struct OperationEntry {
    name: &'static str,
    counts: &'static str,
    better: &'static str,
    what: &'static str,
}

/// Lists environments and workloads.
///
/// # Errors
/// The parts cannot be looked for, or nothing can be printed.
pub fn list(args: &ListArgs) -> Result<(), Failure> {
    let lab = Lab::open(&args.simulated)?;
    let list = List {
        trapline: env!("CARGO_PKG_VERSION"),
        environments: lab.places().iter().map(environment_entry).collect(),
        workloads: Workload::ALL.into_iter().map(workload_entry).collect(),
    };
    match args.format {
        PlainFormat::Json => terminal::print_json(&serde_json::json!(list)),
        PlainFormat::Table => terminal::print_text(&text(&list, terminal::width())),
    }
}

fn environment_entry(place: &Place) -> EnvironmentEntry {
    EnvironmentEntry {
        name: place.id.name(),
        clock: place.id.clock().name(),
        what: place.id.what(),
        by_default: place.id.is_usual(),
        ready: place.availability == Availability::Ready,
        reason: match &place.availability {
            Availability::Ready => None,
            Availability::Missing(reason) => Some(reason.clone()),
        },
    }
}

fn workload_entry(workload: Workload) -> WorkloadEntry {
    let usual = request::usual_operations();
    WorkloadEntry {
        name: workload.name(),
        question: workload.question(),
        by_default: workload.operations().all(|op| usual & op.bit() != 0),
        operations: workload.operations().map(operation_entry).collect(),
    }
}

fn operation_entry(op: Op) -> OperationEntry {
    OperationEntry {
        name: op.name(),
        counts: match op.unit() {
            Unit::Time => "time",
            Unit::Rate => "rate",
        },
        better: match op.direction() {
            Direction::Less => "less",
            Direction::More => "more",
        },
        what: op.what(),
    }
}

/// Columns before the text of an environment, and of an operation.
const NAME: usize = 20;
const OPERATION: usize = 21;

fn text(list: &List, width: usize) -> String {
    let mut text = "Environments\n".to_owned();
    for environment in &list.environments {
        let clock = environment.clock;
        let only = match environment.by_default {
            true => "",
            false => "; only if asked for",
        };
        text.push_str(&entry(
            environment.name,
            2,
            NAME,
            &format!("{} ({clock} clock{only})", environment.what),
            width,
        ));
        let state = match &environment.reason {
            None => "Ready".to_owned(),
            Some(reason) => format!("Missing: {reason}"),
        };
        text.push_str(&entry("", 2, NAME, &state, width));
    }
    for workload in &list.workloads {
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

/// A name, and beside it a text that keeps to its column.
fn entry(name: &str, indent: usize, column: usize, text: &str, width: usize) -> String {
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
    fn entries_keep_to_their_column_and_width() {
        let text = entry("name", 2, NAME, &"words ".repeat(30), 60);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("  name              words"), "{text}");
        assert!(lines[1].starts_with("                    words"), "{text}");
        assert!(lines.iter().all(|line| line.len() <= 60), "{text}");
    }

    #[test]
    fn every_operation_is_listed() {
        let workloads: Vec<_> = Workload::ALL.into_iter().map(workload_entry).collect();
        let count: usize = workloads.iter().map(|w| w.operations.len()).sum();
        assert_eq!(count, Op::ALL.len());
    }
}
