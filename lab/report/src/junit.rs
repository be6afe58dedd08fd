//! Test cases of a report: a suite for each configuration and a case for each operation. A measured
//! operation passes unless it misses a requirement.

use crate::formats::{Case, Outcome, Remark, Suite};
use crate::{notes, verdicts, Report};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;
use trapline_model::Config;
use trapline_stats::irq::Proof;
use trapline_stats::{Cell, Figure, Value};

/// Returns a suite for each configuration.
pub fn suites(report: &Report, cells: &[Cell]) -> Vec<Suite> {
    let configs: BTreeSet<&Config> = cells.iter().map(|cell| &cell.config).collect();
    let suite = |config: &Config| {
        let own = cells.iter().filter(|cell| cell.config == *config);
        Suite {
            name: config.to_string(),
            facts: facts(report, config),
            cases: own.map(|cell| case(report, cell)).collect(),
        }
    };
    configs.into_iter().map(suite).collect()
}

/// Returns the facts of the configuration and of its host.
fn facts(report: &Report, config: &Config) -> Vec<(String, String)> {
    let host = report.facts.iter();
    let host = host.map(|(name, value)| (format!("host/{name}"), value.clone()));
    let own = report.summary.facts.get(config).into_iter().flatten();
    let own = own.map(|(name, value)| (name.clone(), value.clone()));
    own.chain(host).collect()
}

fn case(report: &Report, cell: &Cell) -> Case {
    Case {
        class: cell.config.to_string(),
        name: cell.op.path(),
        outcome: outcome(report, cell),
        time: time(cell),
        output: figure_lines(cell),
    }
}

/// Returns the figure if it is a time; instructions are none.
fn time(cell: &Cell) -> Option<Duration> {
    let is_time = cell.unit == "ns";
    let figure = cell.value.figure().filter(|_| is_time)?;
    Duration::try_from_secs_f64(figure.estimate / 1e9).ok()
}

fn outcome(report: &Report, cell: &Cell) -> Outcome {
    let remark = |kind: &str, message: String| Remark {
        kind: kind.to_owned(),
        message,
        text: String::new(),
    };
    match &cell.value {
        Value::Skip(reason) => Outcome::Skipped(remark("skip", reason.clone())),
        Value::Failed(failure) => {
            Outcome::Failed(remark(failure.kind.name(), failure.reason.clone()))
        }
        Value::Measured(figure) => match (report.lost_too_many(figure), required(report, cell)) {
            (Some(lost), _) => {
                let words = notes::describe(std::slice::from_ref(lost));
                Outcome::Failed(remark(lost.name(), words))
            }
            (_, Some((Proof::NotMet, words))) => Outcome::Failed(remark("too-late", words)),
            (_, Some((Proof::NotProven, words))) => Outcome::Skipped(remark("not-proven", words)),
            (_, Some((Proof::Met, _)) | None) => Outcome::Passed,
        },
    }
}

/// Returns the verdict on a timer of which a share in time is required.
fn required(report: &Report, cell: &Cell) -> Option<(Proof, String)> {
    let judged = report.interrupts.iter().zip(verdicts(report));
    let mut of_cell = judged.filter(|(of, _)| of.config == cell.config && cell.op == of.op);
    let (_, verdict) = of_cell.next()?;
    Some((verdict.proof, verdict.words()))
}

/// Returns the figure with all its digits, in lines; empty without a figure.
pub(crate) fn figure_lines(cell: &Cell) -> String {
    let Some(figure) = cell.value.figure() else {
        return String::new();
    };
    let mut lines = format!("estimate: {} {}\n", figure.estimate, cell.unit);
    push_details(figure, &mut lines);
    lines
}

fn push_details(figure: &Figure, lines: &mut String) {
    if let Some(interval) = figure.interval {
        let (low, high) = (interval.low, interval.high);
        let level = crate::figures::level(interval.level);
        let _ = writeln!(lines, "interval ({level}): {low} to {high}");
    }
    let (min, max) = (figure.min, figure.max);
    let (batches, boots) = (figure.samples, figure.boots);
    let _ = writeln!(lines, "range: {min} to {max}");
    let _ = writeln!(lines, "batches: {batches}, boots: {boots}");
    for flag in &figure.flags {
        let _ = writeln!(
            lines,
            "note: {}",
            notes::describe(std::slice::from_ref(flag))
        );
    }
}
