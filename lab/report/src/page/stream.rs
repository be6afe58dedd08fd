//! Memory bandwidth as bars, for each clock.

use super::context::{is_time, Context};
use super::help::help;
use super::labels;
use super::{clock_title, heading, Section};
use crate::document::html::percent_of;
use crate::figures;
use crate::notes;
use crate::printable;
use maud::{html, Markup};
use trapline_abi::{Op, Workload};
use trapline_model::Clock;
use trapline_stats::{value, Cell, Figure};

/// Returns `None` if no bandwidth was measured.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let measured = |cell: &&Cell| !is_time(cell.op) && cell.value.figure().is_some();
    context.cells.iter().find(measured)?;
    Some(Section::new(
        "stream",
        "Bandwidth",
        html! {
            (heading("Memory bandwidth", help("Memory bandwidth", &HELP)))
            p.lead { "STREAM after McCalpin, the same instructions everywhere. Longer is better." }
            @for clock in Clock::ALL { (of_clock(context, clock)) }
        },
    ))
}

const HELP: [&str; 2] = [
    "Bytes that are moved, counted as STREAM counts them, in millions a second, on an exact clock in \
     a thousand million instructions. The lighter end of a bar is its 95% interval, × is the figure \
     by that of the bare row.",
    "On an exact clock there is no memory to wait for: equal figures only say that the loops are the \
     same instructions.",
];

fn of_clock(context: &Context<'_>, clock: Clock) -> Markup {
    let cells = context.cells.iter();
    let cells = cells.filter(|cell| cell.clock == clock && cell.op.is_of(Workload::Stream));
    let measured = cells.filter_map(|cell| Some((cell, cell.value.figure()?)));
    let measured: Vec<(&Cell, &Figure)> = measured.collect();
    let ends = measured.iter().map(|(_, figure)| {
        let high = figure.interval.map_or(figure.estimate, |one| one.high);
        high.min(figure.estimate * 1.5)
    });
    let longest = ends.fold(0.0, f64::max);
    html! {
        @if !measured.is_empty() {
            h3 { (clock_title(clock)) ", " (value::unit(Op::Copy, clock)) }
            div.bandwidth {
                @for op in Workload::Stream.operations() {
                    div { h4 { (op.name()) } dl {
                        @for (cell, figure) in measured.iter().filter(|(cell, _)| cell.op == op) {
                            (line(context, cell, figure, longest))
                        }
                    } }
                }
            }
            (remarks(context, &measured))
        }
    }
}

fn line(context: &Context<'_>, cell: &Cell, figure: &Figure, longest: f64) -> Markup {
    let tone = labels::tone(cell.config.environment);
    let low = figure
        .interval
        .map_or(figure.estimate, |one| one.low)
        .min(figure.estimate);
    let high = figure
        .interval
        .map_or(figure.estimate, |one| one.high)
        .min(longest);
    let ratio = figure.ratio.filter(|_| !cell.config.environment.is_bare());
    html! {
        div.(tone) {
            dt { i.dot {} (context.name(&cell.config)) }
            dd {
                span.bar aria-hidden="true" {
                    i style={ "width:" (percent_of(low, longest)) "%" } {}
                    @if high > low { b style={ "width:" (percent_of(high - low, longest)) "%" } {} }
                }
                b { (figures::value(figure.estimate, cell.op, cell.clock)) }
                span.s { @if let Some(ratio) = ratio { (figures::times(ratio.estimate)) } }
            }
        }
    }
}

/// Renders the footnotes of the figures.
fn remarks(context: &Context<'_>, measured: &[(&Cell, &Figure)]) -> Markup {
    let mut all = notes::Notes::default();
    for (cell, _) in measured {
        all.on(cell);
    }
    let texts = all.texts(context.report);
    html! {
        @if !texts.is_empty() {
            ul.notes { @for text in &texts { li { (printable(text)) } } }
        }
    }
}
