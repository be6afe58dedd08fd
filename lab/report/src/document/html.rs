//! Renders tables, bars and notes as HTML.

use super::{Bar, Bars, Block, Cell, Look, Marker, Note, Row, Section, Table};
use maud::{html, Markup};

/// Renders a section with its title as a subheading.
pub fn section(section: &Section) -> Markup {
    let title = &section.title.text;
    html! {
        @if !title.is_empty() { h3 { (title) } }
        @if !section.explanation.is_empty() { p.lead { (section.explanation) } }
        (blocks(section))
    }
}

/// Renders the tables and notes of a section.
pub fn blocks(section: &Section) -> Markup {
    let label = format!("{}, {}", section.title.text, section.explanation);
    let is_note = |block: &Block| matches!(block, Block::Note(_));
    html! {
        @for part in section.blocks.chunk_by(|one, next| is_note(one) && is_note(next)) {
            @match part {
                [Block::Table(table)] => (scrollable(&label, &self::table(table))),
                [Block::Bars(bars)] => (self::bars(bars)),
                notes => (list(notes)),
            }
        }
    }
}

/// Wraps a wide block.
pub fn scrollable(label: &str, body: &Markup) -> Markup {
    html! { div.scroll tabindex="0" role="region" aria-label=(label) { (body) } }
}

/// Smallest share of the width whose part has room for its name.
const WIDE: f64 = 0.12;

/// Renders bars on one scale, of which the longest is as wide as the page.
pub fn bars(bars: &Bars) -> Markup {
    let longest = bars.bars.iter().map(|bar| bar.length).fold(0.0, f64::max);
    let parts = || bars.bars.iter().flat_map(|bar| &bar.parts);
    let is_used = |kind: usize| parts().any(|part| part.kind == kind);
    let legend = bars.legend.iter().enumerate();
    html! {
        div.timelines { @for bar in &bars.bars { (self::bar(bar, &bars.legend, longest)) } }
        p.legend { @for (kind, name) in legend.filter(|(kind, _)| is_used(*kind)) {
            span { i.dot.(shade(kind)) {} (name) " " }
        } }
    }
}

fn bar(bar: &Bar, legend: &[String], longest: f64) -> Markup {
    let parts = || bar.parts.iter().filter(|part| part.length > 0.0);
    let name = |kind: usize| legend.get(kind).map_or("", String::as_str);
    html! {
        div.timeline {
            span.whose { (bar.label) }
            span.total { (bar.total) }
            div.stages {
                @for part in parts() {
                    span.(shade(part.kind)).gap[part.is_gap]
                        style={ "width:" (percent_of(part.length, longest)) "%" }
                        title={ (name(part.kind)) ": " (part.text) } {
                        @if part.length > longest * WIDE { (name(part.kind)) " " (part.text) }
                    }
                }
            }
        }
    }
}

/// Returns the class of the colour of a kind of parts.
fn shade(kind: usize) -> String {
    format!("s{}", kind % 9 + 1)
}

/// Returns a share in percent with one digit after the point.
pub fn percent_of(value: f64, whole: f64) -> String {
    let share = if whole > 0.0 { value / whole } else { 0.0 };
    let text = format!("{:.1}", (share * 100.0).clamp(0.0, 100.0));
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn list(blocks: &[Block]) -> Markup {
    let notes = blocks.iter().filter_map(|block| match block {
        Block::Note(note) => Some(note),
        _ => None,
    });
    html! { ul.notes { @for note in notes { li { (text(note)) } } } }
}

fn text(note: &Note) -> Markup {
    html! {
        @match &note.marker {
            Marker::Footnote(number) => { sup { (number) } " " },
            Marker::Subject(subject) => { b { (subject) } ": " },
            _ => {},
        }
        (with_code(&note.text))
    }
}

/// Renders text between backticks as code.
fn with_code(text: &str) -> Markup {
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// Renders a table.
pub fn table(table: &Table) -> Markup {
    html! {
        table.numbers {
            thead { tr { (header(&table.corner))
                @for column in &table.columns { (header(&column.title)) } } }
            tbody { @for row in &table.rows {
                @match row {
                    Row::Heading { name, .. } => tr.group {
                        th scope="rowgroup" colspan=(table.columns.len() + 1) { (name) }
                    },
                    Row::Cells { label, cells } => tr {
                        th.name scope="row" { (label) }
                        @for cell in cells { (self::cell(cell)) }
                    },
                }
            } }
        }
    }
}

/// Renders the title of a column. A header without text would be read out as one.
fn header(title: &str) -> Markup {
    html! { @if title.is_empty() { td {} } @else { th scope="col" { (title) } } }
}

fn cell(cell: &Cell) -> Markup {
    let is_single = cell.parts.len() == 1;
    let look = cell.parts.first().map_or(Look::Plain, |part| part.look);
    html! {
        td class=[class(look).filter(|_| is_single)] {
            @for (index, part) in cell.parts.iter().enumerate() {
                @if is_single { (part.text) } @else {
                    @if index > 0 { " " }
                    span class=[class(part.look)] { (part.text) }
                }
                @if index == 0 && !cell.notes.is_empty() {
                    sup { @for number in &cell.notes { (number) " " } }
                }
            }
            @if !cell.below.is_empty() { span.range { (cell.below) } }
        }
    }
}

fn class(look: Look) -> Option<&'static str> {
    match look {
        Look::Plain | Look::Heading => None,
        Look::Strong => Some("strong"),
        Look::Faint => Some("faint"),
        Look::Good => Some("good"),
        Look::Middling => Some("fair"),
        Look::Bad => Some("dear"),
    }
}
