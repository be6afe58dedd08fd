//! Quantiles of Harrell and Davis (1982): means of all values, weighted by the beta distribution of the
//! rank. They vary less from sample to sample than a single value, above all in the tail of few batches.

use statrs::function::beta::{beta_reg, ln_beta};

/// Number of values from which on a weight is the density in its middle times its width.
const DENSE: usize = 500;

/// Distance from the middle, in standard deviations, beyond which ranks have no weight.
const FARTHEST: f64 = 8.0;

/// Estimates the quantile `share`, between 0 and 1, of the distribution that `sorted` is a sample of, in
/// ascending order and not empty.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let count = sorted.len() as f64;
    let beta = (share * (count + 1.0), (1.0 - share) * (count + 1.0));
    let deviation = (share * (1.0 - share) / (count + 2.0)).sqrt();
    let rank = |place: f64| (place.clamp(0.0, 1.0) * count) as usize;
    let first = rank(share - FARTHEST * deviation);
    let last = rank(share + FARTHEST * deviation).min(sorted.len() - 1);
    let weights = if sorted.len() < DENSE {
        exact(first, last, count, beta)
    } else {
        dense(first, last, count, beta)
    };
    let total: f64 = weights.iter().sum();
    let values = sorted[first..=last].iter();
    values
        .zip(&weights)
        .map(|(value, weight)| value * weight)
        .sum::<f64>()
        / total
}

fn exact(first: usize, last: usize, count: f64, (a, b): (f64, f64)) -> Vec<f64> {
    let below = |rank: usize| beta_reg(a, b, (rank as f64 / count).min(1.0));
    let ends: Vec<f64> = (first..=last + 1).map(below).collect();
    ends.windows(2).map(|ends| ends[1] - ends[0]).collect()
}

fn dense(first: usize, last: usize, count: f64, (a, b): (f64, f64)) -> Vec<f64> {
    let constant = ln_beta(a, b);
    let density = |rank: usize| {
        let place = (rank as f64 + 0.5) / count;
        ((a - 1.0) * place.ln() + (b - 1.0) * (1.0 - place).ln() - constant).exp() / count
    };
    (first..=last).map(density).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, proptest};

    /// The first quartile of three values has weights of beta(1, 3), whose integral is 1 - (1 - x)^3: 19, 7
    /// and 1 of 27.
    #[test]
    fn weights_are_those_of_the_beta_distribution() {
        let found = quantile(&[27.0, 54.0, 270.0], 0.25);
        assert!((found - (19.0 + 2.0 * 7.0 + 10.0)).abs() < 1e-9, "{found}");
        assert_eq!(quantile(&[5.0], 0.9), 5.0);
    }

    #[test]
    fn approximate_weights_are_close_to_exact_ones() {
        let count = 900.0;
        for share in [0.02, 0.25, 0.5, 0.98] {
            let beta = (share * (count + 1.0), (1.0 - share) * (count + 1.0));
            let (exact, dense) = (exact(0, 899, count, beta), dense(0, 899, count, beta));
            let pairs = exact.iter().zip(&dense);
            let off: f64 = pairs.map(|(one, other)| (one - other).abs()).sum();
            assert!(off < 0.01, "{share}: {off}");
        }
    }

    #[test]
    fn a_quantile_of_a_uniform_sample_is_its_share() {
        for count in [99, 999, 9999] {
            let sorted: Vec<f64> = (1..=count)
                .map(|n| f64::from(n) / f64::from(count + 1))
                .collect();
            for share in [0.1, 0.5, 0.9] {
                let found = quantile(&sorted, share);
                assert!((found - share).abs() < 0.01, "{count} {share} {found}");
            }
        }
    }

    proptest! {
        #[test]
        fn quantiles_lie_within_the_values_and_in_order(
            mut values in proptest::collection::vec(0.0f64..1e6, 1..60),
        ) {
            values.sort_by(f64::total_cmp);
            let quantiles = [0.01, 0.5, 0.9, 0.999].map(|share| quantile(&values, share));
            let slack = 1e-9 * values[values.len() - 1];
            prop_assert!(quantiles.is_sorted_by(|one, next| *one <= next + slack));
            prop_assert!(values[0] <= quantiles[0] + slack);
            prop_assert!(quantiles[3] <= values[values.len() - 1] + slack);
        }
    }
}
