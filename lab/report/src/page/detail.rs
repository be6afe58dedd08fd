//! What stands behind each figure of the wall clock: a closed part for each operation,
//! with a picture of all values and a table of their numbers for each environment.

use super::cloud::{Cloud, Grain};
use super::context::Context;
use super::help::help;
use super::who::{self, Row};
use super::{heading, Section};
use crate::{figures, printable};
use maud::{html, Markup};
use trapline_abi::Op;
use trapline_model::{names, Clock};
use trapline_stats::modes::{modes, Mode};
use trapline_stats::spread::Sorted;
use trapline_stats::{judge, Cell, Figure};

/// `None` if nothing was measured on the wall clock, or nothing is known but figures.
pub fn section(context: &Context<'_>) -> Option<Section> {
    if context.study.observations.is_empty() {
        return None;
    }
    let shown = context.shown(Clock::Wall)?;
    let title = "Distributions";
    let measured = context
        .cells
        .iter()
        .filter(|cell| cell.clock == Clock::Wall);
    let boots = measured.filter_map(|cell| Some(cell.value.figure()?.boots));
    let grain = Grain::fitting(boots.sum());
    Some(context.section(
        "distributions",
        title,
        html! {
            (heading("Distributions, wall clock", help(title, &HELP)))
            p.lead { "Every batch of every boot. Open an operation, or choose it in the table above." }
            div.operations {
                @for op in &shown.operations { (operation(context, *op, grain)) }
            }
        },
    ))
}

const HELP: [&str; 3] = [
    "Above: how many batches came to which value. In the middle: the share of batches that are at \
     most so much. Below: each boot, from 5% to 95% of its batches, thicker from 25% to 75%, with \
     its median. The line through all is the estimate, the shade around it its interval over boots.",
    "Values that gather around several are modes, and named. Where boots lie apart, the boot is what \
     decides, and the interval over boots is what to look at.",
    "Each picture has its own axis: shapes are compared here, sizes in the table.",
];

/// Where the detail of an operation stands, if there is one.
pub fn address(context: &Context<'_>, op: Op) -> String {
    context.id(&format!("on-{}-{}", op.workload().name(), op.name()))
}

fn operation(context: &Context<'_>, op: Op, grain: Grain) -> Markup {
    let cast = context.cast(Clock::Wall);
    let rows: Vec<(Row, &Cell, &Figure)> = cast
        .rows()
        .iter()
        .filter_map(|row| {
            let of = |cell: &&Cell| who::row(cell) == *row && cell.op == op;
            let cell = context.cells.iter().find(of)?;
            Some((*row, cell, cell.value.figure()?))
        })
        .collect();
    html! {
        details #(address(context, op)) {
            summary { span.of { (op.workload().name()) "/" } b { (op.name()) }
                span.what { (op.what()) } }
            div.clouds {
                @for (row, cell, figure) in &rows { (cloud(context, *row, cell, figure, grain)) }
            }
            div.scroll tabindex="0" role="region" aria-label={ (names::path(op)) " in numbers" } {
                (numbers(&rows))
            }
        }
    }
}

fn cloud(context: &Context<'_>, row: Row, cell: &Cell, figure: &Figure, grain: Grain) -> Markup {
    let here = context.study.observations.iter();
    let here = here.filter(|seen| seen.environment == row);
    let mut told = judge::boots_of(here.clone(), cell.op);
    told.sort_by_key(|boot| boot.block);
    let step = judge::clock_step(here, cell.op);
    let boots = told
        .into_iter()
        .filter_map(|boot| Sorted::new(boot.batches));
    let boots: Vec<Sorted> = boots.collect();
    let Some(all) = Sorted::new(boots.iter().flat_map(Sorted::iter).collect()) else {
        return html! {};
    };
    let modes = modes(&all.iter().collect::<Vec<f64>>(), step);
    let tone = context.cast(cell.clock).tone(row);
    let picture = Cloud {
        op: cell.op,
        figure,
        boots: &boots,
        all: &all,
        grain,
    };
    html! {
        figure.cloud.(tone) {
            figcaption { i.dot {} (who::name(row)) " "
                b { (figures::value(figure.estimate, cell.op, cell.clock, true)) } }
            (picture.drawn(who::name(row)))
            (gathered(&modes, cell))
        }
    }
}

/// Around which values they gather, where those are several.
fn gathered(modes: &[Mode], cell: &Cell) -> Markup {
    let one = |mode: &Mode| {
        let value = figures::value(mode.location, cell.op, cell.clock, true);
        format!("{value} ({})", figures::percent(mode.share))
    };
    let all: Vec<String> = modes.iter().map(one).collect();
    html! {
        @if all.len() > 1 {
            p.beyond { (all.len()) " modes: " (all.join(", ")) }
        }
    }
}

const TITLES: [&str; 12] = [
    "environment",
    "estimate",
    "95% from",
    "to",
    "min",
    "p50",
    "p90",
    "p99",
    "max",
    "batches",
    "exits",
    "host CPU",
];

fn numbers(rows: &[(Row, &Cell, &Figure)]) -> Markup {
    html! {
        table.numbers {
            thead { tr { @for title in TITLES { th scope="col" { (title) } } } }
            tbody {
                @for (row, cell, figure) in rows {
                    tr {
                        th.name scope="row" { (who::name(*row)) }
                        @for text in line(cell, figure) { td { (printable(&text)) } }
                    }
                }
            }
        }
    }
}

fn line(cell: &Cell, figure: &Figure) -> Vec<String> {
    let value = |value| figures::value(value, cell.op, cell.clock, true);
    let known = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    vec![
        value(figure.estimate),
        known(figure.interval.map(|one| value(one.low))),
        known(figure.interval.map(|one| value(one.high))),
        value(figure.min),
        value(figure.p50),
        value(figure.p90),
        value(figure.p99),
        value(figure.max),
        figures::count(figure.samples as u64),
        known(figure.exits.map(figures::quantity)),
        known(figure.host_cpu_ns.map(|ns| figures::nanoseconds(ns, true))),
    ]
}
