//! Latency of loads by working set: a plot for each order of addresses, with a line for each configuration.

use super::context::Context;
use super::help::help;
use super::log_plot::{range_of, round_numbers, Frame, Line, LogAxis};
use super::{heading, labels, Section};
use crate::figures;
use maud::{html, Markup};
use std::collections::BTreeSet;
use trapline_abi::sweep::{Pattern, Sweep, SIZES};
use trapline_model::{Clock, Config};
use trapline_stats::Cell;

/// Returns `None` if no latency of loads was measured.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let points: Vec<Point<'_>> = context.cells.iter().filter_map(point).collect();
    let down = range_of(points.iter().map(|point| point.time))?;
    let short = |time: f64| {
        figures::time(time, Clock::Wall)
            .replace(".00", "")
            .replace(".0", "")
    };
    let frame = Frame::new(
        LogAxis {
            title: "working set, bytes",
            range: (SIZES[0] as f64, SIZES[SIZES.len() - 1] as f64),
            ticks: SIZES.map(|bytes| (bytes as f64, size(bytes))).to_vec(),
        },
        LogAxis {
            title: "time of a load",
            range: down,
            ticks: round_numbers(down)
                .into_iter()
                .map(|tick| (tick, short(tick)))
                .collect(),
        },
    );
    let title = "Latency of loads";
    Some(Section::new(
        "memory",
        title,
        html! {
            (heading("Latency of loads, wall clock", help(title, &HELP)))
            p.lead { "Each load waits for the one before. All plots have the same axes, which are logarithmic." }
            div.trends { @for pattern in Pattern::ALL { (plot(context, &frame, pattern, &points)) } }
        },
    ))
}

const HELP: [&str; 2] = [
    "A step upwards is the end of a cache, or of what the TLB covers. In a virtual machine with nested page \
     tables a TLB miss walks two of them, which a stride over pages shows, and a random order.",
    "An order that the processor predicts is prefetched, so that sequential loads hardly wait.",
];

/// Latency of one configuration and operation.
struct Point<'a> {
    config: &'a Config,
    sweep: Sweep,
    time: f64,
}

fn point(cell: &Cell) -> Option<Point<'_>> {
    Some(Point {
        config: &cell.config,
        sweep: Sweep::of(cell.op.guest()?).filter(|_| cell.clock == Clock::Wall)?,
        time: cell.value.figure()?.estimate,
    })
}

fn plot(context: &Context<'_>, frame: &Frame, pattern: Pattern, points: &[Point<'_>]) -> Markup {
    let here = || points.iter().filter(|it| it.sweep.pattern == pattern);
    let configs: BTreeSet<&Config> = here().map(|point| point.config).collect();
    let lines = configs.into_iter().map(|config| {
        let of_it = here().filter(|point| point.config == config);
        Line {
            name: context.name(config),
            tone: labels::tone(config.environment),
            points: of_it
                .map(|point| (point.sweep.bytes as f64, point.time))
                .collect(),
        }
    });
    let lines: Vec<Line> = lines.collect();
    let caption = format!("memory/{}", pattern.name());
    html! {
        @if !lines.is_empty() { (frame.plot(&caption, &words(pattern, &lines), &lines)) }
    }
}

/// The plot in words: the latency of the largest working set.
fn words(pattern: Pattern, lines: &[Line]) -> String {
    let ends = lines.iter().filter_map(|line| {
        let (bytes, time) = line.points.last()?;
        let time = figures::time_with_unit(*time, Clock::Wall);
        Some(format!("{} {time} at {}", line.name, size(*bytes as u64)))
    });
    let ends: Vec<String> = ends.collect();
    format!(
        "latency of {} loads by working set: {}",
        pattern.name(),
        ends.join(", ")
    )
}

fn size(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{}K", bytes >> 10),
        mib => format!("{mib}M"),
    }
}
