//! Distribution-free interval of a median between two order statistics.
//!
//! The number of n independent values below the median of their distribution is binomial
//! (n, 1/2), so the interval from the k-th smallest to the k-th largest value contains that
//! median with probability 1 - 2 P(B <= k - 1), for every continuous distribution; with ties
//! the probability is at least that (Conover 1999, Practical Nonparametric Statistics,
//! section 3.2; Hollander, Wolfe and Chicken 2014, section 3.6).

use crate::sorted::Sorted;
use statrs::distribution::{Binomial, DiscreteCDF};

/// Level of intervals of six or more values.
const LEVEL: f64 = 0.95;

/// An interval with the probability that it contains the true value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The coverage probability, from 0 to 1.
    pub level: f64,
    /// The lower end, in the unit of the values.
    pub low: f64,
    /// The upper end, in the unit of the values.
    pub high: f64,
}

impl Interval {
    /// Returns the larger distance from `center` to an end, as a share of `center`.
    pub fn larger_side(&self, center: f64) -> f64 {
        (self.high - center).max(center - self.low) / center.abs()
    }
}

/// Returns the interval of the median of the distribution that `values` are drawn from.
///
/// With two to five values it is their range, with level 1 - 2^(1 - n): 50%, 75%, 87.5% and
/// 93.75%. From six on it is the narrowest pair of symmetric order statistics whose level is
/// at least 95%. `None` for fewer than two values, or if one is not a number.
pub fn median_interval(values: &[f64]) -> Option<Interval> {
    if values.len() < 2 || values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let sorted: Vec<f64> = Sorted::new(values.to_vec())?.iter().collect();
    let (rank, level) = narrowest(sorted.len())?;
    Some(Interval {
        level,
        low: sorted[rank - 1],
        high: sorted[sorted.len() - rank],
    })
}

/// Returns the level of [`median_interval`] for `count` values; `None` for fewer than two.
pub fn median_interval_level(count: usize) -> Option<f64> {
    narrowest(count).map(|(_, level)| level)
}

/// Returns the rank of the lower end, from 1, and the level.
fn narrowest(count: usize) -> Option<(usize, f64)> {
    let range = (1, level(count, 1)?);
    let ranks = 2..=count / 2;
    let levels = ranks.filter_map(|rank| Some((rank, level(count, rank)?)));
    let confident = levels.take_while(|(_, level)| *level >= LEVEL).last();
    Some(confident.unwrap_or(range))
}

/// Returns the probability that the median lies between the order statistics `rank` and
/// `count + 1 - rank`.
fn level(count: usize, rank: usize) -> Option<f64> {
    if count < 2 {
        return None;
    }
    let below = Binomial::new(0.5, count as u64).ok()?;
    Some(1.0 - 2.0 * below.cdf(rank as u64 - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::rng;
    use rand::Rng;

    /// Sums P(B <= k - 1) from the binomial coefficients.
    fn by_definition(count: u32, rank: u32) -> f64 {
        let ways = |k: u32| {
            (0..k).fold(1.0, |ways, i| {
                ways * f64::from(count - i) / f64::from(i + 1)
            })
        };
        1.0 - 2.0 * (0..rank).map(ways).sum::<f64>() / 2_f64.powi(count as i32)
    }

    #[test]
    fn two_to_five_values_give_their_range_with_its_exact_level() {
        for (count, level) in [(2, 0.5), (3, 0.75), (4, 0.875), (5, 0.9375)] {
            let values: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            let interval = median_interval(&values).unwrap();
            assert_eq!((interval.low, interval.high), (1.0, f64::from(count)));
            assert!((interval.level - level).abs() < 1e-12, "{interval:?}");
        }
    }

    /// Ranks of the tables for the sign test: 6 to 8 values need the range, 9 to 11 the second.
    #[test]
    fn six_values_or_more_give_the_narrowest_pair_of_at_least_95_percent() {
        for (count, rank) in [
            (6, 1),
            (7, 1),
            (8, 1),
            (9, 2),
            (10, 2),
            (11, 2),
            (12, 3),
            (20, 6),
        ] {
            let values: Vec<f64> = (1..=count).map(f64::from).collect();
            let interval = median_interval(&values).unwrap();
            let ends = (f64::from(rank), f64::from(count + 1 - rank));
            assert_eq!((interval.low, interval.high), ends, "{count} values");
            assert!((interval.level - by_definition(count, rank)).abs() < 1e-9);
            assert!(interval.level >= 0.95 && by_definition(count, rank + 1) < 0.95);
        }
    }

    #[test]
    fn the_level_depends_on_the_count_alone() {
        for count in 2..=40 {
            let values: Vec<f64> = (0..count).map(|value| value as f64).collect();
            let interval = median_interval(&values).unwrap();
            assert_eq!(median_interval_level(count), Some(interval.level));
        }
    }

    #[test]
    fn fewer_than_two_values_and_nan_give_no_interval() {
        assert_eq!(median_interval(&[]), None);
        assert_eq!(median_interval(&[1.0]), None);
        assert_eq!(median_interval(&[1.0, f64::NAN, 2.0]), None);
        assert_eq!(median_interval_level(1), None);
    }

    /// A skewed distribution with median 0.25: squares of uniform values. The standard error of
    /// a share of 4000 is below 0.8%.
    #[test]
    fn the_observed_coverage_is_the_level() {
        let mut random = rng(7, 0);
        for count in [2, 3, 4, 5, 6, 10, 25] {
            let covered = (0..4_000).filter(|_| {
                let values: Vec<f64> = (0..count).map(|_| random.random::<f64>().powi(2)).collect();
                let interval = median_interval(&values).unwrap();
                (interval.low..=interval.high).contains(&0.25)
            });
            let share = covered.count() as f64 / 4_000.0;
            let level = median_interval_level(count).unwrap();
            assert!(
                (share - level).abs() < 0.025,
                "{count}: {share} for {level}"
            );
        }
    }
}
