//! Modes of a distribution of batches.
//!
//! Lowland modality (Akinshin 2020, "Lowland multimodality detection", whose terms are used here). The
//! density is a histogram of at most a hundred bins that hold equally many values, their ends quantiles of
//! Harrell and Davis, so that a bin is as high as it is narrow. The pond between two peaks is the area
//! below the lower of them. If less than half of the pond is ground, the valley is a lowland and separates
//! two modes. Each value belongs to the mode on its side of the lowest bin; none is dropped.
//!
//! A clock with steps gives equal values, between which every histogram has valleys. So equal values are
//! first spread evenly over the step of the clock.

mod quantiles;

use quantiles::quantile;

/// Smallest and largest number of bins of the histogram.
const BINS: (usize, usize) = (10, 100);

/// Number of values in a bin: with fewer, the outermost quantiles are too near the ends.
const BIN: usize = 4;

/// Share of ground in a pond below which it is a lowland.
const SENSITIVITY: f64 = 0.5;

/// Smallest width over which equal values are spread, as a share of the range.
const LEAST_STEP: f64 = 1e-4;

/// Smallest number of values with more than one mode.
const LEAST_VALUES: usize = 20;

/// A mode of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mode {
    /// Median of its values.
    pub location: f64,
    /// Smallest value.
    pub from: f64,
    /// Largest value.
    pub to: f64,
    /// Share of all values.
    pub share: f64,
}

/// Returns the modes of `sorted` values, in ascending order, at least one if there is a value. `step` is
/// that of the clock, in the unit of the values, 0 if unknown.
pub fn modes(sorted: &[f64], step: f64) -> Vec<Mode> {
    let range = match (sorted.first(), sorted.last()) {
        (Some(first), Some(last)) => last - first,
        _ => return Vec::new(),
    };
    if sorted.len() < LEAST_VALUES || range == 0.0 {
        return vec![Mode::new(sorted, sorted.len())];
    }
    let step = step.max(grid(sorted)).max(LEAST_STEP * range);
    let density = Density::new(&spread_ties(sorted, step));
    let mut modes = Vec::new();
    let mut rest = sorted;
    for valley in density.valleys() {
        let (here, beyond) = rest.split_at(rest.partition_point(|value| *value <= valley));
        if !here.is_empty() && !beyond.is_empty() {
            modes.push(Mode::new(here, sorted.len()));
            rest = beyond;
        }
    }
    modes.push(Mode::new(rest, sorted.len()));
    modes
}

impl Mode {
    /// Creates a mode of at least one of `all` values.
    fn new(values: &[f64], all: usize) -> Self {
        Self {
            location: quantile(values, 0.5),
            from: values[0],
            to: values[values.len() - 1],
            share: values.len() as f64 / all as f64,
        }
    }
}

/// Returns the step of a grid of three or more places on which all values lie; 0 without one.
fn grid(sorted: &[f64]) -> f64 {
    let gaps = || {
        sorted
            .windows(2)
            .map(|two| two[1] - two[0])
            .filter(|gap| *gap > 0.0)
    };
    let step = gaps().fold(f64::INFINITY, f64::min);
    let is_whole = |gap: f64| ((gap / step).round() - gap / step).abs() < 0.05;
    if gaps().count() >= 2 && gaps().all(is_whole) {
        step
    } else {
        0.0
    }
}

/// Spreads equal values evenly over one step around their place.
fn spread_ties(sorted: &[f64], step: f64) -> Vec<f64> {
    let mut spread = Vec::with_capacity(sorted.len());
    for equal in sorted.chunk_by(|one, next| one == next) {
        let count = equal.len() as f64;
        let place = |index: usize| ((index as f64 + 0.5) / count - 0.5) * step;
        spread.extend(
            equal
                .iter()
                .enumerate()
                .map(|(index, value)| value + place(index)),
        );
    }
    spread.sort_by(f64::total_cmp);
    spread
}

/// A histogram of bins that hold equally many values.
struct Density {
    ends: Vec<f64>,
    heights: Vec<f64>,
}

impl Density {
    fn new(sorted: &[f64]) -> Self {
        let bins = (sorted.len() / BIN).clamp(BINS.0, BINS.1);
        let inner = (1..bins).map(|bin| quantile(sorted, bin as f64 / bins as f64));
        let mut ends = vec![sorted[0]];
        ends.extend(inner);
        ends.push(sorted[sorted.len() - 1]);
        let least = f64::MIN_POSITIVE.max((ends[bins] - ends[0]) * 1e-9);
        let height = |ends: &[f64]| 1.0 / bins as f64 / (ends[1] - ends[0]).max(least);
        Self {
            heights: ends.windows(2).map(height).collect(),
            ends,
        }
    }

    /// Returns bins higher than both neighbours.
    fn peaks(&self) -> Vec<usize> {
        let height = |bin: usize| self.heights.get(bin).copied().unwrap_or(0.0);
        let is_peak = |bin: &usize| {
            let before = bin.checked_sub(1).map_or(0.0, height);
            height(*bin) > before && height(*bin) >= height(bin + 1)
        };
        (0..self.heights.len()).filter(is_peak).collect()
    }

