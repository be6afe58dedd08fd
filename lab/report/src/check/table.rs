//! Table for a terminal: causes, changes, result.

use super::{both, causes, difference, functions, percent, signed, verdict};
use std::fmt::Write;
use trapline_gate::{Comparison, Row};
use trapline_model::line::one_line;
use trapline_profile::text::{clip, clip_path};
use trapline_profile::Function;

/// Formats changes; no line is wider than 80 columns unless a fact is.
pub fn table(comparison: &Comparison) -> String {
    let mut text = String::new();
    for cause in causes(comparison) {
        let _ = writeln!(text, "{cause}");
    }
    let rows: Vec<&Row> = comparison.changes().collect();
    text.push_str(&figures(&rows));
    for note in &comparison.notes {
        let _ = writeln!(text, "note: {}", one_line(note));
    }
    let _ = writeln!(text, "{}", verdict(comparison));
    text
}

/// Formats rows by configuration, of which they are in order: old, new, difference, percent.
pub fn figures(rows: &[&Row]) -> String {
    let mut text = String::new();
    for of_config in rows.chunk_by(|one, other| one.config == other.config) {
        let _ = writeln!(
            text,
            "\n{:<24} {:>16} {:>16} {:>12}",
            of_config[0].config.to_string(),
            "old",
            "new",
            "difference"
        );
        for row in of_config {
            push(row, &mut text);
        }
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

fn push(row: &Row, text: &mut String) {
    let (old, new) = both(row);
    let line = format!(
        "{:<24} {old:>16} {new:>16} {:>12} {:>8}",
        one_line(&row.operation),
        difference(row),
        percent(row)
    );
    let _ = writeln!(text, "{}", line.trim_end());
    if let Some(reason) = row.reason.as_deref().filter(|reason| !reason.is_empty()) {
        let _ = writeln!(text, "    {}", one_line(reason));
    }
    push_functions(row, text);
}

/// Widths of a component and of a function name.
const COMPONENT: usize = 18;
const FUNCTION: usize = 44;

fn push_functions(row: &Row, text: &mut String) {
    let Some(functions) = functions(row) else {
        return;
    };
    for change in functions.listed {
        let Function { component, name } = &change.function;
        let _ = writeln!(
            text,
            "    {:>11}  {:<COMPONENT$} {}",
            signed(change.difference()),
            clip(&one_line(component), COMPONENT),
            clip_path(&one_line(name), FUNCTION)
        );
    }
    for line in functions.rest.iter().chain(&functions.caveat) {
        let _ = writeln!(text, "    {line}");
    }
}
