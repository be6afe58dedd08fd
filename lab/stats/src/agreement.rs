//! Agreement of two clocks: the rank correlation of figures of the same operations.
//!
//! Ranks are compared, not figures, because instructions, cycles and nanoseconds are different
//! units. Spearman's rho is the correlation of mid-ranks (ties share their mean rank). Its
//! interval, for more than [`MOST_PERMUTED`] operations, is Fisher's z with the variance of Bonett
//! and Wright (2000, "Sample size requirements for estimating Pearson, Kendall and Spearman
//! correlations") and the quantile of
//! Student's t with `n - 2` degrees of freedom in the place of the normal one, which keeps the
//! level for few operations (`make power`). `p` is that of no correlation, two-sided: exact by
//! all permutations for up to [`MOST_PERMUTED`] operations (Hollander, Wolfe and Chicken 2014,
//! section 8.5), by a series above.

use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::function::erf::erfc;
use statrs::statistics::{Data, OrderStatistics, RankTieBreaker};
use std::f64::consts::SQRT_2;

/// Smallest number of operations that are correlated. With fewer no order has a `p` below 5%.
pub const LEAST: usize = 5;

/// Largest number of operations whose permutations are enumerated.
pub const MOST_PERMUTED: usize = 8;

/// Share of intervals that hold the true correlation.
const LEVEL: f64 = 0.95;

/// Differences of rank sums below this are rounding.
const ROUNDING: f64 = 1e-9;

/// The rank correlation of pairs of figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreement {
    /// Spearman's rho: 1 if both have the same order, -1 if one is the reverse of the other.
    pub rho: f64,
    /// Ends of its 95% interval; `None` for up to [`MOST_PERMUTED`] operations.
    pub interval: Option<(f64, f64)>,
    /// Two-sided p-value of no correlation.
    pub p: f64,
    /// Ranks of both figures of each pair, from 1.
    pub ranks: Vec<(f64, f64)>,
}

impl Agreement {
    /// Correlates pairs of finite figures; `None` for fewer than [`LEAST`] pairs, or if all figures of a
    /// side are equal.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        if pairs.len() < LEAST {
            return None;
        }
        let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let (a, b) = (centred_ranks(a), centred_ranks(b));
        let norm = (dot(&a, &a) * dot(&b, &b)).sqrt();
        if norm < ROUNDING {
            return None;
        }
        let rho = (dot(&a, &b) / norm).clamp(-1.0, 1.0);
        let (p, interval) = match pairs.len() {
            ..=MOST_PERMUTED => (p_of_permutations(&a, &b), None),
            n => (p_of_series(rho, n), interval(rho, n)),
        };
        let centre = (pairs.len() + 1) as f64 / 2.0;
        let ranks = a.iter().zip(&b);
        Some(Self {
            rho,
            interval,
            p,
            ranks: ranks.map(|(a, b)| (a + centre, b + centre)).collect(),
        })
    }
}

