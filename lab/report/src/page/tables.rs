//! Tables that the terminal has, too: ratios of both exact clocks side by side, memory
//! that is given to a guest, and requests to disks.

use super::context::Context;
use super::help::help;
use super::{heading, Section};
use crate::grid::{Grid, Titled};
use crate::sheet::{Group, Label, Look, Sheet, Span};
use crate::{against, block, populate, printable};
use maud::{html, Markup};
use trapline_model::Clock;

/// Costs against bare, where two exact clocks were measured.
pub fn against(context: &Context<'_>) -> Option<Section> {
    let (sheet, notes) = against::sheet(&context.cells, true)?;
    let title = "Against bare";
    let body = html! {
        (heading(title, help(title, &AGAINST)))
        p.lead { "Times the bare row of the same clock; clocks are never mixed" }
        div.scroll tabindex="0" role="region" aria-label=(title) { (of_sheet(&sheet)) }
        @if !notes.is_empty() { ol.notes { @for note in &notes { li { (printable(note)) } } } }
    };
    Some(context.section("against", title, body))
}

const AGAINST: [&str; 1] = [
    "What each environment costs in units of its own bare row is a number without a clock, and such \
     numbers may stand in one table: two exact clocks are two makers of processors.",
];

/// What was measured of memory and disks, if anything was.
pub fn memory_and_disks(context: &Context<'_>) -> Option<Section> {
    let report = context.report();
    let memory = |clock| populate::tables(report, clock, true);
    let disks = |clock| block::table(report, clock, true);
    let has = |clock| !memory(clock).is_empty() || disks(clock).is_some();
    if !Clock::ALL.into_iter().any(has) {
        return None;
    }
    let title = "Memory and disks";
    let body = html! {
        (heading(title, help(title, &[populate::WORDS, block::WORDS])))
        @for clock in Clock::ALL {
            @for table in &memory(clock) { (titled(table)) }
            @if let Some(table) = disks(clock) {
                (titled(&table))
                ul.notes { @for text in block::facts(report, clock) { li { (printable(&text)) } } }
            }
        }
    };
    Some(context.section("memory-and-disks", title, body))
}

fn titled(table: &Titled) -> Markup {
    html! {
        h3 { (table.title) }
        p.lead { (table.explanation) }
        div.scroll tabindex="0" role="region"
            aria-label={ (table.title) ", " (table.explanation) } { (of_grid(&table.grid)) }
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

fn of_grid(grid: &Grid) -> Markup {
    html! {
        table.numbers {
            thead { tr { th scope="col" { (grid.names) }
                @for column in &grid.columns { th scope="col" { (column) } } } }
            tbody { @for (name, cells) in &grid.rows {
                tr { th.name scope="row" { (name) }
                    @for span in cells { td class=[class(span.look)] { (span.text) } } }
            } }
        }
    }
}

/// Groups of columns as columns: what is beside a figure stands behind it.
fn of_sheet(sheet: &Sheet) -> Markup {
    let mut row = 0;
    html! {
        table.numbers {
            thead { tr { th scope="col" { "operation" }
                @for group in &sheet.groups { th scope="col" { (group.title.text) } } } }
            tbody { @for label in &sheet.labels {
                @match label {
                    Label::Heading(name, _) => tr.group {
                        th scope="rowgroup" colspan=(sheet.groups.len() + 1) { (name.text) }
                    },
                    Label::Row(name) => {
                        tr { th.name scope="row" { (name.text) }
                            @for group in &sheet.groups { (of_group(group, row)) } }
                        ({ row += 1; "" })
                    }
                }
            } }
        }
    }
}

fn of_group(group: &Group, row: usize) -> Markup {
    let spans = group.rows.get(row).into_iter().flatten();
    let spans: Vec<&Span> = spans.filter(|span| !span.text.is_empty()).collect();
    html! {
        td { @for span in spans { span class=[class(span.look)] { (span.text) } " " } }
    }
}
