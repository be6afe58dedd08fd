//! All values of one figure as a plot: histogram, ECDF and a strip for each boot, above one axis.
//!
//! The axis ends before outliers, unless it is shared with a wider plot; their number and maximum are written below the plot.

use super::axis::{px, Axis};
use crate::figures;
use maud::{html, Markup};
use std::fmt::Write;
use trapline_abi::Unit;
use trapline_model::{Clock, Operation};
use trapline_stats::value::unit;
use trapline_stats::Figure;
use trapline_stats::Sorted;

/// Width of the plot, ends of the axis, and rows from the top.
const WIDTH: f64 = 340.0;
const LEFT: f64 = 8.0;
const RIGHT: f64 = 332.0;
const HISTOGRAM: (f64, f64) = (6.0, 62.0);
const ECDF: (f64, f64) = (76.0, 120.0);
const STRIP: f64 = 132.0;
/// Largest height of a boot in the strip, and of all boots.
const BOOT: f64 = 9.0;
const STRIPS: f64 = 96.0;
/// Numbers of bars that divide the width evenly.
const BARS: [usize; 4] = [12, 18, 27, 36];

/// Level of detail of a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// All visible details.
    Fine,
    /// Fewer steps and only the median of each boot, to limit the size of a page with many plots.
    Coarse,
}

impl Detail {
    /// Returns the level for a page with this number of boots of all figures together.
    pub fn fitting(boots: usize) -> Self {
        match boots {
            0..=3_000 => Self::Fine,
            _ => Self::Coarse,
        }
    }

    /// Returns the largest number of bars.
    fn bars(self) -> usize {
        match self {
            Self::Fine => 36,
            Self::Coarse => 12,
        }
    }

    /// Returns the number of steps of the ECDF.
    fn steps(self) -> usize {
        match self {
            Self::Fine => 54,
            Self::Coarse => 9,
        }
    }
}

/// A figure with its values by boot.
pub struct DistributionPlot<'a> {
    pub op: Operation,
    pub figure: &'a Figure,
    pub boots: &'a [Sorted],
    pub all: &'a Sorted,
    pub grain: Detail,
}

