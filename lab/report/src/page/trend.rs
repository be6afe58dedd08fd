//! The figures of all runs of a store as a page: a plot for each operation and clock, with a line for each
//! configuration, and the shifts in words.

use super::axis::{polyline, px, Axis};
use super::shell::{self, Head};
use super::{below_title, heading, labels, Section};
use crate::document::{json, Document};
use crate::figures::{self, clock_title};
use maud::{html, Markup};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use trapline_abi::{Op, Unit};
use trapline_model::{names, Clock};
use trapline_stats::history::{Screened, Screening};
use trapline_stats::value;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 196.0;
/// Ends of the axes.
const ACROSS: (f64, f64) = (76.0, 508.0);
const DOWN: (f64, f64) = (150.0, 22.0);

/// Renders the page; `document` has the shifts in words.
pub fn page(screening: &Screening, document: &Document) -> String {
    let mut plots: BTreeMap<(Clock, Op), Vec<&Screened>> = BTreeMap::new();
    for one in &screening.series {
        let key = (one.series.clock(), one.series.op);
        plots.entry(key).or_default().push(one);
    }
    let words = Section {
        id: "headline".to_owned(),
        title: "Shifts".to_owned(),
        body: html! {
            h1 { "Figures of all runs" }
            (below_title(document))
        },
    };
    let clocks = Clock::ALL.into_iter().filter_map(|clock| {
        let here = plots.iter().filter(|((of, _), _)| *of == clock);
        let here: Vec<_> = here
            .map(|((_, op), series)| (*op, series.as_slice()))
            .collect();
        (!here.is_empty()).then(|| of_clock(clock, &here))
    });
    let sections: Vec<Section> = std::iter::once(words).chain(clocks).collect();
    let data = json::render(&[&document.object], false);
    let head = Head {
        title: "Trapline: history".to_owned(),
        ..Head::default()
    };
    shell::document(&head, &sections, &data).into_string()
}

fn of_clock(clock: Clock, plots: &[(Op, &[&Screened])]) -> Section {
    let title = clock_title(clock);
    Section {
        id: clock.name().to_owned(),
        title: title.to_owned(),
        body: html! {
            (heading(title, html! {}))
            p.lead { "A dashed line is a shift. All configurations of an operation have one scale." }
            div.trends { @for (op, series) in plots { (plot(*op, series)) } }
        },
    }
}

fn plot(op: Op, all: &[&Screened]) -> Markup {
    let entries = || all.iter().flat_map(|one| &one.series.entries);
    let runs: BTreeSet<i64> = entries().map(|entry| entry.moment.run).collect();
    let values = || entries().filter_map(|entry| entry.figure.as_ref().ok().copied());
    let low = values().fold(f64::INFINITY, f64::min);
    let high = values().fold(f64::NEG_INFINITY, f64::max);
    if !low.is_finite() {
        return html! {};
    }
    let margin = ((high - low) * 0.08).max(high.abs() * 0.01);
    let frame = Frame {
        runs: runs.into_iter().collect(),
        down: Axis::new((low - margin, high + margin), DOWN),
        op,
        clock: all[0].series.clock(),
    };
    html! {
        figure.cloud {
            figcaption { b { (names::path(op)) } }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(frame.words(all.len())) {
                (frame.axes())
                @for one in all { (frame.series(one)) }
            }
            p.legend { @for one in all {
                span.(labels::tone(one.series.config.environment)) { i.dot {} (name(one)) }
            } }
        }
    }
}

/// Returns the name of a series among those of its operation.
fn name(one: &Screened) -> String {
    let settings = &one.series.settings;
    match settings.is_empty() {
        true => one.series.config.to_string(),
        false => format!("{}, {settings}", one.series.config),
    }
}

/// The axes that all series of an operation share.
struct Frame {
    runs: Vec<i64>,
    down: Axis,
    op: Op,
    clock: Clock,
}

impl Frame {
    fn words(&self, series: usize) -> String {
        let (op, runs) = (names::path(self.op), self.runs.len());
        format!("{op}: {series} series over {runs} runs")
    }

    fn value(&self, value: f64) -> String {
        figures::value(value, self.op, self.clock)
    }

    /// Returns the position of a run: runs have equal distances.
    fn across(&self, run: i64) -> f64 {
        let place = self.runs.binary_search(&run).unwrap_or(0) as f64;
        let last = (self.runs.len().max(2) - 1) as f64;
        ACROSS.0 + place / last * (ACROSS.1 - ACROSS.0)
    }

    fn axes(&self) -> Markup {
        let ticks = self.down.ticks(4);
        let mut grid = format!("M{} {}H{}", ACROSS.0, DOWN.0, ACROSS.1);
        for tick in &ticks {
            let _ = write!(
                grid,
                "M{} {}H{}",
                ACROSS.0,
                px(self.down.at(*tick)),
                ACROSS.1
            );
        }
        let step = self.runs.len().div_ceil(8).max(1);
        let title = match self.op.unit() {
            Unit::Rate => value::unit(self.op, self.clock),
            Unit::Time if self.clock.is_exact() => "insn",
            Unit::Time => "time",
        };
        html! {
            path.grid d=(grid) {}
            text.t.start x="2" y="12" { (title) }
            @for tick in &ticks {
                text.t.end x=(ACROSS.0 - 5.0) y=(px(self.down.at(*tick) + 3.5)) { (self.value(*tick)) }
            }
            @for run in self.runs.iter().step_by(step) {
                text.t x=(px(self.across(*run))) y=(DOWN.0 + 16.0) { (run) }
            }
            text.t x=(px((ACROSS.0 + ACROSS.1) / 2.0)) y=(HEIGHT - 10.0) { "run" }
        }
    }

    fn series(&self, one: &Screened) -> Markup {
        let entries = one.series.entries.iter();
        let points = entries.filter_map(|entry| {
            let value = *entry.figure.as_ref().ok()?;
            Some((self.across(entry.moment.run), self.down.at(value)))
        });
        let points: Vec<(f64, f64)> = points.collect();
        html! {
            g.(labels::tone(one.series.config.environment)) {
                path.line d=(polyline(&points)) {}
                @for (x, y) in &points { circle.dot cx=(px(*x)) cy=(px(*y)) r="2.4" {} }
                @for shift in &one.shifts {
                    @let x = self.across(shift.moment.run);
                    path.estimate d={ "M" (px(x)) " " (DOWN.1) "V" (DOWN.0) } {}
                    text.t.end x=(px(x - 3.0)) y=(DOWN.1 - 2.0) {
                        (format!("{:+.1}%", (shift.point.change - 1.0) * 100.0)) }
                }
            }
        }
    }
}
