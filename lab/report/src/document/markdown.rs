//! Renders as Markdown.

use super::style::marks;
use super::{Bars, Block, Cell, Document, Marker, Note, Row, Section, Table};
use std::fmt::Write;

/// Renders `document`.
pub fn render(document: &Document) -> String {
    let mut text = String::new();
    push_notes(&document.head, &mut text);
    for section in &document.sections {
        push_section(section, &mut text);
    }
    text
}

fn push_section(section: &Section, text: &mut String) {
    let (title, explanation) = (escaped(&section.title.text), escaped(&section.explanation));
    // Writing to a string cannot fail.
    let _ = match (title.is_empty(), explanation.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => writeln!(text, "**{title}**\n"),
        (false, false) => writeln!(text, "**{title}**: {explanation}\n"),
    };
    let is_note = |block: &Block| matches!(block, Block::Note(_));
    let parts = section
        .blocks
        .chunk_by(|one, next| is_note(one) && is_note(next));
    for part in parts {
        for block in part {
            match block {
                Block::Table(table) => push_table(table, text),
                Block::Bars(bars) => push_bars(bars, text),
                Block::Note(note) => push_note(note, text),
            }
        }
        text.push('\n');
    }
}

fn push_notes(notes: &[Note], text: &mut String) {
    for note in notes {
        push_note(note, text);
        text.push('\n');
    }
}

fn push_note(note: &Note, text: &mut String) {
    let words = escaped(&note.text);
    let _ = match &note.marker {
        Marker::Paragraph => writeln!(text, "{words}"),
        Marker::Item | Marker::Detail | Marker::Warning => writeln!(text, "- {words}"),
        // Two spaces end the line.
        Marker::Footnote(number) => writeln!(text, "{} {words}  ", marks(&[*number], true)),
        Marker::Subject(subject) => writeln!(text, "- {}: {words}", escaped(subject)),
    };
}

fn push_table(table: &Table, text: &mut String) {
    let titles = table.columns.iter().map(|column| escaped(&column.title));
    push_row(&escaped(&table.corner), titles, text);
    let _ = writeln!(text, "|:-|{}", "-:|".repeat(table.columns.len()));
    for row in &table.rows {
        match row {
            Row::Heading { name, remark } => {
                let label = format!("**{}** {}", escaped(name), escaped(remark));
                let empty = table.columns.iter().map(|_| String::new());
                push_row(label.trim_end(), empty, text);
            }
            Row::Cells { label, cells } => push_row(&escaped(label), cells.iter().map(cell), text),
        }
    }
}

fn push_row(label: &str, cells: impl Iterator<Item = String>, text: &mut String) {
    let cells: Vec<String> = cells.collect();
    let _ = writeln!(text, "| {label} | {} |", cells.join(" | "));
}

/// Returns the parts of a cell; one that begins with a sign belongs to the part before it.
fn cell(cell: &Cell) -> String {
    let mut text = String::new();
    let parts = cell.parts.iter().filter(|part| !part.text.is_empty());
    for (index, part) in parts.enumerate() {
        text.push_str(match index {
            0 => "",
            _ if part.text.starts_with(['±', '+']) => " ",
            _ => ", ",
        });
        text.push_str(&escaped(&part.text));
        if index == 0 {
            text.push_str(&marks(&cell.notes, true));
        }
    }
    format!("{text} {}", escaped(&cell.below))
        .trim_end()
        .to_owned()
}

/// Writes the bars as a table of their totals.
fn push_bars(bars: &Bars, text: &mut String) {
    let mut table = Table::new("", ["total"]);
    for bar in &bars.bars {
        table.row(bar.label.clone(), [super::Span::plain(bar.total.clone())]);
    }
    push_table(&table, text);
}

/// Escapes everything that Markdown takes for structure.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
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
