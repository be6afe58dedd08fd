//! Agreement of the clocks: rank correlations of the same operations.

use super::context::Context;
use super::help::help;
use super::{heading, Section};
use crate::agreement::{pairs, probability, range, Correlations, Pair, EXPLANATION, LIMITS, TITLE};
use crate::document::{html as document, Look, Span, Table, ABSENT};
use maud::html;
use trapline_stats::agreement::Agreement;

/// `None` if no stack was measured on two clocks.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let pairs = pairs(context.report, &context.cells);
    if pairs.is_empty() {
        return None;
    }
    let mut table = Table::new("pair", COLUMNS);
    for pair in &pairs {
        if let Ok(correlations) = &pair.outcome {
            push_rows(&pair.name(context.report), pair, correlations, &mut table);
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
    Some(Section::new("agreement", "Agreement of the clocks", body))
}

const COLUMNS: [&str; 5] = ["n", "rho", "95% interval", "p", "farthest apart"];

const HELP: [&str; 2] = [
    "Spearman's rank correlation: 1 if both clocks put the operations into the same order, 0 if \
     their orders have nothing to do with each other. Operations are no random sample, and some \
     of them share a path, so the interval is that of operations like these.",
    "Published cycles are those of the section of that name, all of processors of one generation.",
];

fn push_rows(name: &str, pair: &Pair, correlations: &Correlations, table: &mut Table) {
    let cells = |count: usize, agreement: &Agreement, farthest: String| {
        let interval = agreement.interval.map_or(ABSENT.to_owned(), range);
        [
            Span::plain(count.to_string()),
            Span::new(format!("{:.2}", agreement.rho), Look::Strong),
            Span::plain(interval),
            Span::plain(probability(agreement.p)),
            Span::plain(farthest),
        ]
    };
    let farthest = pair.farthest().map_or(String::new(), |(op, (a, b))| {
        format!("{}, {a} and {b}", op.path())
    });
    let count = pair.operations.len();
    table.row(name, cells(count, &correlations.all, farthest));
    for (workload, count, within) in &correlations.within {
        let label = format!("– within {}", workload.name());
        table.row(label, cells(*count, within, String::new()));
    }
}
