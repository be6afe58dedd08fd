//! The table of one clock: operations down, configurations across, with bars.
//!
//! Bandwidths have another unit and another direction, and stand apart. Without the
//! script it is a table; the script sorts and filters it.

use super::context::{is_time, Context};
use super::labels;
use super::{clock_title, detail, heading, help, Section};
use crate::document::html::percent_of;
use crate::document::{Look, Span};
use crate::notes::Notes;
use crate::printable;
use crate::table::{self, Shown};
use maud::{html, Markup};
use trapline_abi::Workload;
use trapline_model::{Clock, Operation};
use trapline_stats::{Cell, Figure, Value};

/// The section of `clock`, if it has any figure of time.
pub fn section(context: &Context<'_>, clock: Clock) -> Option<Section> {
    let shown = context.shown(clock)?;
    let operations: Vec<Operation> = shown
        .operations
        .iter()
        .copied()
        .filter(|op| is_time(*op))
        .collect();
    if operations.is_empty() {
        return None;
    }
    let table = Table {
        id: clock.name(),
        context,
        shown,
        operations,
        details: clock == Clock::Wall && !context.observations.is_empty(),
    };
    let mut notes = Notes::default();
    let rows = table.body(&mut notes);
    let figure = match clock {
        Clock::Wall if table::replicates(&context.cells, clock) == "hosts" => {
            "time for one operation, median over hosts, with its spread,"
        }
        Clock::Wall => "time for one operation, with its spread,",
        _ => "instructions for one operation, mean over all batches,",
    };
    Some(Section::new(
        clock.name(),
        clock_title(clock),
        html! {
            (heading(clock_title(clock), help::of_table(clock)))
            p.lead { (figure) " and how many times that of "
                strong { (clock.bare().name()) } }
            (table.controls())
            div.scroll tabindex="0" role="region" aria-label={ (clock_title(clock)) " table" } {
                table.comparison id={ "table-" (table.id) } { (table.head()) (rows) }
            }
            (notes_below(context, &notes, table.id))
        },
    ))
}

struct Table<'a> {
    /// Prefix of the ids of its parts.
    id: &'static str,
    context: &'a Context<'a>,
    shown: Shown<'a>,
    operations: Vec<Operation>,
    /// True if each operation has a section of details.
    details: bool,
}

impl Table<'_> {
    fn controls(&self) -> Markup {
        html! {
            div.controls data-for={ "table-" (self.id) } {
                label { "Search "
                    input type="search" placeholder="operation" autocomplete="off" spellcheck="false"; }
                label { "Workload "
                    select { option value="" { "all" }
                        @for workload in self.workloads() {
                            option { (workload.name()) }
                        } } }
                fieldset { legend { "Environments" }
                    @for (column, row) in self.shown.configs.iter().enumerate() {
                        label.chip { input type="checkbox" checked value=(column);
                            i.dot.(labels::tone(row.environment)) {} (self.context.name(row)) }
                    } }
                output aria-live="polite" {}
            }
        }
    }

    fn workloads(&self) -> Vec<Workload> {
        let has = |workload: &Workload| self.operations.iter().any(|op| op.is_of(*workload));
        Workload::ALL.into_iter().filter(has).collect()
    }

    fn head(&self) -> Markup {
        html! {
            thead {
                tr {
                    th.name rowspan="2" scope="col" data-sort="order" { "operation" }
                    @for (column, row) in self.shown.configs.iter().enumerate() {
                        th.{ "c" (column) } scope="colgroup" colspan=(if row.environment.is_bare() { 1 } else { 2 })
                            title=(row.environment.description()) { i.dot.(labels::tone(row.environment)) {} (self.context.name(row)) }
                    }
                }
                tr {
                    @for (column, row) in self.shown.configs.iter().enumerate() {
                        th.v.{ "c" (column) } scope="col" data-sort={ "v" (column) }
                            data-label={ (self.context.name(row)) ", cost" } { "cost" }
                        @if !row.environment.is_bare() {
                            th.r.{ "c" (column) } scope="col" data-sort={ "r" (column) }
                                data-label={ (self.context.name(row)) ", times bare" } { "× bare" }
                        }
                    }
                }
            }
        }
    }

    fn body(&self, notes: &mut Notes) -> Markup {
        html! {
            @for workload in self.workloads() {
                tbody data-workload=(workload.name()) {
                    tr.group { th scope="rowgroup" colspan=(self.shown.configs.len() * 2 + 1) {
                        (workload.name()) " " span { (workload.question()) } } }
                    @for op in self.operations.iter().filter(|op| op.is_of(workload)) {
                        (self.row(*op, notes))
                    }
                }
            }
        }
    }

    fn row(&self, op: Operation, notes: &mut Notes) -> Markup {
        let largest = self.largest(op);
        html! {
            tr {
                th.name scope="row" { span.of { (op.workload_name()) "/" }
                    @match &self.details {
                        true => a.op href={ "#" (detail::address(op)) }
                            title=(op.description()) { (op.name()) },
                        false => span.op title=(op.description()) { (op.name()) },
                    } }
                @for (column, row) in self.shown.configs.iter().enumerate() {
                    (self.cell(column, self.shown.cell(row, op), largest, notes))
                    @if !row.environment.is_bare() { (ratio(column, self.shown.cell(row, op))) }
                }
            }
        }
    }

    /// The upper end of the bars of a line, which an interval does not move far; 0 where
    /// there is nothing to compare.
    fn largest(&self, op: Operation) -> f64 {
        let rows = self.shown.configs.iter();
        let figures = rows.filter_map(|row| self.shown.cell(row, op)?.value.figure());
        let ends = figures.map(|figure| {
            let high = figure.interval.map_or(figure.estimate, |one| one.high);
            high.min(figure.estimate * 1.5)
        });
        let ends: Vec<f64> = ends.collect();
        match ends.len() {
            0 | 1 => 0.0,
            _ => ends.into_iter().fold(0.0, f64::max),
        }
    }

    fn cell(&self, column: usize, cell: Option<&Cell>, largest: f64, notes: &mut Notes) -> Markup {
        let place = format!("c{column}");
        let absent = html! { td.v.none.(place) { "–" } };
        let Some(cell) = cell else { return absent };
        let name = self.context.name(&cell.config);
        match &cell.value {
            Value::Skip(_) => absent,
            Value::Failed(failure) => html! {
                td.v.(place) data-env=(name) {
                    span.failed title=(printable(&failure.reason)) { "failed" } }
            },
            Value::Measured(figure) => {
                let spread = table::spread(figure);
                html! {
                    td.v.(place).(labels::tone(cell.config.environment)) data-env=(name) data-v=(sort_key(figure.estimate)) {
                        span.figure { (value(cell, figure)) (self.marks(cell, notes)) }
                        @if !spread.is_empty() { span.s { (spread) } }
                        @if let Some(range) = table::range(cell, figure) {
                            span.range { "(" (range) ")" }
                        }
                        (bar(figure, largest))
                    }
                }
            }
        }
    }

    fn marks(&self, cell: &Cell, notes: &mut Notes) -> Markup {
        html! {
            @for number in notes.on(cell) {
                sup { a href={ "#note-" (self.id) "-" (number) }
                    aria-label={ "note " (number) } { (number) } }
            }
        }
    }
}