impl DistributionPlot<'_> {
    /// Returns the ends of the axis that shows all values but outliers.
    pub fn ends(&self) -> (f64, f64) {
        (self.all.min(), self.end())
    }

    /// Renders the plot on an axis with these ends; screen readers read `name`.
    pub fn drawn(&self, name: &str, ends: (f64, f64)) -> Markup {
        let end = ends.1;
        let axis = Axis::new(ends, (LEFT, RIGHT));
        let bars = self.bars(&axis, end, self.bar_count());
        let each = (STRIPS / self.boots.len() as f64).min(BOOT);
        let bottom = STRIP + each * self.boots.len() as f64;
        let height = bottom + 36.0;
        html! {
            svg viewBox={ "0 0 " (WIDTH) " " (px(height)) } role="img" aria-label=(self.words(name)) {
                (self.band(&axis, bottom))
                use href="#frame" {}
                path.area d=(histogram(&bars, highest(&bars))) {}
                path.line d=(self.ecdf(&axis, end)) {}
                (self.strips(&axis, STRIP, each))
                (self.below(&axis, bottom))
            }
            (self.beyond("", end))
        }
    }

    /// Describes the plot for screen readers.
    fn words(&self, name: &str) -> String {
        let (all, value) = (self.all, |value| self.written(value));
        format!(
            "{name}: {} batches of {} boots from {} to {}, half of them at most {}, 99% at most {}",
            figures::count(all.count() as u64),
            self.boots.len(),
            value(all.min()),
            value(all.max()),
            value(all.median()),
            value(all.nearest_rank(99_000))
        )
    }

    /// Returns the title of the axis.
    fn title(&self) -> String {
        match self.op.unit() {
            Unit::Time => "time of one operation".to_owned(),
            Unit::Rate => format!("bandwidth, {}", unit(self.op, Clock::Wall)),
        }
    }

    fn written(&self, value: f64) -> String {
        figures::value(value, self.op, Clock::Wall)
    }

    /// Returns the end of the axis: the maximum, or the outlier limit if it is smaller. The interval is
    /// always on the axis.
    fn end(&self) -> f64 {
        let (low, high) = (self.all.nearest_rank(25_000), self.all.nearest_rank(75_000));
        let body = high + 3.0 * (high - low);
        let max = self.all.max();
        if high <= low || max <= body {
            return max;
        }
        let interval = self.figure.interval.map_or(body, |one| one.high);
        body.max(interval).min(max)
    }

    fn beyond(&self, side: &str, end: f64) -> Markup {
        let beyond = self.all.iter().filter(|value| *value > end).count();
        html! {
            @if beyond > 0 {
                p.beyond { (side) (figures::count(beyond as u64)) " of "
                    (figures::count(self.all.count() as u64))
                    " lie beyond, up to " (self.written(self.all.max())) }
            }
        }
    }

    /// Renders the estimate and its interval across all parts.
    fn band(&self, axis: &Axis, bottom: f64) -> Markup {
        let figure = self.figure;
        let at = px(axis.at(figure.estimate));
        html! {
            @if let Some((low, high)) = figure.interval.map(|one| (one.low, one.high)) {
                rect.band x=(px(axis.at(low))) y="0" height=(px(bottom))
                    width=(px((axis.at(high) - axis.at(low)).max(0.5))) {}
            }
            path.estimate d={ "M" (at) " 0V" (px(bottom)) } {}
        }
    }

    /// Returns the number of bars, more for more values.
    fn bar_count(&self) -> usize {
        let wanted = (self.all.count() as f64).sqrt() * 2.0;
        let fits = BARS.into_iter().find(|count| *count as f64 >= wanted);
        fits.unwrap_or(usize::MAX).min(self.grain.bars())
    }

    /// Returns the share of values in each of `count` bars.
    fn bars(&self, axis: &Axis, end: f64, count: usize) -> Vec<f64> {
        let width = (RIGHT - LEFT) / count as f64;
        let mut bars = vec![0usize; count];
        for value in self.all.iter().filter(|value| *value <= end) {
            let bar = ((axis.at(value) - LEFT) / width) as usize;
            bars[bar.min(count - 1)] += 1;
        }
        let all = self.all.count() as f64;
        bars.into_iter().map(|bar| bar as f64 / all).collect()
    }

    fn ecdf(&self, axis: &Axis, end: f64) -> String {
        let values: Vec<f64> = self.all.iter().map(|value| axis.at(value)).collect();
        let (top, bottom) = ECDF;
        let count = self.grain.steps();
        let width = (RIGHT - LEFT) / count as f64;
        let steps = (1..=count).map(|step| {
            let x = LEFT + width * step as f64;
            // Outliers stand at the end and are not reached.
            let reached = if step == count && self.all.max() > end {
                values.partition_point(|at| *at < x)
            } else {
                values.partition_point(|at| *at <= x)
            };
            let share = reached as f64 / values.len() as f64;
            (bottom - share * (bottom - top)).round()
        });
        stairs(bottom, width, steps)
    }

    /// Renders each boot: its range from 5% to 95%, thicker from 25% to 75%, and its median.
    fn strips(&self, axis: &Axis, top: f64, each: f64) -> Markup {
        let (mut wide, mut inner, mut medians) = (String::new(), String::new(), String::new());
        for (number, boot) in self.boots.iter().enumerate() {
            let middle = top + each * (number as f64 + 0.5);
            let at = |of_100_000| axis.at(boot.nearest_rank(of_100_000)).round();
            if self.grain == Detail::Fine {
                let y = px(middle);
                let _ = write!(wide, "M{} {y}H{}", at(5_000), at(95_000));
                let _ = write!(inner, "M{} {y}H{}", at(25_000), at(75_000));
            }
            let (x, half) = (axis.at(boot.median()).round(), each * 0.42);
            let _ = write!(medians, "M{x} {}v{}", px(middle - half), px(half * 2.0));
        }
        html! {
            @if self.grain == Detail::Fine {
                path.thin d=(wide) {}
                path.thick d=(inner) {}
            }
            path.tick d=(medians) {}
        }
    }

    /// Renders the axis with its ticks.
    fn below(&self, axis: &Axis, bottom: f64) -> Markup {
        let ticks = axis.ticks(3);
        let line = ticks
            .iter()
            .fold(format!("M{LEFT} {0}H{RIGHT}", px(bottom)), |line, tick| {
                format!("{line}M{} {}v4", px(axis.at(*tick)), px(bottom))
            });
        html! {
            path.axis d=(line) {}
            @for tick in &ticks {
                text.t x=(px(axis.at(*tick).clamp(LEFT + 18.0, RIGHT - 18.0))) y=(px(bottom + 16.0)) {
                    (self.written(*tick))
                }
            }
            text.t x=(px((LEFT + RIGHT) / 2.0)) y=(px(bottom + 30.0)) { (self.title()) }
        }
    }
}

/// Renders two plots on common axes, each in the colour of its class. Bars are shares of all values, on one
/// scale.
pub fn overlaid(plots: &[DistributionPlot<'_>; 2], names: [&str; 2], tones: [&str; 2]) -> Markup {
    let [a, b] = plots;
    let (of_a, of_b) = (a.ends(), b.ends());
    let ends = (of_a.0.min(of_b.0), of_a.1.max(of_b.1));
    let axis = Axis::new(ends, (LEFT, RIGHT));
    let count = a.bar_count().min(b.bar_count());
    let bars = [a, b].map(|plot| plot.bars(&axis, ends.1, count));
    let most = highest(&bars.concat());
    let boots = a.boots.len() + b.boots.len();
    let each = (STRIPS / boots as f64).min(BOOT);
    let tops = [STRIP, STRIP + each * a.boots.len() as f64];
    let bottom = STRIP + each * boots as f64;
    let words = format!("{}; {}", a.words(names[0]), b.words(names[1]));
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (px(bottom + 36.0)) } role="img" aria-label=(words) {
            use href="#frame" {}
            @for (side, plot) in plots.iter().enumerate() {
                g.overlaid.(tones[side]) {
                    (plot.band(&axis, bottom))
                    path.area d=(histogram(&bars[side], most)) {}
                    path.line d=(plot.ecdf(&axis, ends.1)) {}
                    (plot.strips(&axis, tops[side], each))
                }
            }
            (a.below(&axis, bottom))
        }
        (a.beyond("A: ", ends.1)) (b.beyond("B: ", ends.1))
    }
}

