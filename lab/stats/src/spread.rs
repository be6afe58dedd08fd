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

/// The 95% percentile-bootstrap interval of the median of `values`; `None` for
/// fewer than two.
pub fn interval(values: &[f64], chance: &mut ChaCha8Rng) -> Option<(f64, f64)> {
    if values.len() < 2 {
        return None;
    }
    let medians = (0..RESAMPLES).map(|_| resampled_median(values, chance));
    ends(medians.collect())
}

/// The same for the quotient of the medians of `values` and `others`.
pub fn quotient_interval(
    values: &[f64],
    others: &[f64],
    chance: &mut ChaCha8Rng,
) -> Option<(f64, f64)> {
    if values.len() < 2 || others.len() < 2 {
        return None;
    }
    let quotients =
        (0..RESAMPLES).map(|_| resampled_median(values, chance) / resampled_median(others, chance));
    ends(quotients.collect()).filter(|(low, high)| low.is_finite() && high.is_finite())
}

fn ends(statistics: Vec<f64>) -> Option<(f64, f64)> {
    let sorted = Sorted::new(statistics)?;
    Some((sorted.percentile(ENDS.0), sorted.percentile(ENDS.1)))
}

/// The median of as many values, drawn with replacement.
fn resampled_median(values: &[f64], chance: &mut ChaCha8Rng) -> f64 {
    let mut drawn: Vec<f64> = (0..values.len())
        .map(|_| values[chance.random_range(0..values.len())])
        .collect();
    drawn.sort_by(f64::total_cmp);
    middle(&drawn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest, ProptestConfig};

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
    fn one_boot_says_nothing_about_others() {
        assert_eq!(interval(&[1.0], &mut chance(1, 1)), None);
        assert_eq!(
            quotient_interval(&[1.0], &[1.0, 2.0], &mut chance(1, 1)),
            None
        );
    }

    /// Of 20 boots from a uniform distribution, the interval holds the true
    /// median in about 95 of 100 cases.
    #[test]
    fn the_interval_covers_the_truth_about_as_often_as_it_says() {
        let mut nature = chance(7, 7);
        let covered = (0..200)
            .filter(|trial| {
                let boots: Vec<f64> = (0..20).map(|_| nature.random::<f64>()).collect();
                let (low, high) = interval(&boots, &mut chance(1, *trial)).unwrap();
                low <= 0.5 && 0.5 <= high
            })
            .count();
        assert!((180..=200).contains(&covered), "{covered} of 200");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn intervals_are_deterministic_and_within_the_values(
            values in proptest::collection::vec(1.0f64..1e6, 2..12),
            seed in any::<u64>(),
        ) {
            let (low, high) = interval(&values, &mut chance(seed, 3)).unwrap();
            prop_assert_eq!(Some((low, high)), interval(&values, &mut chance(seed, 3)));
            let sorted = Sorted::new(values).unwrap();
            prop_assert!(sorted.min() <= low && low <= high && high <= sorted.max());
        }
    }
}
