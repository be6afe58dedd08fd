//! Medians, percentiles and random numbers.

use rand_chacha::rand_core::SeedableRng;
use rand_chacha::ChaCha8Rng;

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
}
