//! Modes of a distribution: the values around which batches gather.
//!
//! Lowland modality (Akinshin 2020, "Lowland multimodality detection"). The density is a
//! histogram of bins that hold equally many values, at most a hundred, their ends quantiles of
//! Harrell and Davis, so that a bin is as high as it is narrow. Fill the valley between two
//! peaks with water up to the lower of them: where less than half of the pond is ground, the
//! valley is a lowland and parts two modes. No value is dropped: each belongs to the mode on
//! its side of the lowest bin.
//!
//! A clock that steps gives equal values, between which every histogram has valleys. So
//! equal values are first spread evenly over the step of the clock.

mod quantiles;

use quantiles::quantile;

/// The fewest and the most bins of the histogram.
const BINS: (usize, usize) = (10, 100);

/// How many values a bin has to hold: the outermost quantiles of fewer are too near the ends.
const BIN: usize = 4;

/// The share of ground in a pond below which it is a lowland.
const SENSITIVITY: f64 = 0.5;

/// The least width over which equal values are spread, as a share of the range of all.
const LEAST_STEP: f64 = 1e-4;

/// The fewest values whose modes can be told.
const LEAST_VALUES: usize = 20;

/// Values around which others gather.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mode {
    /// Their median.
    pub location: f64,
    /// The least that belongs to it.
    pub from: f64,
    /// The most.
    pub to: f64,
    /// The share of all values.
    pub share: f64,
}

/// The modes of `sorted` values, in ascending order; one at least, if there is a value.
/// `step` is that of the clock, in the unit of the values, 0 if it is not known.
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
    /// Of at least one value, among so many.
    fn new(values: &[f64], all: usize) -> Self {
        Self {
            location: quantile(values, 0.5),
            from: values[0],
            to: values[values.len() - 1],
            share: values.len() as f64 / all as f64,
        }
    }
}

/// The step of values that all lie on a grid of three places or more; 0 if they do not.
fn grid(sorted: &[f64]) -> f64 {
    let gaps = || {
        sorted
            .windows(2)
            .map(|two| two[1] - two[0])
            .filter(|gap| *gap > 0.0)
    };
    let step = gaps().fold(f64::INFINITY, f64::min);
    let is_whole = |gap: f64| ((gap / step).round() - gap / step).abs() < 0.05;
    match gaps().count() >= 2 && gaps().all(is_whole) {
        true => step,
        false => 0.0,
    }
}

/// Equal values, evenly over one step around their place.
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

    /// Bins higher than both neighbours.
    fn peaks(&self) -> Vec<usize> {
        let height = |bin: usize| self.heights.get(bin).copied().unwrap_or(0.0);
        let is_peak = |bin: &usize| {
            let before = bin.checked_sub(1).map_or(0.0, height);
            height(*bin) > before && height(*bin) >= height(bin + 1)
        };
        (0..self.heights.len()).filter(is_peak).collect()
    }

    /// The middle of the lowest bin of each lowland, in ascending order. A peak that no
    /// lowland parts from a higher one belongs to its mode.
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

    /// The lowest bin between two peaks, if a lowland lies there.
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
    use crate::spread::chance;
    use rand::Rng;
    use rand_chacha::ChaCha8Rng;

    fn normal(nature: &mut ChaCha8Rng) -> f64 {
        (0..12).map(|_| nature.random::<f64>()).sum::<f64>() - 6.0
    }

    fn sample(count: usize, seed: u64, of: impl Fn(usize, &mut ChaCha8Rng) -> f64) -> Vec<f64> {
        let mut nature = chance(seed, 0);
        let mut values: Vec<f64> = (0..count).map(|index| of(index, &mut nature)).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    #[test]
    fn two_heaps_are_two_modes_with_their_shares() {
        let heaps = |index: usize, nature: &mut ChaCha8Rng| match index % 4 {
            0 => 130.0 + normal(nature),
            _ => 100.0 + normal(nature),
        };
        for count in [40, 400, 4000] {
            let found = modes(&sample(count, 1, heaps), 0.0);
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
    fn three_heaps_of_any_width_are_three_modes() {
        let heaps = |index: usize, nature: &mut ChaCha8Rng| match index % 3 {
            0 => 100.0 + 0.1 * normal(nature),
            1 => 200.0 + 8.0 * normal(nature),
            _ => 300.0 + normal(nature),
        };
        assert_eq!(modes(&sample(900, 2, heaps), 0.0).len(), 3);
    }

    /// One heap, with a long tail or without, is rarely taken for two.
    #[test]
    fn one_heap_is_one_mode() {
        let count_wrong = |of: fn(&mut ChaCha8Rng) -> f64| -> usize {
            let wrong = |seed: &u64| {
                let count = [30, 100, 300, 1000][*seed as usize % 4];
                modes(&sample(count, *seed, |_, nature| of(nature)), 0.0).len() > 1
            };
            (0..80).filter(wrong).count()
        };
        let wrong = count_wrong(normal);
        assert!(wrong <= 2, "normal: {wrong} of 80");
        let wrong = count_wrong(|nature| (0.5 * normal(nature)).exp());
        assert!(wrong <= 2, "lognormal: {wrong} of 80");
        let wrong = count_wrong(|nature| nature.random());
        assert!(wrong <= 6, "uniform: {wrong} of 80");
    }

    #[test]
    fn the_steps_of_a_clock_are_no_modes() {
        let stepping = |_: usize, nature: &mut ChaCha8Rng| (4.0 * normal(nature)).round() * 0.25;
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
