//! One factor between the same operations on two clocks.

use super::context::Context;
use super::help::help;
use super::{heading, Section};
use crate::common_factor::{pairs, OfWorkload, Pair, EXPLANATION, LIMITS, TITLE};
use crate::document::{html as document, Look, Span, Table, ABSENT};
use crate::figures;
use maud::html;

/// `None` if no stack was measured on two clocks.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let pairs = pairs(context.report, &context.cells);
    if pairs.is_empty() {
        return None;
    }
    let mut table = Table::new("pair", COLUMNS);
    for pair in &pairs {
        for of in pair.outcome.iter().flatten() {
            let label = format!("{}: {}", pair.name(context.report), of.workload.name());
            table.row(label, row(pair, of));
        }
    }
    let body = html! {
        (heading(TITLE, help(TITLE, &HELP)))
        p.lead { (EXPLANATION) }
        @if !table.rows.is_empty() { (document::scrollable(TITLE, &document::table(&table))) }
        @for pair in &pairs {
            @if let Err(reason) = pair.outcome { p { (pair.name(context.report)) ": refused: " (reason) } }
            @if let Some(caveat) = &pair.caveat { p { (pair.name(context.report)) ": " (caveat) } }
        }
        p.beyond { (LIMITS) }
    };
    Some(Section::new(
        "common-factors",
        "Factors between clocks",
        body,
    ))
}

const COLUMNS: [&str; 5] = ["n", "factor", "typical error", "worst", "error"];

const HELP: [&str; 2] = [
    "The factor is the geometric mean of what the second clock has for one of the first. The error of an operation is what \
     the second clock has as a multiple of what the factor predicts; the typical one is the exponential of the standard \
     deviation of their logarithms, from four operations on.",
    "Published cycles are those of the section of that name, by processor.",
];

fn row(pair: &Pair, of: &OfWorkload) -> [Span; COLUMNS.len()] {
    let (op, error) = of.worst();
    let factor = format!("{} {}", figures::quantity(of.common.factor), pair.unit());
    let typical = of
        .common
        .typical
        .map_or_else(|| ABSENT.to_owned(), figures::times);
    [
        Span::plain(of.operations.len().to_string()),
        Span::plain(factor),
        Span::new(typical, Look::Strong),
        Span::plain(op.path()),
        Span::plain(figures::times(error)),
    ]
}
