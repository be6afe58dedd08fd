//! Medians, percentiles, and how far an estimate may be off.

use rand::Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Resamplings of a bootstrap: the ends of a 95% interval are then known to
/// about 0.3% of the resampled distribution.
const RESAMPLES: usize = 4_000;

/// Shares of the resamplings below the interval, and below its upper end.
const ENDS: (f64, f64) = (0.025, 0.975);

/// Values in ascending order, at least one, all finite.
#[derive(Clone, Debug, PartialEq)]
pub struct Sorted(Vec<f64>);

impl Sorted {
    /// `None` if there is no value.
    pub fn new(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then_some(Self(values))
    }

    /// The middle value, or the mean of the two in the middle.
    pub fn median(&self) -> f64 {
        middle(&self.0)
    }

    /// The smallest value that at least `share` (0 to 1) of all are not above.
    pub fn percentile(&self, share: f64) -> f64 {
        let rank = (share * self.0.len() as f64).ceil() as usize;
        self.0[rank.clamp(1, self.0.len()) - 1]
    }

    /// The smallest value.
    pub fn min(&self) -> f64 {
        self.0[0]
    }

    /// The largest value.
    pub fn max(&self) -> f64 {
        self.0[self.0.len() - 1]
    }

    /// The values in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        self.0.iter().copied()
    }

    /// How many values.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[half]
    } else {
        f64::midpoint(sorted[half - 1], sorted[half])
    }
}

/// A source of chance for one purpose: equal seeds and streams give equal
/// draws, different streams independent ones.
pub fn chance(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    chance.set_stream(stream);
    chance
}

/// The 95% percentile-bootstrap interval of the share that parts have of their wholes together, drawn as pairs of a part
/// and its whole; `None` for fewer than `least` of them, or where the wholes are nothing.
pub fn share_interval(
    parts: &[(f64, f64)],
    least: usize,
    chance: &mut ChaCha8Rng,
) -> Option<(f64, f64)> {
    if parts.is_empty() || parts.len() < least {
        return None;
    }
    let shares = (0..RESAMPLES).map(|_| {
        let drawn = (0..parts.len()).map(|_| parts[chance.random_range(0..parts.len())]);
        let (part, whole) = drawn.fold((0.0, 0.0), |sum, drawn| (sum.0 + drawn.0, sum.1 + drawn.1));
        part / whole
    });
    ends(shares.collect()).filter(|(low, high)| low.is_finite() && high.is_finite())
}

fn ends(statistics: Vec<f64>) -> Option<(f64, f64)> {
    let sorted = Sorted::new(statistics)?;
    Some((sorted.percentile(ENDS.0), sorted.percentile(ENDS.1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let sorted = Sorted::new((1..=200).map(f64::from).collect()).unwrap();
        assert_eq!(sorted.median(), 100.5);
        assert_eq!(sorted.percentile(0.5), 100.0);
        assert_eq!(sorted.percentile(0.9), 180.0);
        assert_eq!(sorted.percentile(0.99), 198.0);
        assert_eq!((sorted.min(), sorted.max()), (1.0, 200.0));
        assert_eq!(Sorted::new(vec![3.0, 1.0, 2.0]).unwrap().median(), 2.0);
        assert_eq!(Sorted::new(vec![]), None);
    }

    #[test]
    fn a_share_lies_between_those_of_its_parts() {
        let mixed = [(9.0, 10.0), (5.0, 10.0), (8.0, 10.0), (40.0, 40.0)];
        let (low, high) = share_interval(&mixed, 4, &mut chance(1, 0)).unwrap();
        let all = 62.0 / 70.0;
        assert!((0.5..all).contains(&low) && high > all && high <= 1.0);
        assert_eq!(share_interval(&mixed, 5, &mut chance(1, 0)), None);
        let alike = [(3.0, 4.0); 8];
        assert_eq!(
            share_interval(&alike, 8, &mut chance(1, 0)),
            Some((0.75, 0.75))
        );
        assert_eq!(share_interval(&[(0.0, 0.0); 8], 8, &mut chance(1, 0)), None);
        assert_eq!(share_interval(&[], 0, &mut chance(1, 0)), None);
    }
}
