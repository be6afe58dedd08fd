//! Test of values in order of time against serial dependence.
//!
//! Bartels' rank version of von Neumann's ratio (Bartels 1982, "The Rank Version of von Neumann's Ratio Test for
//! Randomness"): the sum of squared differences of the ranks of neighbours over that of their deviations from the mean
//! rank. It is about 2 for independent values of any distribution, less if neighbours resemble each other, and its
//! distribution is close to normal from ten values on.

use statrs::distribution::{ContinuousCDF, Normal};
use statrs::statistics::{Data, OrderStatistics, RankTieBreaker};

/// Least number of values that are tested.
pub const LEAST: usize = 10;

/// Probability with which independent values are called dependent.
const LEVEL: f64 = 0.01;

/// Returns whether neighbours resemble each other more than they do in 99% of independent series. False for fewer than
/// [`LEAST`] values.
pub fn is_autocorrelated(values: &[f64]) -> bool {
    p_value(values).is_some_and(|p| p <= LEVEL)
}

/// Returns the one-sided p-value against independence; `None` for fewer than [`LEAST`] values, or equal ones.
pub fn p_value(values: &[f64]) -> Option<f64> {
    if values.len() < LEAST {
        return None;
    }
    let ranks = Data::new(values.to_vec()).ranks(RankTieBreaker::Average);
    let n = values.len() as f64;
    let mean = (n + 1.0) / 2.0;
    let all: f64 = ranks.iter().map(|rank| (rank - mean).powi(2)).sum();
    let neighbours = ranks.windows(2).map(|pair| (pair[0] - pair[1]).powi(2));
    let ratio = neighbours.sum::<f64>() / all;
    let variance =
        4.0 * (n - 2.0) * (5.0 * n * n - 2.0 * n - 9.0) / (5.0 * n * (n + 1.0) * (n - 1.0).powi(2));
    (all > 0.0).then(|| Normal::standard().cdf((ratio - 2.0) / variance.sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{normal, rng};

    fn series(phi: f64, length: usize, rng: &mut rand_chacha::ChaCha8Rng) -> Vec<f64> {
        let mut last = normal(rng) / (1.0 - phi * phi).sqrt();
        let next = |_| {
            last = phi * last + normal(rng);
            last
        };
        (0..length).map(next).collect()
    }

    #[test]
    fn independent_values_are_rarely_called_dependent_and_slow_ones_mostly() {
        let mut rng = rng(11, 0);
        let mut share = |phi, length| {
            let flagged = (0..2000).filter(|_| is_autocorrelated(&series(phi, length, &mut rng)));
            flagged.count() as f64 / 2000.0
        };
        for length in [10, 20, 60] {
            let found = share(0.0, length);
            assert!(found < 0.02, "{length}: {found}");
        }
        assert!(share(0.9, 20) > 0.8);
        assert!(share(0.5, 60) > 0.8);
    }

    #[test]
    fn few_or_equal_values_are_not_tested() {
        assert_eq!(p_value(&[1.0; 9]), None);
        assert_eq!(p_value(&[1.0; 30]), None);
        let rising: Vec<f64> = (0..10).map(f64::from).collect();
        assert!(p_value(&rising).unwrap() < 0.001);
    }
}
