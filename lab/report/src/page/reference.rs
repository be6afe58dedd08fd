//! What others have published of the same operations, beside one's own figures.
//!
//! Cycles of another machine are no nanoseconds of this one: what is compared are multiples,
//! each of a first figure of the same source or the same run.

use super::context::Context;
use super::help::help;
use super::who::{self, Row};
use super::{heading, Section};
use crate::figures;
use crate::references::{cards, Card, Value};
use maud::{html, Markup};
use trapline_abi::Op;
use trapline_model::EnvironmentId;
use trapline_stats::Figure;

/// `None` if nothing that was measured has been published.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let cards = cards().into_iter();
    let shown: Vec<Card> = cards.filter(|card| is_known(context, card)).collect();
    (!shown.is_empty()).then(|| {
        let body = html! {
            (heading("Beside published figures", help("Beside published figures", &HELP)))
            div.cards { @for card in &shown { (drawn(context, card)) } }
        };
        context.section("published", "Published", body)
    })
}

const HELP: [&str; 2] = [
    "Figures that others have published of the same operation, with their source. The machines are \
     not yours and the units often differ, so compare the multiples (×), each of the first figure of \
     its own column.",
    "Figures here are of the environment that is most like the published one; its name says which, \
     and by which clock.",
];

/// The row of this run beside a published value, if it was measured.
fn here<'a>(context: &'a Context<'_>, card: &Card, value: &Value) -> Option<(Row, &'a Figure)> {
    let row = EnvironmentId::from_name(value.here.as_deref()?)?;
    Some((row, context.figure(row, Op::from_path(&card.operation)?)?))
}

fn is_known(context: &Context<'_>, card: &Card) -> bool {
    let mut values = card.values.iter();
    values.any(|value| here(context, card, value).is_some())
}

fn drawn(context: &Context<'_>, card: &Card) -> Markup {
    html! {
        article {
            h3 { (card.operation) }
            p.source { (card.source) }
            table.numbers {
                thead { tr {
                    th scope="col" { "published" }
                    th scope="col" { (card.unit) } th scope="col" { "×" }
                    th scope="col" { "here" } th scope="col" { "×" }
                } }
                tbody { @for value in &card.values { (line(context, card, value)) } }
            }
            p.beyond { (card.caveat) }
        }
    }
}

fn line(context: &Context<'_>, card: &Card, value: &Value) -> Markup {
    let base = card.values.get(card.base);
    let times = value.value.zip(base.and_then(|base| base.value));
    let found = here(context, card, value);
    let base_here = base.and_then(|base| here(context, card, base));
    // Never two clocks.
    let own = found
        .zip(base_here)
        .filter(|(a, b)| a.0.clock() == b.0.clock());
    let own = own.map(|(a, b)| a.1.estimate / b.1.estimate);
    let multiple = |ratio: Option<f64>| ratio.map(|ratio| figures::times(ratio, true));
    html! {
        tr {
            th.name scope="row" { (value.who) }
            td { (value.value.map_or("–".to_owned(), published)) }
            td.s { (multiple(times.map(|(value, base)| value / base)).unwrap_or_default()) }
            td { @if let Some((row, figure)) = found { (own_figure(card, row, figure)) } }
            td.s { (multiple(own).unwrap_or_default()) }
        }
    }
}

fn own_figure(card: &Card, row: Row, figure: &Figure) -> Markup {
    let op = Op::from_path(&card.operation);
    let value = op.map(|op| figures::value(figure.estimate, op, row.clock(), true));
    // Times on the wall clock have it with them.
    let unit = op.map(|op| trapline_stats::value::unit(op, row.clock()));
    let unit = unit.filter(|unit| *unit != "ns" && *unit != card.unit);
    html! {
        (value.unwrap_or_default())
        @if let Some(unit) = unit { " " (unit) }
        br; span.beyond { (who::name(row)) }
    }
}

/// As it was published: all its digits.
fn published(value: f64) -> String {
    match value.fract() == 0.0 {
        true => figures::exact(value),
        false => format!("{value}"),
    }
}