fn value(cell: &Cell, figure: &Figure) -> Markup {
    let Span { text, look } = table::estimate(cell, figure);
    match look {
        Look::Faint => html! { span.faint { (text) } },
        _ => html! { b { (text) } },
    }
}

fn bar(figure: &Figure, largest: f64) -> Markup {
    if figure.resolution().is_some() || figure.estimate <= 0.0 || largest <= 0.0 {
        return html! {};
    }
    let low = figure.interval.map_or(figure.estimate, |one| one.low);
    let high = figure
        .interval
        .map_or(figure.estimate, |one| one.high)
        .min(largest);
    html! {
        span.bar {
            i style={ "width:" (percent_of(low.min(figure.estimate), largest)) "%" } {}
            @if high > low {
                b style={ "width:" (percent_of(high - low, largest)) "%" } {}
            }
        }
    }
}

fn ratio(column: usize, cell: Option<&Cell>) -> Markup {
    let place = format!("c{column}");
    let figure = cell.and_then(|cell| Some((cell, cell.value.figure()?)));
    let Some((cell, figure)) = figure else {
        return html! { td.r.none.(place) {} };
    };
    let Span { text, look } = table::ratio(cell, figure);
    let Some(ratio) = figure.ratio.filter(|_| !text.is_empty()) else {
        return html! { td.r.none.(place) {} };
    };
    let class = match look {
        Look::Good => "good",
        Look::Bad => "dear",
        _ => "fair",
    };
    // An exact ratio has none.
    let spread = match table::ratio_spread(cell, figure) {
        none if none.is_empty() => none,
        spread => format!(" {spread}"),
    };
    html! {
        td.r.(place).(class) data-v=(sort_key(ratio.estimate)) { (text) (spread) }
    }
}

/// Returns the value that rows are sorted by, with seven significant digits: pages hold many.
fn sort_key(value: f64) -> f64 {
    format!("{value:.6e}").parse().unwrap_or(value)
}

fn notes_below(context: &Context<'_>, notes: &Notes, id: &str) -> Markup {
    let texts = notes.texts(context.report);
    html! {
        @if !texts.is_empty() {
            ol.notes {
                @for (number, text) in (1..).zip(&texts) {
                    li id={ "note-" (id) "-" (number) } { (printable(text)) }
                }
            }
        }
    }
}
