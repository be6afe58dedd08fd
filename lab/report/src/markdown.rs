//! A report to paste into an issue or a README.

use crate::against::{Against, Entry};
use crate::figures;
use crate::notes::{self, Notes, Reason};
use crate::table::{self, Shown};
use crate::{printable, Report};
use std::fmt::Write;
use trapline_abi::Unit;
use trapline_model::{names, Clock, EnvironmentId};
use trapline_stats::{Cell, Figure, Value};

/// The report as Markdown: a table for each clock, then what was not measured.
pub fn markdown(report: &Report) -> String {
    let cells = report.cells();
    let mut text = String::new();
    if !report.variant.is_usual() {
        let _ = writeln!(text, "With {}:\n", escaped(&report.variant.to_string()));
    }
    for clock in Clock::ALL {
        push_table(&cells, clock, &mut text);
    }
    push_against(&cells, &mut text);
    push_reasons("Failed", &notes::failures(&cells), &mut text);
    push_reasons("Not measured", &notes::skips(&cells), &mut text);
    let seed = report.seed.map(|seed| format!(", seed {seed}"));
    let (version, seed) = (escaped(&report.version), seed.unwrap_or_default());
    let _ = writeln!(text, "Measured by Trapline {version}{seed}.");
    text
}

fn push_table(cells: &[Cell], clock: Clock, text: &mut String) {
    let Some(shown) = Shown::measured(cells, clock) else {
        return;
    };
    let title = match clock {
        Clock::Wall => "wall clock",
        Clock::Insn => "instructions",
        Clock::InsnVmx => "instructions, Intel",
    };
    push_titles(title, &shown.environments, text);
    let mut notes = Notes::default();
    for op in &shown.operations {
        let cell = |id: &EnvironmentId| shown.cell(*id, *op);
        let row: Vec<String> = shown
            .environments
            .iter()
            .map(|id| cell(id).map_or("–".into(), |cell| entry(cell, &mut notes)))
            .collect();
        let _ = writeln!(text, "| {} | {} |", names::path(*op), row.join(" | "));
    }
    text.push('\n');
    push_notes(&notes.texts(), text);
}

/// What is known by its title in a table's first place.
fn push_titles(title: &str, environments: &[EnvironmentId], text: &mut String) {
    let names: Vec<&str> = environments.iter().map(|id| id.name()).collect();
    let _ = writeln!(text, "| {title} | {} |", names.join(" | "));
    let _ = writeln!(text, "|:-|{}", "-:|".repeat(names.len()));
}

fn push_against(cells: &[Cell], text: &mut String) {
    let Some(mut against) = Against::new(cells) else {
        return;
    };
    let environments = against.environments.clone();
    push_titles("times bare", &environments, text);
    for op in against.operations.clone() {
        let entries = environments.iter().map(|id| match against.entry(*id, op) {
            Entry::Absent => "–".to_owned(),
            Entry::Times(ratio) => figures::times(ratio, true),
            Entry::Refused(number) => format!("–{}", table::marks(&[number], true)),
        });
        let row: Vec<_> = entries.collect();
        let _ = writeln!(text, "| {} | {} |", names::path(op), row.join(" | "));
    }
    text.push('\n');
    push_notes(&against.refused(), text);
}

fn push_notes(texts: &[String], text: &mut String) {
    for (number, note) in (1..).zip(texts) {
        let mark = table::marks(&[number], true);
        let _ = writeln!(text, "{mark} {}  ", escaped(note));
    }
    if !texts.is_empty() {
        text.push('\n');
    }
}

fn entry(cell: &Cell, notes: &mut Notes) -> String {
    let marks = table::marks(&notes.on(cell), true);
    match &cell.value {
        Value::Measured(figure) => format!("{}{marks}", measured(cell, figure)),
        Value::Skip(_) => "–".to_owned(),
        Value::Failed(_) => "**failed**".to_owned(),
    }
}

fn measured(cell: &Cell, figure: &Figure) -> String {
    let value = |value| {
        let text = figures::value(value, cell.op, cell.clock, true);
        match (cell.op.unit(), cell.clock) {
            (Unit::Rate, _) => format!("{text} {}", cell.unit),
            _ => text,
        }
    };
    if let Some(limit) = figure.resolution() {
        return format!("<{}", value(limit));
    }
    let mut text = value(figure.estimate);
    let spread = table::spread(figure, true);
    if !spread.is_empty() {
        let _ = write!(text, " {spread}");
    }
    if let Some(ratio) = figure.ratio.filter(|_| !cell.environment.is_bare()) {
        let _ = write!(text, " ({}", figures::times(ratio.estimate, true));
        let spread = table::ratio_spread(cell, figure, true);
        let separator = if spread.is_empty() { "" } else { " " };
        let _ = write!(text, "{separator}{spread})");
    }
    if let Some(range) = table::range(cell, figure) {
        let _ = write!(text, ", {range}");
    }
    text
}

fn push_reasons(title: &str, reasons: &[Reason], text: &mut String) {
    if reasons.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title}:\n");
    for reason in reasons {
        let _ = writeln!(text, "- {}: {}", reason.cells, escaped(&reason.text));
    }
    text.push('\n');
}

/// Text of others must not become structure.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in printable(text).chars() {
        if matches!(
            c,
            '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '|' | '#'
        ) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
