//! Exact tests of few boots at 99%, for sentences about two figures of one run.
//!
//! From [`LEAST_BLOCKS`] common blocks on the ratios within blocks are tested by signed ranks, so that what the boots of a
//! block share cancels out. Fewer cannot reach 1% that way; from [`LEAST_BOOTS`] boots of either side on, their figures
//! are tested by the stricter of rank sums and Welch's test, as those of separate runs are ([`crate::verdict`]).

use crate::order::Interval;
use crate::verdict::{rank_interval, Design};

/// Probability with which two equal figures are called different.
const ALPHA: f64 = 0.01;

/// Least number of blocks with which signed ranks reach 1%: two of 256 patterns of signs.
pub const LEAST_BLOCKS: usize = 8;

/// Least number of boots of either side with which rank sums reach 1%: two of 252 choices.
pub const LEAST_BOOTS: usize = 5;

/// The ratio of two figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The estimate that belongs to the interval: of paired ratios, or of all pairs of boots (Hodges and Lehmann 1963).
    pub estimate: f64,
    /// The ratios that a test at 1% does not reject.
    pub interval: Interval,
    /// True if ratios within blocks were tested.
    pub is_paired: bool,
}

/// Returns the ratio of `values` to `base`, both with the numbers of their blocks; `None` for too few boots, or a value
/// that is not positive.
pub fn difference(values: &[(u32, f64)], base: &[(u32, f64)]) -> Option<Difference> {
    let is_positive = |side: &[(u32, f64)]| side.iter().all(|(_, value)| *value > 0.0);
    if !is_positive(values) || !is_positive(base) {
        return None;
    }
    let logarithms =
        |side: &[(u32, f64)]| side.iter().map(|(_, value)| value.ln()).collect::<Vec<_>>();
    let pairs = values.iter().filter_map(|(block, value)| {
        let (_, base) = base.iter().find(|(other, _)| other == block)?;
        Some((base.ln(), value.ln()))
    });
    let pairs: Vec<(f64, f64)> = pairs.collect();
    let is_paired = pairs.len() >= LEAST_BLOCKS;
    let (a, b, design) = if is_paired {
        let (a, b): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        (a, b, Design::Blocked)
    } else if values.len().min(base.len()) >= LEAST_BOOTS {
        (logarithms(base), logarithms(values), Design::Boots)
    } else {
        return None;
    };
    let (estimate, (low, high)) = rank_interval(&a, &b, design, ALPHA)?;
    Some(Difference {
        estimate: estimate.exp(),
        interval: Interval {
            level: 1.0 - ALPHA,
            low: low.exp(),
            high: high.exp(),
        },
        is_paired,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(values: &[f64]) -> Vec<(u32, f64)> {
        (0..).zip(values.iter().copied()).collect()
    }

    #[test]
    fn conditions_that_blocks_share_cancel_from_eight_blocks_on() {
        let base: Vec<f64> = (0..8).map(|block| 100.0 * 1.1_f64.powi(block)).collect();
        let slower: Vec<f64> = base.iter().map(|value| value * 1.03).collect();
        let found = difference(&side(&slower), &side(&base)).unwrap();
        assert!(found.is_paired && found.interval.low > 1.0, "{found:?}");
        assert!((found.estimate - 1.03).abs() < 1e-9);
        let few = difference(&side(&slower[..5]), &side(&base[..5])).unwrap();
        assert!(!few.is_paired && few.interval.low < 1.0, "{few:?}");
        assert_eq!(difference(&side(&slower[..4]), &side(&base[..4])), None);
        assert_eq!(difference(&side(&[0.0; 9]), &side(&base)), None);
    }

    #[test]
    fn five_boots_apart_differ() {
        let base = [100.0, 101.0, 99.0, 100.5, 99.5];
        let found = difference(&side(&base.map(|one| one * 2.0)), &side(&base)).unwrap();
        assert!(
            found.interval.low > 1.9 && found.interval.high < 2.1,
            "{found:?}"
        );
    }
}
