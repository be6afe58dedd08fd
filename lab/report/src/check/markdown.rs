//! Markdown for a pull request.

use super::{both, causes, difference, functions, percent, signed, verdict};
use std::fmt::Write;
use trapline_gate::{Comparison, Row};
use trapline_model::line::is_control;

/// Formats the result, causes, and a table of changes.
pub fn markdown(comparison: &Comparison) -> String {
    let mut text = format!("**Trapline** {}\n\n", verdict(comparison));
    let causes = causes(comparison);
    for cause in &causes {
        let _ = writeln!(text, "- {}", escaped(cause));
    }
    if !causes.is_empty() {
        text.push('\n');
    }
    if comparison.changes().next().is_none() {
        return text;
    }
    text.push_str("| environment | operation | old | new | difference | % | unit |\n");
    text.push_str("|:-|:-|-:|-:|-:|-:|:-|\n");
    for row in comparison.changes() {
        let (old, new) = both(row);
        let _ = writeln!(
            text,
            "| {} | {} | {old} | {new} | {} | {} | {} |",
            row.config,
            escaped(&row.operation),
            difference(row),
            percent(row),
            row.unit
        );
    }
    push_reasons(comparison, &mut text);
    comparison
        .changes()
        .for_each(|row| push_functions(row, &mut text));
    for note in &comparison.notes {
        let _ = writeln!(text, "\n{}", escaped(note));
    }
    text
}

/// Adds a folded table of functions.
fn push_functions(row: &Row, text: &mut String) {
    let Some(functions) = functions(row) else {
        return;
    };
    let place = format!("{} {}", row.config, row.operation);
    let (place, moved) = (escaped(&place), difference(row));
    let _ = write!(
        text,
        "\n<details><summary>{place}: {moved} by function</summary>\n\n\
         | difference | old | new | component | function |\n|-:|-:|-:|:-|:-|\n"
    );
    for change in functions.listed {
        let (old, new) = change.insn;
        let _ = writeln!(
            text,
            "| {} | {old:.3} | {new:.3} | {} | {} |",
            signed(change.difference()),
            escaped(&change.function.component),
            escaped(&change.function.name)
        );
    }
    for line in functions.rest.iter().chain(&functions.caveat) {
        let _ = writeln!(text, "\n{line}");
    }
    text.push_str("\n</details>\n");
}

fn push_reasons(comparison: &Comparison, text: &mut String) {
    let reason = |row: &Row| row.reason.clone().filter(|reason| !reason.is_empty());
    for row in comparison.changes() {
        if let Some(reason) = reason(row) {
            let place = format!("{} {}", row.config, row.operation);
            let _ = write!(text, "\n- {}: {}", escaped(&place), escaped(&reason));
        }
    }
    if comparison.changes().any(|row| reason(row).is_some()) {
        text.push('\n');
    }
}

/// Escapes Markdown syntax in foreign text.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '|' | '#' => escaped.extend(['\\', c]),
            c if is_control(c) => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
