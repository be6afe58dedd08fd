//! Ratio of two configurations that were measured once in each round, or block.

use crate::order::{median_interval, Interval};
use crate::sorted::Sorted;

/// The ratio of two configurations over the rounds that have both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedRatio {
    /// The median of the ratios of the rounds.
    pub estimate: f64,
    /// The number of rounds.
    pub rounds: usize,
    /// The interval of the median ratio; `None` for one round.
    pub interval: Option<Interval>,
}

/// Returns the ratio of `values` to `base`, both with the number of their round.
///
/// The two values of a round share its conditions, which cancel in their ratio. The interval
/// is that of [`median_interval`] over these ratios; its level assumes that rounds are
/// independent and their ratios have the same median. A base of 0 has no ratio. `None` if no round
/// has both.
pub fn paired_ratio(values: &[(u32, f64)], base: &[(u32, f64)]) -> Option<PairedRatio> {
    let pairs = values.iter().filter_map(|(round, value)| {
        let (_, base) = base.iter().find(|(other, _)| other == round)?;
        Some(value / base)
    });
    let ratios: Vec<f64> = pairs.filter(|ratio| ratio.is_finite()).collect();
    Some(PairedRatio {
        estimate: Sorted::new(ratios.clone())?.median(),
        rounds: ratios.len(),
        interval: median_interval(&ratios),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rounds_with_both_count() {
        let values = [(0, 2.0), (1, 6.0), (3, 50.0)];
        let base = [(3, 10.0), (1, 2.0), (2, 7.0)];
        let ratio = paired_ratio(&values, &base).unwrap();
        assert_eq!((ratio.estimate, ratio.rounds), (4.0, 2));
        let interval = ratio.interval.unwrap();
        assert_eq!((interval.low, interval.high), (3.0, 5.0));
        assert!((interval.level - 0.5).abs() < 1e-12);
    }

    #[test]
    fn one_round_has_no_interval_and_no_round_no_ratio() {
        let ratio = paired_ratio(&[(0, 3.0)], &[(0, 2.0)]).unwrap();
        assert_eq!((ratio.estimate, ratio.interval), (1.5, None));
        assert_eq!(paired_ratio(&[(0, 3.0)], &[(1, 2.0)]), None);
    }

    #[test]
    fn conditions_of_a_round_cancel() {
        let base = [(0, 10.0), (1, 20.0), (2, 40.0)];
        let values = base.map(|(round, value)| (round, value * 1.25));
        let interval = paired_ratio(&values, &base).unwrap().interval.unwrap();
        assert_eq!((interval.low, interval.high), (1.25, 1.25));
    }
}
