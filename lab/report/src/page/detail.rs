//! Details of the figures of the wall clock: for each operation a plot of all values by environment
//! and a table of statistics.

use super::context::Context;
use super::distribution_plot::{Detail, DistributionPlot};
use super::help::help;
use super::labels::{self, Row};
use super::{heading, Section};
use crate::document::{html as document, Span, Table, ABSENT};
use crate::figures;
use maud::{html, Markup};
use trapline_abi::Op;
use trapline_model::{names, Clock};
use trapline_stats::modes::{modes, Mode};
use trapline_stats::Sorted;
use trapline_stats::{verdict, Cell, Figure};

/// Returns `None` without observations of the wall clock.
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
    let grain = Detail::fitting(boots.sum());
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

/// Returns the id of the details of an operation.
pub fn address(context: &Context<'_>, op: Op) -> String {
    context.id(&format!("on-{}-{}", op.workload().name(), op.name()))
}

fn operation(context: &Context<'_>, op: Op, grain: Detail) -> Markup {
    let palette = context.palette(Clock::Wall);
    let rows: Vec<(Row, &Cell, &Figure)> = palette
        .rows()
        .iter()
        .filter_map(|row| {
            let of = |cell: &&Cell| labels::row(cell) == *row && cell.op == op;
            let cell = context.cells.iter().find(of)?;
            Some((*row, cell, cell.value.figure()?))
        })
        .collect();
    html! {
        details #(address(context, op)) {
            summary { span.of { (op.workload().name()) "/" } b { (op.name()) }
                span.what { (op.description()) } }
            div.clouds {
                @for (row, cell, figure) in &rows { (cloud(context, *row, cell, figure, grain)) }
            }
            (document::scrollable(&format!("{} in numbers", names::path(op)), &document::table(&numbers(&rows))))
        }
    }
}

fn cloud(context: &Context<'_>, row: Row, cell: &Cell, figure: &Figure, grain: Detail) -> Markup {
    let here = context.study.observations.iter();
    let here = here.filter(|seen| seen.environment == row);
    let mut boots = verdict::boot_values(here.clone(), cell.op);
    boots.sort_by_key(|boot| boot.block);
    let step = verdict::clock_step(here, cell.op);
    let boots = boots
        .into_iter()
        .filter_map(|boot| Sorted::new(boot.batches));
    let boots: Vec<Sorted> = boots.collect();
    let Some(all) = Sorted::new(boots.iter().flat_map(Sorted::iter).collect()) else {
        return html! {};
    };
    let modes = modes(&all.iter().collect::<Vec<f64>>(), step);
    let tone = context.palette(cell.clock).tone(row);
    let picture = DistributionPlot {
        op: cell.op,
        figure,
        boots: &boots,
        all: &all,
        grain,
    };
    html! {
        figure.cloud.(tone) {
            figcaption { i.dot {} (labels::name(row)) " "
                b { (figures::value(figure.estimate, cell.op, cell.clock)) } }
            (picture.drawn(labels::name(row)))
            (gathered(&modes, cell))
        }
    }
}

/// Returns the modes, if there are several.
fn gathered(modes: &[Mode], cell: &Cell) -> Markup {
    let one = |mode: &Mode| {
        let value = figures::value(mode.location, cell.op, cell.clock);
        format!("{value} ({})", figures::percent(mode.share))
    };
    let all: Vec<String> = modes.iter().map(one).collect();
    html! {
        @if all.len() > 1 {
            p.beyond { (all.len()) " modes: " (all.join(", ")) }
        }
    }
}

const COLUMNS: [&str; 11] = [
    "estimate", "95% from", "to", "min", "p50", "p90", "p99", "max", "batches", "exits", "host CPU",
];

fn numbers(rows: &[(Row, &Cell, &Figure)]) -> Table {
    let mut table = Table::new("environment", COLUMNS);
    for (row, cell, figure) in rows {
        table.row(labels::name(*row), line(cell, figure));
    }
    table
}

fn line(cell: &Cell, figure: &Figure) -> [Span; COLUMNS.len()] {
    let value = |value| figures::value(value, cell.op, cell.clock);
    let known = |value: Option<String>| value.unwrap_or_else(|| ABSENT.to_owned());
    [
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
        known(figure.host_cpu_ns.map(figures::nanoseconds)),
    ]
    .map(Span::plain)
}