/// Returns the largest share, at least a positive number.
fn highest(bars: &[f64]) -> f64 {
    bars.iter().copied().fold(f64::MIN_POSITIVE, f64::max)
}

/// Returns the path of a histogram whose bars of share `most` have the full height.
fn histogram(bars: &[f64], most: f64) -> String {
    let (top, bottom) = HISTOGRAM;
    let width = (RIGHT - LEFT) / bars.len() as f64;
    let height = |bar: f64| (bar / most * (bottom - top)).ceil();
    let steps = bars.iter().map(|bar| bottom - height(*bar));
    format!("{}V{bottom}", stairs(bottom, width, steps))
}

/// Renders the labels and the grid of the ECDF, which all plots share.
pub fn frame() -> Markup {
    html! {
        svg.frame aria-hidden="true" { defs { g #frame {
            text.t.end x=(RIGHT) y="14" { "batches" }
            path.grid d=(ecdf_grid()) {}
            text.t.end x=(RIGHT) y=(ECDF.1 - 4.0) { "ECDF, line at 50%" }
        } } }
    }
}

/// Returns the path of steps of equal width.
fn stairs(bottom: f64, width: f64, heights: impl Iterator<Item = f64>) -> String {
    let mut path = format!("M{LEFT} {bottom}");
    let mut before = bottom;
    let mut run = 0.0;
    for height in heights {
        if height != before {
            if run > 0.0 {
                let _ = write!(path, "h{}", px(run));
            }
            let _ = write!(path, "v{}", px(height - before));
            (before, run) = (height, 0.0);
        }
        run += width;
    }
    let _ = write!(path, "h{}", px(run));
    path
}

fn ecdf_grid() -> String {
    let (top, bottom) = ECDF;
    let lines = [top, (top + bottom) / 2.0, bottom].map(|y| format!("M{LEFT} {y}H{RIGHT}"));
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::figure_between;
    use trapline_abi::Op;

    fn drawn(values: &[f64]) -> String {
        let boots = [Sorted::new(values.to_vec()).unwrap()];
        let plot = DistributionPlot {
            op: Op::PortOut.into(),
            figure: &figure_between(values[0] * 0.9, values[0], values[0] * 1.1),
            boots: &boots,
            all: &boots[0],
            grain: Detail::Fine,
        };
        plot.drawn("kvm", plot.ends()).into_string()
    }

    #[test]
    fn outliers_are_counted_and_not_drawn() {
        let mut values: Vec<f64> = (0..100).map(|i| 1000.0 + f64::from(i)).collect();
        assert!(!drawn(&values).contains("beyond"));
        values.push(1e6);
        values.push(2e6);
        let picture = drawn(&values);
        assert!(
            picture.contains("2 of 102 lie beyond, up to 2.00 ms"),
            "{picture}"
        );
        assert!(
            picture.contains("102 batches of 1 boots from 1.00 µs"),
            "{picture}"
        );
    }

    #[test]
    fn overlaid_plots_have_common_axes() {
        let values = |offset: f64| (0..100).map(move |i| offset + f64::from(i)).collect();
        let boots = [1000.0, 1050.0].map(|offset| [Sorted::new(values(offset)).unwrap()]);
        let figures = [1050.0, 1100.0].map(|value| figure_between(value - 9.0, value, value + 9.0));
        let plots = [0, 1].map(|side| DistributionPlot {
            op: Op::PortOut.into(),
            figure: &figures[side],
            boots: &boots[side],
            all: &boots[side][0],
            grain: Detail::Fine,
        });
        let picture = overlaid(&plots, ["kvm", "qemu-kvm"], ["t1", "t2"]).into_string();
        for part in [
            "overlaid t1",
            "overlaid t2",
            "kvm: 100 batches",
            "; qemu-kvm: 100 batches",
        ] {
            assert!(picture.contains(part), "{part} is missing: {picture}");
        }
        assert_eq!(picture.matches("class=\"area\"").count(), 2, "{picture}");
        assert_eq!(picture.matches("time of one operation").count(), 1);
    }

    #[test]
    fn single_and_equal_values_are_drawn() {
        for values in [&[5.0][..], &[5.0; 40], &[0.0, 0.0], &[-0.2, 0.1]] {
            let picture = drawn(values);
            assert!(
                !picture.contains("NaN") && !picture.contains("inf"),
                "{picture}"
            );
        }
    }
}
