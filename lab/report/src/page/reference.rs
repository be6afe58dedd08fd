//! Published figures of the same operations, beside those of the run.
//!
//! Cycles of another machine are no nanoseconds of this one: what is compared are multiples,
//! each of a first figure of the same source or the same run.

use super::context::Context;
use super::help::help;
use super::{heading, Section};
use crate::document::{html as document, Cell, Look, Span, Table};
use crate::figures;
use crate::references::{cards, Card, Value};
use maud::{html, Markup};
use trapline_model::{EnvironmentId, Operation};
use trapline_stats::Figure;

/// Returns `None` if no measured operation has been published.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let cards = cards().into_iter();
    let shown: Vec<Card> = cards.filter(|card| is_known(context, card)).collect();
    (!shown.is_empty()).then(|| {
        let body = html! {
            (heading("Beside published figures", help("Beside published figures", &HELP)))
            div.cards { @for card in &shown { (drawn(context, card)) } }
        };
        Section::new("published", "Published", body)
    })
}

const HELP: [&str; 2] = [
    "Figures that others have published of the same operation, with their source. The machines are \
     not yours and the units often differ, so compare the multiples (×), each of the first figure of \
     its own column.",
    "Figures here are of the environment that is most like the published one; its name says which, \
     and by which clock.",
];

/// Returns the environment of the run beside a published value and the figure of its first configuration, if it was
/// measured.
fn here<'a>(
    context: &'a Context<'_>,
    card: &Card,
    value: &Value,
) -> Option<(EnvironmentId, &'a Figure)> {
    let row = EnvironmentId::from_name(value.here.as_deref()?)?;
    let config = context.report.first(row)?;
    Some((
        row,
        context.figure(config, Operation::from_path(&card.operation)?)?,
    ))
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
            (document::table(&table(context, card)))
            p.beyond { (card.caveat) }
        }
    }
}

fn table(context: &Context<'_>, card: &Card) -> Table {
    let mut table = Table::new("published", [&card.unit, "×", "here", "×"]);
    let base = card.values.get(card.base);
    let base_here = base.and_then(|base| here(context, card, base));
    let times =
        |ratio: Option<f64>| Span::new(ratio.map_or(String::new(), figures::times), Look::Faint);
    for value in &card.values {
        let found = here(context, card, value);
        let ratio = base.map(|base| value.value / base.value);
        // Never two clocks.
        let own = found
            .zip(base_here)
            .filter(|(a, b)| a.0.clock() == b.0.clock());
        let cells: [Cell; 4] = [
            Span::plain(published(value.value)).into(),
            times(ratio).into(),
            found.map_or_else(Cell::default, |(row, figure)| own_figure(card, row, figure)),
            times(own.map(|(a, b)| a.1.estimate / b.1.estimate)).into(),
        ];
        table.row(value.who.clone(), cells);
    }
    table
}

fn own_figure(card: &Card, row: EnvironmentId, figure: &Figure) -> Cell {
    let Some(op) = Operation::from_path(&card.operation) else {
        return Cell::default();
    };
    let value = figures::value(figure.estimate, op, row.clock());
    // Times on the wall clock contain their unit.
    let unit = trapline_stats::value::unit(op, row.clock());
    let text = match unit {
        "ns" => value,
        unit if unit == card.unit => value,
        unit => format!("{value} {unit}"),
    };
    Cell {
        below: row.to_string(),
        ..Span::plain(text).into()
    }
}

/// Formats a published figure with all its digits.
fn published(value: f64) -> String {
    if value.fract() == 0.0 {
        figures::exact(value)
    } else {
        format!("{value}")
    }
}
