//! Patterns of a host that look like shifts: two states between which it changes, and a slow drift.
//!
//! The critical values hold for autocorrelated noise. A host that stays in one of two states for several runs, or that
//! slows down gradually, exceeds them: its steps are real, but are none of what is measured. Both patterns are named
//! where they show.

use super::ChangePoint;
use statrs::distribution::{ContinuousCDF, Normal};

/// Changes between two levels from which on they are states: a step has one, a pulse two.
const SWITCHES: usize = 3;

/// Share of the distance of two levels beyond their middle that a run of the other level reaches, so that noise is no
/// change.
const BEYOND: f64 = 0.25;

/// Fewest runs of a part in which a trend is sought.
const FEWEST: usize = 6;

/// Level of the test against no trend.
const LEVEL: f64 = 0.01;

/// A pattern in a series with a shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The figures change between two levels so many times.
    TwoStates {
        /// Number of changes.
        changes: usize,
    },
    /// The figures change on and on in one direction, also between the shifts.
    Drift,
}

impl Pattern {
    /// Returns the name in JSON output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TwoStates { .. } => "two-states",
            Self::Drift => "drift",
        }
    }
}

/// Returns the pattern of a series with these change points, if there is one.
pub fn pattern(series: &[f64], points: &[ChangePoint]) -> Option<Pattern> {
    let size = |point: &&ChangePoint| (point.after / point.before).ln().abs();
    let largest = points.iter().max_by(|a, b| size(a).total_cmp(&size(b)))?;
    if drifts(series, points, largest.after > largest.before) {
        return Some(Pattern::Drift);
    }
    let changes = switches(series, largest.before, largest.after);
    (changes >= SWITCHES).then_some(Pattern::TwoStates { changes })
}

/// Returns how often the series changes from about one level to about the other.
fn switches(series: &[f64], one: f64, other: f64) -> usize {
    let (low, high) = (one.min(other), one.max(other));
    let middle = f64::midpoint(low, high);
    let reach = BEYOND * (high - low);
    let states = series.iter().filter_map(|value| match value - middle {
        off if off >= reach => Some(true),
        off if off <= -reach => Some(false),
        _ => None,
    });
    let states: Vec<bool> = states.collect();
    states.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

/// Returns whether the parts between the points rise, or fall, like the points do: by the sum of Kendall's statistics of
/// the parts (Kendall 1938; Mann 1945).
fn drifts(series: &[f64], points: &[ChangePoint], rises: bool) -> bool {
    let ends = points.iter().map(|point| point.index).chain([series.len()]);
    let starts = std::iter::once(0).chain(points.iter().map(|point| point.index));
    let parts = starts.zip(ends).map(|(start, end)| &series[start..end]);
    let (mut sum, mut variance) = (0.0, 0.0);
    for part in parts.filter(|part| part.len() >= FEWEST) {
        let n = part.len() as f64;
        variance += n * (n - 1.0) * (2.0 * n + 5.0) / 18.0;
        for (index, earlier) in part.iter().enumerate() {
            let later = part[index + 1..].iter();
            sum += later
                .map(|later| {
                    (later - earlier)
                        .partial_cmp(&0.0)
                        .map_or(0.0, |it| f64::from(it as i8))
                })
                .sum::<f64>();
        }
    }
    let towards = if rises { sum } else { -sum };
    variance > 0.0 && Normal::standard().sf(towards / variance.sqrt()) <= LEVEL
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{change_points, Settings};

    fn of(series: &[f64]) -> Option<Pattern> {
        let points = change_points(&[series.to_vec()], &Settings::default()).remove(0);
        pattern(series, &points)
    }

    fn noise(run: usize) -> f64 {
        [0.3, -0.4, 0.1, -0.2, 0.4, -0.1, 0.2, -0.3][run * 5 % 8]
    }

    #[test]
    fn a_host_that_returns_to_both_levels_has_two_states() {
        let level = |run: usize| match run {
            0..15 | 21..25 => 100.0,
            _ => 104.0,
        };
        let series: Vec<f64> = (0..60).map(|run| level(run) + noise(run)).collect();
        assert_eq!(of(&series), Some(Pattern::TwoStates { changes: 3 }));
        let step: Vec<f64> = series[..21].to_vec();
        assert_eq!(of(&step), None, "a step is one");
    }

    #[test]
    fn a_slow_change_is_a_drift() {
        let series: Vec<f64> = (0..60)
            .map(|run| 100.0 + 0.05 * run as f64 + noise(run))
            .collect();
        assert_eq!(of(&series), Some(Pattern::Drift));
        let level: Vec<f64> = (0..60).map(|run| 100.0 + noise(run)).collect();
        assert_eq!(of(&level), None);
    }
}
