//! A plot of lines with logarithmic axes.

use super::axis::{polyline, px, Axis};
use crate::figures;
use maud::{html, Markup};
use std::fmt::Write;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 236.0;
/// Ends of the axes.
const ACROSS: (f64, f64) = (62.0, 500.0);
const DOWN: (f64, f64) = (190.0, 22.0);

/// Axes that several plots may share.
pub struct Frame {
    across: LogAxis,
    down: LogAxis,
}

/// A logarithmic axis.
pub struct LogAxis {
    /// Shown quantity, with its unit.
    pub title: &'static str,
    /// The lowest and the highest value, both above 0.
    pub range: (f64, f64),
    /// Values with a tick, and their names.
    pub ticks: Vec<(f64, String)>,
}

/// A line.
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Class of its colour.
    pub tone: &'static str,
    /// Values across and down.
    pub points: Vec<(f64, f64)>,
}

/// Returns 1, 2 and 5 times the powers of ten within a range.
pub fn round_numbers((low, high): (f64, f64)) -> Vec<f64> {
    let first = low.log10().floor() as i32;
    let last = high.log10().ceil() as i32;
    let all = (first..=last).flat_map(|decade| [1.0, 2.0, 5.0].map(|by| by * 10f64.powi(decade)));
    all.filter(|it| (low..=high).contains(it)).collect()
}

/// Returns the lowest and the highest value with some room; `None` without values.
pub fn range_of(values: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    const ROOM: f64 = 1.26;
    let low = values.clone().reduce(f64::min)?;
    let high = values.reduce(f64::max)?;
    Some((low / ROOM, high * ROOM))
}

impl LogAxis {
    /// Returns an axis with some room around values, and ticks at round numbers; `None` without values.
    pub fn around(title: &'static str, values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let range = range_of(values)?;
        let name = |tick| figures::quantity(tick).replace(".00", "").replace(".0", "");
        let ticks = round_numbers(range).into_iter();
        Some(Self {
            title,
            range,
            ticks: ticks.map(|tick| (tick, name(tick))).collect(),
        })
    }

    fn between(&self, ends: (f64, f64)) -> Axis {
        let (low, high) = self.range;
        Axis::new((low.log10(), high.log10()), ends)
    }
}

impl Frame {
    /// Creates the axes.
    pub fn new(across: LogAxis, down: LogAxis) -> Self {
        Self { across, down }
    }

    /// Draws lines under a caption. `words` says the same to those who do not see it.
    pub fn plot(&self, caption: &str, words: &str, lines: &[Line]) -> Markup {
        html! {
            figure.cloud {
                figcaption { b { (caption) } }
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(words) {
                    (self.axes())
                    @for line in lines { (self.line(line)) }
                }
                p.legend { @for line in lines {
                    span.(line.tone) { i.dot {} (line.name) }
                } }
            }
        }
    }

    fn axes(&self) -> Markup {
        let (across, down) = (self.across.between(ACROSS), self.down.between(DOWN));
        let mut grid = format!("M{} {}H{}", ACROSS.0, DOWN.0, ACROSS.1);
        for (tick, _) in &self.down.ticks {
            let _ = write!(
                grid,
                "M{} {}H{}",
                ACROSS.0,
                px(down.at(tick.log10())),
                ACROSS.1
            );
        }
        html! {
            path.grid d=(grid) {}
            text.t.start x="2" y="12" { (self.down.title) }
            @for (tick, name) in &self.down.ticks {
                text.t.end x=(ACROSS.0 - 5.0) y=(px(down.at(tick.log10()) + 3.5)) { (name) }
            }
            @for (tick, name) in &self.across.ticks {
                text.t x=(px(across.at(tick.log10()))) y=(DOWN.0 + 16.0) { (name) }
            }
            text.t x=(px((ACROSS.0 + ACROSS.1) / 2.0)) y=(HEIGHT - 10.0) { (self.across.title) }
        }
    }

    fn line(&self, line: &Line) -> Markup {
        let (across, down) = (self.across.between(ACROSS), self.down.between(DOWN));
        let places = line.points.iter();
        let places = places.map(|(x, y)| (across.at(x.log10()), down.at(y.log10())));
        let places: Vec<(f64, f64)> = places.collect();
        html! {
            g.(line.tone) {
                path.line d=(polyline(&places)) {}
                @for (x, y) in &places { circle.dot cx=(px(*x)) cy=(px(*y)) r="2.4" {} }
            }
        }
    }
}

/// Draws lines on axes that have just room for them. Nothing without points.
pub fn drawn(lines: &[Line], caption: &str, [across, down]: [&'static str; 2]) -> Markup {
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = LogAxis::around(across, points().map(|point| point.0));
    let y = LogAxis::around(down, points().map(|point| point.1));
    html! { @if let Some((x, y)) = x.zip(y) {
        (Frame::new(x, y).plot(caption, &words(caption, lines), lines))
    } }
}

/// Returns a plot in words: the last point of each line.
pub fn words(caption: &str, lines: &[Line]) -> String {
    let ends = lines.iter().filter_map(|line| {
        let (x, y) = line.points.last()?;
        let [x, y] = [*x, *y].map(figures::quantity);
        Some(format!("{} {y} at {x}", line.name))
    });
    let ends: Vec<String> = ends.collect();
    format!("{caption}: {}", ends.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_numbers_are_within_the_range() {
        assert_eq!(round_numbers((0.8, 24.0)), [1.0, 2.0, 5.0, 10.0, 20.0]);
        let (low, high) = range_of([2.0, 8.0].into_iter()).unwrap();
        assert!(low < 2.0 && high > 8.0);
        assert_eq!(range_of(std::iter::empty()), None);
    }
}
