//! A plot of figures of one operation over things in an order: runs, kernels, sizes. They have equal distances.

use super::axis::{polyline, px, Axis};
use crate::figures;
use maud::{html, Markup};
use std::fmt::Write;
use trapline_abi::Unit;
use trapline_model::{Clock, Operation};
use trapline_stats::value;

const WIDTH: f64 = 520.0;
/// Ends of the axes.
const ACROSS: (f64, f64) = (76.0, 508.0);
const DOWN: (f64, f64) = (150.0, 22.0);

/// Most names of one line each; longer ones, and more of them, slant.
const MOST_NAMES: usize = 8;
const SHORT_NAME: usize = 7;

/// Height below the axis: of names of one line, and of slanting ones per character.
const LEVEL: f64 = 46.0;
const SLANTED: f64 = 3.2;

/// The axes that all lines of an operation share.
pub struct Frame {
    /// Title of the axis.
    pub title: &'static str,
    /// Names of the places.
    pub names: Vec<String>,
    /// The operation.
    pub op: Operation,
    /// Its clock.
    pub clock: Clock,
    /// The lowest and the highest value, with some room.
    pub values: (f64, f64),
}

/// A line.
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Class of its colour.
    pub tone: &'static str,
    /// Places and values.
    pub points: Vec<(usize, f64)>,
    /// Marks above the line.
    pub marks: Markup,
}

/// Returns the range of values, with some room.
pub fn around(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    let margin = ((high - low) * 0.08).max(high.abs() * 0.01);
    (low - margin, high + margin)
}

impl Frame {
    /// Draws the lines; nothing without values.
    pub fn plot(&self, lines: &[Line]) -> Markup {
        if !self.values.0.is_finite() {
            return html! {};
        }
        html! {
            figure.cloud {
                figcaption { b { (self.op.path()) } }
                svg viewBox={ "0 0 " (WIDTH) " " (px(self.height())) } role="img" aria-label=(self.words(lines.len())) {
                    (self.axes())
                    @for line in lines { (self.line(line)) }
                }
                p.legend { @for line in lines {
                    span.(line.tone) { i.dot {} (line.name) }
                } }
            }
        }
    }

    /// Returns the position of a place.
    pub fn across(&self, place: usize) -> f64 {
        let last = (self.names.len().max(2) - 1) as f64;
        ACROSS.0 + place as f64 / last * (ACROSS.1 - ACROSS.0)
    }

    /// Returns the position of the upper end.
    pub fn top(&self) -> f64 {
        DOWN.1
    }

    /// Draws a dashed line at a position.
    pub fn rule(&self, x: f64) -> Markup {
        html! { path.estimate d={ "M" (px(x)) " " (DOWN.1) "V" (DOWN.0) } {} }
    }

    fn longest(&self) -> usize {
        let lengths = self.names.iter().map(|name| name.chars().count());
        lengths.max().unwrap_or(0)
    }

    fn slants(&self) -> bool {
        self.longest() > SHORT_NAME
    }

    fn height(&self) -> f64 {
        let names = if self.slants() {
            SLANTED * self.longest() as f64
        } else {
            0.0
        };
        DOWN.0 + LEVEL + names
    }

    fn words(&self, lines: usize) -> String {
        let (op, places) = (self.op.path(), self.names.len());
        format!("{op}: {lines} series over {places} of {}", self.title)
    }

    fn axes(&self) -> Markup {
        let down = Axis::new(self.values, DOWN);
        let ticks = down.ticks(4);
        let mut grid = format!("M{} {}H{}", ACROSS.0, DOWN.0, ACROSS.1);
        for tick in &ticks {
            let _ = write!(grid, "M{} {}H{}", ACROSS.0, px(down.at(*tick)), ACROSS.1);
        }
        let unit = match self.op.unit() {
            Unit::Rate => value::unit(self.op, self.clock),
            Unit::Time if self.clock.is_exact() => "insn",
            Unit::Time => "time",
        };
        let value = |tick: f64| figures::value(tick, self.op, self.clock);
        html! {
            path.grid d=(grid) {}
            text.t.start x="2" y="12" { (unit) }
            @for tick in &ticks {
                text.t.end x=(ACROSS.0 - 5.0) y=(px(down.at(*tick) + 3.5)) { (value(*tick)) }
            }
            (self.names())
            text.t x=(px((ACROSS.0 + ACROSS.1) / 2.0)) y=(px(self.height() - 10.0)) { (self.title) }
        }
    }

    fn names(&self) -> Markup {
        let step = if self.slants() {
            self.names.len().div_ceil(3 * MOST_NAMES)
        } else {
            self.names.len().div_ceil(MOST_NAMES)
        };
        let shown = self.names.iter().enumerate().step_by(step.max(1));
        let shown = shown.map(|(place, name)| (px(self.across(place)), name));
        let y = px(DOWN.0 + if self.slants() { 12.0 } else { 16.0 });
        html! { @for (x, name) in shown {
            @if self.slants() {
                text.t.end x=(x) y=(y) transform={ "rotate(-30 " (x) " " (y) ")" } { (name) }
            } @else {
                text.t x=(x) y=(y) { (name) }
            }
        } }
    }

    fn line(&self, line: &Line) -> Markup {
        let down = Axis::new(self.values, DOWN);
        let points = line.points.iter();
        let points = points.map(|(place, value)| (self.across(*place), down.at(*value)));
        let points: Vec<(f64, f64)> = points.collect();
        html! {
            g.(line.tone) {
                path.line d=(polyline(&points)) {}
                @for (x, y) in &points { circle.dot cx=(px(*x)) cy=(px(*y)) r="2.4" {} }
                (line.marks)
            }
        }
    }
}
