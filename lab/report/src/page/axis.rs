//! The axis of a plot: positions of values, and round numbers for its ticks.

use std::fmt::Write;

/// Maps values to pixels.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    low: f64,
    high: f64,
    /// Position of the lowest value.
    from: f64,
    /// Position of the highest value.
    to: f64,
}

impl Axis {
    /// Creates an axis for values from `low` to `high` between two positions.
    pub fn new((low, high): (f64, f64), (from, to): (f64, f64)) -> Self {
        let least = (low.abs() * 1e-6).max(1e-9);
        let high = if high - low < least {
            low + least
        } else {
            high
        };
        Self {
            low,
            high,
            from,
            to,
        }
    }

    /// Returns the position of `value`, clamped to the ends.
    pub fn at(&self, value: f64) -> f64 {
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + share * (self.to - self.from)
    }

    /// Returns about `wanted` round numbers between the ends.
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        let span = self.high - self.low;
        let rough = span / wanted.max(1) as f64;
        let magnitude = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * magnitude);
        let step = steps
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last.min(first + 20))
            .map(|number| number as f64 * step)
            .collect()
    }
}

/// Formats a position with the visible digits.
pub fn px(at: f64) -> String {
    let text = format!("{at:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Returns the path of a line through points.
pub fn polyline(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (index, (x, y)) in points.iter().enumerate() {
        let command = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{command}{} {}", px(*x), px(*y));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_ends() {
        let axis = Axis::new((13.2, 27.9), (0.0, 100.0));
        assert_eq!(axis.ticks(4), [15.0, 20.0, 25.0]);
        assert_eq!(px(axis.at(13.2)), "0");
        assert_eq!(px(axis.at(1e9)), "100");
        let narrow = Axis::new((5.0, 5.0), (0.0, 100.0));
        assert!(narrow.at(5.0).is_finite() && narrow.ticks(3).len() < 22);
        assert!(Axis::new((0.0, 0.0), (0.0, 1.0)).ticks(4).len() < 22);
        let tiny = Axis::new((0.79, 0.81), (0.0, 1.0)).ticks(3);
        assert!((2..6).contains(&tiny.len()), "{tiny:?}");
    }
}
