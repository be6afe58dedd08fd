//! How far the clocks agree: rank correlations of the same operations.

use super::context::Context;
use super::help::help;
use super::{heading, Section};
use crate::agreement::{pairs, probability, range, Pair, EXPLANATION, LIMITS, TITLE};
use maud::{html, Markup};
use trapline_model::names;

/// `None` if no stack was measured on two clocks.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let pairs = pairs(context.report(), &context.cells);
    let correlated = || pairs.iter().filter(|pair| pair.outcome.is_ok());
    if pairs.is_empty() {
        return None;
    }
    let body = html! {
        (heading(TITLE, help(TITLE, &HELP)))
        p.lead { (EXPLANATION) }
        @if correlated().next().is_some() {
            div.scroll tabindex="0" role="region" aria-label=(TITLE) { table.numbers {
                thead { tr {
                    @for column in COLUMNS { th scope="col" { (column) } }
                } }
                tbody { @for pair in correlated() { (row(pair)) } }
            } }
        }
        @for pair in &pairs {
            @if let Err(reason) = pair.outcome { p { (pair.name()) ": refused: " (reason) } }
            @if let Some(caveat) = &pair.caveat { p { (pair.name()) ": " (caveat) } }
        }
        p.beyond { (LIMITS) }
    };
    Some(context.section("agreement", "Agreement of the clocks", body))
}

const COLUMNS: [&str; 6] = ["pair", "n", "rho", "95% interval", "p", "farthest apart"];

const HELP: [&str; 2] = [
    "Spearman's rank correlation: 1 if both clocks put the operations into the same order, 0 if \
     their orders have nothing to do with each other. Operations are no random sample, and some \
     of them share a path, so the interval is that of operations like these.",
    "Published cycles are those of the section of that name, all of processors of one generation.",
];

fn row(pair: &Pair) -> Markup {
    let told = pair.outcome.as_ref().ok();
    html! {
        @if let Some(told) = told {
            tr {
                th.name scope="row" { (pair.name()) }
                td { (pair.operations.len()) }
                td.strong { (format!("{:.2}", told.all.rho)) }
                td { (told.all.interval.map_or("–".to_owned(), range)) }
                td { (probability(told.all.p)) }
                td { @if let Some((op, (a, b))) = pair.farthest() {
                    (names::path(op)) ", " (a) " and " (b) } }
            }
            @for (workload, count, within) in &told.within {
                tr {
                    th.name scope="row" { "– within " (workload.name()) }
                    td { (count) }
                    td.strong { (format!("{:.2}", within.rho)) }
                    td { (within.interval.map_or("–".to_owned(), range)) }
                    td { (probability(within.p)) }
                    td {}
                }
            }
        }
    }
}