    /// Returns the middle of the lowest bin of each lowland, in ascending order. A peak without a lowland
    /// before a higher one belongs to that one's mode.
    fn valleys(&self) -> Vec<f64> {
        let mut valleys = Vec::new();
        // Peaks since the last lowland, each lower than the one before.
        let mut falling: Vec<usize> = Vec::new();
        for peak in self.peaks() {
            while let Some(last) = falling.last().copied() {
                if let Some(valley) = self.lowland(last, peak) {
                    valleys.push(f64::midpoint(self.ends[valley], self.ends[valley + 1]));
                    falling.clear();
                } else if self.heights[last] < self.heights[peak] {
                    falling.pop();
                } else {
                    break;
                }
            }
            falling.push(peak);
        }
        valleys
    }

    /// Returns the lowest bin between two peaks if there is a lowland.
    fn lowland(&self, one: usize, other: usize) -> Option<usize> {
        let level = self.heights[one].min(self.heights[other]);
        let is_above = |bin: &usize| self.heights[*bin] > level;
        let shore = (one..other).find(|bin| !is_above(bin))?;
        let opposite = (one..=other).rev().find(|bin| !is_above(bin))?;
        let ground = (opposite + 1 - shore) as f64 / self.heights.len() as f64;
        let pond = (self.ends[opposite + 1] - self.ends[shore]) * level;
        let lowest = (one..=other).min_by(|a, b| self.heights[*a].total_cmp(&self.heights[*b]));
        lowest.filter(|_| ground < SENSITIVITY * pond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{normal, rng};
    use rand::Rng;
    use rand_chacha::ChaCha8Rng;

    fn sample(count: usize, seed: u64, of: impl Fn(usize, &mut ChaCha8Rng) -> f64) -> Vec<f64> {
        let mut rng = rng(seed, 0);
        let mut values: Vec<f64> = (0..count).map(|index| of(index, &mut rng)).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    #[test]
    fn a_bimodal_sample_has_two_modes_with_their_shares() {
        let clusters = |index: usize, rng: &mut ChaCha8Rng| match index % 4 {
            0 => 130.0 + normal(rng),
            _ => 100.0 + normal(rng),
        };
        for count in [40, 400, 4000] {
            let found = modes(&sample(count, 1, clusters), 0.0);
            let [low, high] = found[..] else {
                panic!("{count}: {found:?}");
            };
            assert!((low.share, high.share) == (0.75, 0.25), "{found:?}");
            assert!((low.location - 100.0).abs() < 0.5, "{found:?}");
            assert!((high.location - 130.0).abs() < 0.5, "{found:?}");
            assert!(low.to < 110.0 && high.from > 120.0);
        }
    }

    #[test]
    fn three_clusters_of_different_width_are_three_modes() {
        let clusters = |index: usize, rng: &mut ChaCha8Rng| match index % 3 {
            0 => 100.0 + 0.1 * normal(rng),
            1 => 200.0 + 8.0 * normal(rng),
            _ => 300.0 + normal(rng),
        };
        assert_eq!(modes(&sample(900, 2, clusters), 0.0).len(), 3);
    }

    /// Unimodal samples with and without a tail.
    #[test]
    fn unimodal_samples_rarely_have_two_modes() {
        let count_wrong = |of: fn(&mut ChaCha8Rng) -> f64| -> usize {
            let wrong = |seed: &u64| {
                let count = [30, 100, 300, 1000][*seed as usize % 4];
                modes(&sample(count, *seed, |_, rng| of(rng)), 0.0).len() > 1
            };
            (0..80).filter(wrong).count()
        };
        let wrong = count_wrong(normal);
        assert!(wrong <= 2, "normal: {wrong} of 80");
        let wrong = count_wrong(|rng| (0.5 * normal(rng)).exp());
        assert!(wrong <= 2, "lognormal: {wrong} of 80");
        let wrong = count_wrong(|rng| rng.random());
        assert!(wrong <= 6, "uniform: {wrong} of 80");
    }

    #[test]
    fn steps_of_a_clock_are_not_modes() {
        let stepping = |_: usize, rng: &mut ChaCha8Rng| (4.0 * normal(rng)).round() * 0.25;
        assert_eq!(modes(&sample(2000, 3, stepping), 0.0).len(), 1);
        let same = [7.0; 50];
        assert_eq!(modes(&same, 0.0).len(), 1);
        assert_eq!(modes(&same, 0.0)[0].share, 1.0);
        let mut two = vec![7.0; 50];
        two.extend([9.0; 50]);
        let found = modes(&two, 0.01);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!((found[0].to, found[1].from), (7.0, 9.0));
    }

    #[test]
    fn few_values_have_one_mode_and_none_has_none() {
        assert_eq!(modes(&[], 0.0), []);
        assert_eq!(modes(&[1.0, 2.0, 900.0], 0.0).len(), 1);
    }
}