/// Returns mid-ranks less their mean.
fn centred_ranks(values: Vec<f64>) -> Vec<f64> {
    let centre = (values.len() + 1) as f64 / 2.0;
    let ranks = Data::new(values).ranks(RankTieBreaker::Average);
    ranks.into_iter().map(|rank| rank - centre).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Returns the interval of `rho`. Fisher's z is infinite for equal orders: there the interval begins like
/// that of the next smaller correlation, two neighbours exchanged, and ends at 1.
fn interval(rho: f64, n: usize) -> Option<(f64, f64)> {
    let n = n as f64;
    let largest = 1.0 - 12.0 / (n * (n * n - 1.0));
    let inner = rho.clamp(-largest, largest);
    let error = ((1.0 + inner * inner / 2.0) / (n - 3.0)).sqrt();
    let student = StudentsT::new(0.0, 1.0, n - 2.0).ok()?;
    let half = student.inverse_cdf((1.0 + LEVEL) / 2.0) * error;
    let z = inner.atanh();
    let low = if rho < -largest {
        -1.0
    } else {
        (z - half).tanh()
    };
    let high = if rho > largest {
        1.0
    } else {
        (z + half).tanh()
    };
    Some((low, high))
}

/// Returns the share of all orders of `b` that are at least as far from no correlation.
fn p_of_permutations(a: &[f64], b: &[f64]) -> f64 {
    let bound = dot(a, b).abs() - ROUNDING;
    let mut counts = (0, 0);
    let mut order = b.to_vec();
    permute(&mut order, b.len(), &mut |order| {
        counts.0 += usize::from(dot(a, order).abs() >= bound);
        counts.1 += 1;
    });
    counts.0 as f64 / counts.1 as f64
}

/// Calls `visit` with every order of the first `count` values (Heap 1963).
fn permute(values: &mut [f64], count: usize, visit: &mut dyn FnMut(&[f64])) {
    if count <= 1 {
        return visit(values);
    }
    for place in 0..count {
        permute(values, count - 1, visit);
        let other = if count.is_multiple_of(2) { place } else { 0 };
        values.swap(other, count - 1);
    }
}

/// Returns the two-sided probability by the Edgeworth series of the sum of squared differences
/// of ranks (Best and Roberts 1975, "Algorithm AS 89: the upper tail probabilities of Spearman's
/// rho"), not less than that of the two perfect orders of all.
fn p_of_series(rho: f64, n: usize) -> f64 {
    let count = n as f64;
    let cube = count * (count * count - 1.0);
    let squares = (1.0 - rho.abs()) * cube / 6.0;
    let b = count.recip();
    let x = (1.0 - 6.0 * (squares + 1.0) / cube) * (count - 1.0).sqrt();
    let y = x * x;
    let inner = 0.0072 - 0.0831 * b + y * b * (0.0131 - 4.6e-4 * y);
    let inner = 0.0879 + 0.0151 * b - y * inner;
    let inner = 0.1033 * b + 0.3932 * b * b - 0.0758 - y * b * inner;
    let u = x * b * (0.2274 + b * (0.2531 + 0.1745 * b) + y * inner);
    let tail = u * (-y / 2.0).exp() + erfc(x / SQRT_2) / 2.0;
    let perfect = (1..=n).map(|factor| factor as f64).product::<f64>().recip();
    2.0 * tail.clamp(perfect, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 5e-4
    }

    /// R 4.2, `cor.test(x, y, method = "spearman")`: rho = 0.6, p = 0.0968 exactly.
    #[test]
    fn the_tuna_colours_of_the_r_manual_give_the_same_result() {
        let x = [44.4, 45.9, 41.9, 53.3, 44.7, 44.1, 50.7, 45.2, 60.1];
        let y = [2.6, 3.1, 2.5, 5.0, 3.6, 4.0, 5.2, 2.8, 3.8];
        let pairs: Vec<_> = x.into_iter().zip(y).collect();
        let agreement = Agreement::of(&pairs).unwrap();
        assert!(close(agreement.rho, 0.6), "{agreement:?}");
        // A series approximates the exact p.
        assert!((agreement.p - 0.0968).abs() < 0.005, "{agreement:?}");
    }

    #[test]
    fn equal_orders_of_few_operations_have_an_exact_p() {
        let pairs: Vec<_> = (1..=5).map(|n| (f64::from(n), f64::from(n * n))).collect();
        let agreement = Agreement::of(&pairs).unwrap();
        assert_eq!((agreement.rho, agreement.interval), (1.0, None));
        assert!(close(agreement.p, 2.0 / 120.0), "{agreement:?}");
    }

    #[test]
    fn equal_figures_share_their_mean_rank() {
        let pairs = [(1.0, 1.0), (2.0, 2.0), (2.0, 3.0), (2.0, 4.0), (9.0, 5.0)];
        let agreement = Agreement::of(&pairs).unwrap();
        let ranks: Vec<f64> = agreement.ranks.iter().map(|ranks| ranks.0).collect();
        assert_eq!(ranks, [1.0, 3.0, 3.0, 3.0, 5.0]);
        // Of Pearson's correlation of these ranks.
        assert!(close(agreement.rho, 8.0 / 80_f64.sqrt()), "{agreement:?}");
    }

    #[test]
    fn too_few_or_all_equal_are_not_correlated() {
        assert_eq!(Agreement::of(&[(1.0, 2.0); 4]), None);
        let equal: Vec<_> = (0..6).map(|n| (1.0, f64::from(n))).collect();
        assert_eq!(Agreement::of(&equal), None);
    }

    #[test]
    fn the_interval_is_wider_for_fewer_operations() {
        let width = |n| {
            let (low, high) = interval(0.8, n).unwrap();
            high - low
        };
        assert!(width(6) > width(12) && width(12) > width(40));
        let (low, high) = interval(0.0, 20).unwrap();
        assert!(close(low, -high));
        let (low, high) = interval(1.0, 20).unwrap();
        assert!(low < 1.0 && high == 1.0);
    }

    proptest! {
        #[test]
        fn only_ranks_matter(
            figures in proptest::collection::vec((1f64..1e6, 1f64..1e6), LEAST..12),
        ) {
            let scaled: Vec<_> = figures.iter().map(|(a, b)| (a.ln(), b * b)).collect();
            prop_assert_eq!(Agreement::of(&figures), Agreement::of(&scaled));
        }

        #[test]
        fn one_side_reversed_reverses_the_correlation(
            figures in proptest::collection::vec((1f64..1e6, 1f64..1e6), LEAST..12),
        ) {
            let reversed: Vec<_> = figures.iter().map(|(a, b)| (*a, -b)).collect();
            if let (Some(one), Some(other)) = (Agreement::of(&figures), Agreement::of(&reversed)) {
                prop_assert!((one.rho + other.rho).abs() < 1e-9);
                prop_assert!((one.p - other.p).abs() < 1e-9);
                if let (Some(one), Some(other)) = (one.interval, other.interval) {
                    prop_assert!((one.0 + other.1).abs() < 1e-9);
                }
                let holds = |(low, high)| low <= one.rho && one.rho <= high;
                prop_assert!(one.interval.is_none_or(holds));
            }
        }
    }
}
