//! Latency of loads by working set: a plot for each order of addresses, with a line for each environment.

use super::axis::{polyline, px, Axis};
use super::context::Context;
use super::help::help;
use super::labels;
use super::{heading, Section};
use crate::figures;
use maud::{html, Markup};
use std::fmt::Write;
use trapline_abi::sweep::{Pattern, Sweep, SIZES};
use trapline_model::{Clock, EnvironmentId};
use trapline_stats::Cell;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 236.0;
/// Ends of the axes.
const ACROSS: (f64, f64) = (62.0, 500.0);
const DOWN: (f64, f64) = (190.0, 22.0);

/// Returns `None` if no latency of loads was measured.
pub fn section(context: &Context<'_>) -> Option<Section> {
    let points: Vec<Point> = context.cells.iter().filter_map(point).collect();
    let times = || points.iter().map(|point| point.time);
    let low = times().reduce(f64::min)?.log10();
    let high = times().reduce(f64::max)?.log10();
    let size = |bytes: u64| (bytes as f64).log2();
    let frame = Frame {
        across: Axis::new((size(SIZES[0]), size(SIZES[SIZES.len() - 1])), ACROSS),
        down: Axis::new((low - 0.1, high + 0.1), DOWN),
    };
    let title = "Latency of loads";
    Some(context.section(
        "memory",
        title,
        html! {
            (heading("Latency of loads, wall clock", help(title, &HELP)))
            p.lead { "Each load waits for the one before. All plots have the same axes, which are logarithmic." }
            div.trends { @for pattern in Pattern::ALL { (plot(&frame, pattern, &points)) } }
        },
    ))
}

const HELP: [&str; 2] = [
    "A step upwards is the end of a cache, or of what the TLB covers. In a virtual machine with nested page \
     tables a TLB miss walks two of them, which a stride over pages shows, and a random order.",
    "An order that the processor predicts is prefetched, so that sequential loads hardly wait.",
];

/// Latency of one environment and operation.
struct Point {
    environment: EnvironmentId,
    sweep: Sweep,
    time: f64,
}

fn point(cell: &Cell) -> Option<Point> {
    Some(Point {
        environment: cell.environment,
        sweep: Sweep::of(cell.op).filter(|_| cell.clock == Clock::Wall)?,
        time: cell.value.figure()?.estimate,
    })
}

/// The axes that all plots share, of logarithms.
struct Frame {
    across: Axis,
    down: Axis,
}

fn plot(frame: &Frame, pattern: Pattern, points: &[Point]) -> Markup {
    let here: Vec<&Point> = points
        .iter()
        .filter(|point| point.sweep.pattern == pattern)
        .collect();
    let ids = EnvironmentId::all();
    let lines: Vec<(EnvironmentId, Vec<&Point>)> = ids
        .map(|id| {
            let of_it = here.iter().filter(|point| point.environment == id);
            (id, of_it.copied().collect())
        })
        .filter(|(_, points): &(_, Vec<&Point>)| !points.is_empty())
        .collect();
    html! {
        @if !lines.is_empty() {
            figure.cloud {
                figcaption { b { "memory/" (pattern.name()) } }
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(words(pattern, &lines)) {
                    (frame.axes())
                    @for (id, points) in &lines { (frame.line(*id, points)) }
                }
                p.legend { @for (id, _) in &lines {
                    span.(labels::tone(*id)) { i.dot {} (id.name()) }
                } }
            }
        }
    }
}

/// The plot in words: the latency of the largest working set.
fn words(pattern: Pattern, lines: &[(EnvironmentId, Vec<&Point>)]) -> String {
    let ends = lines.iter().filter_map(|(id, points)| {
        let last = points.last()?;
        let time = figures::time_with_unit(last.time, Clock::Wall);
        Some(format!("{id} {time} at {}", size(last.sweep.bytes)))
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

impl Frame {
    fn axes(&self) -> Markup {
        // 1, 2 and 5 times the powers of ten from 0.1 ns to 1 µs.
        let ticks = (-1..=3).flat_map(|decade| [1.0, 2.0, 5.0].map(|by| by * 10f64.powi(decade)));
        let down = |tick: f64| self.down.at(tick.log10());
        let ticks: Vec<f64> = ticks
            .filter(|tick| down(*tick) > DOWN.1 && down(*tick) < DOWN.0)
            .collect();
        let mut grid = format!("M{} {}H{}", ACROSS.0, DOWN.0, ACROSS.1);
        for tick in &ticks {
            let _ = write!(grid, "M{} {}H{}", ACROSS.0, px(down(*tick)), ACROSS.1);
        }
        html! {
            path.grid d=(grid) {}
            text.t.start x="2" y="12" { "time of a load" }
            @for tick in &ticks {
                text.t.end x=(ACROSS.0 - 5.0) y=(px(down(*tick) + 3.5)) {
                    (figures::time(*tick, Clock::Wall).replace(".00", "").replace(".0", "")) }
            }
            @for bytes in SIZES {
                text.t x=(px(self.at(bytes))) y=(DOWN.0 + 16.0) { (size(bytes)) }
            }
            text.t x=(px((ACROSS.0 + ACROSS.1) / 2.0)) y=(HEIGHT - 10.0) { "working set, bytes" }
        }
    }

    fn at(&self, bytes: u64) -> f64 {
        self.across.at((bytes as f64).log2())
    }

    fn line(&self, id: EnvironmentId, points: &[&Point]) -> Markup {
        let places = points.iter().map(|point| {
            let across = self.at(point.sweep.bytes);
            (across, self.down.at(point.time.log10()))
        });
        let places: Vec<(f64, f64)> = places.collect();
        html! {
            g.(labels::tone(id)) {
                path.line d=(polyline(&places)) {}
                @for (x, y) in &places { circle.dot cx=(px(*x)) cy=(px(*y)) r="2.4" {} }
            }
        }
    }
}
