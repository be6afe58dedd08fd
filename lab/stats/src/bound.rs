//! Lower confidence bound of the mean of a bounded variable, for any distribution of it.
//!
//! Gaffke's bound (N. Gaffke 2005, Mathematical Methods of Statistics 14(4), section 3;
//! Learned-Miller and Thomas 2019, arXiv:1905.06208): the values, and 0 for unobserved ones,
//! are weighted by Dirichlet weights; the bound is the 2.5% quantile of the weighted
//! mean. For values that are 0 or 1 it is the bound of Clopper and Pearson (1934), and with
//! fractional weights that of Korn and Graubard (1998). Its coverage is proven for values of
//! 0 and 1. For others it is conjectured, and `make power` simulates it.

use statrs::distribution::{Continuous, ContinuousCDF, Normal};

/// Probability with which the mean is below the bound: one side of a 95% interval.
const TAIL: f64 = 0.025;

/// Halvings of the search; each adds a binary digit.
const STEPS: usize = 60;

/// Largest tilt; its square is finite.
const STEEPEST: f64 = 300.0;

/// Weight of 0, the unobserved value.
const UNSEEN: f64 = 1.0;

/// An observed value from 0 to 1 with its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weighted {
    /// The value.
    pub value: f64,
    /// The number of observations, which may be fractional.
    pub weight: f64,
}

/// Returns the value below which the mean is with a probability of 2.5% at most; 0 if no
/// observed value is positive.
///
/// The quantile is found by a saddlepoint approximation (Lugannani and Rice 1980), which is
/// deterministic. It differs from Clopper and Pearson's bound by less than 0.5% of the
/// distance to 1.
pub fn lower_bound(observed: &[Weighted]) -> f64 {
    if observed.iter().all(|one| one.value == 0.0) {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, STEEPEST);
    for _ in 0..STEPS {
        let tilt = f64::midpoint(low, high);
        if Saddlepoint::of(observed, tilt).tail > TAIL {
            low = tilt;
        } else {
            high = tilt;
        }
    }
    Saddlepoint::of(observed, high).mean
}

/// Returns the 95% interval of a share of which `ones` of `all` were observed, each independently of the others (Clopper
/// and Pearson 1934); `None` if nothing was.
pub fn share_interval(ones: u64, all: u64) -> Option<(f64, f64)> {
    let bound = |ones: u64| {
        let counts = [(0.0, all - ones), (1.0, ones)].map(|(value, count)| Weighted {
            value,
            weight: count as f64,
        });
        lower_bound(&counts)
    };
    (all > 0).then(|| (bound(ones), 1.0 - bound(all - ones)))
}

/// A weighted mean, and the probability that Dirichlet weights give less.
struct Saddlepoint {
    mean: f64,
    tail: f64,
}

impl Saddlepoint {
    /// Tilts the weights towards small values: not at all for a tilt of 0, entirely to the unobserved 0 for
    /// an infinite one.
    ///
    /// The weighted mean is below `mean` if a sum of gamma variables, each times `mean` less
    /// its value, is positive.
    fn of(observed: &[Weighted], tilt: f64) -> Self {
        let unseen = Weighted {
            value: 0.0,
            weight: UNSEEN,
        };
        let all = || observed.iter().copied().chain([unseen]);
        let (kept, tilted) = ((-tilt).exp(), -(-tilt).exp_m1());
        let slope = |value: f64| kept + tilted * value;
        let (whole, part) = all().fold((0.0, 0.0), |(whole, part), one| {
            let weight = one.weight / slope(one.value);
            (whole + weight, part + weight * one.value)
        });
        let mean = part / whole;
        let scale = slope(mean);
        let (exponent, curvature) = all().fold((0.0, 0.0), |(exponent, curvature), one| {
            let factor = slope(one.value) / scale;
            let distance = (mean - one.value) / factor;
            (
                exponent + one.weight * factor.ln(),
                curvature + one.weight * distance * distance,
            )
        });
        let root = (2.0 * f64::max(exponent, 0.0)).sqrt();
        let tail = tail(root, tilted / scale * curvature.sqrt());
        Self { mean, tail }
    }
}

/// Returns the formula of Lugannani and Rice; about one half if both arguments vanish.
fn tail(root: f64, slope: f64) -> f64 {
    if root < 1e-3 {
        return 0.5;
    }
    let normal = Normal::standard();
    normal.sf(root) + normal.pdf(root) * (1.0 / slope - 1.0 / root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, proptest};
    use statrs::distribution::Beta;

    fn of(values: &[(f64, f64)]) -> f64 {
        let weighted = values.iter().map(|(value, weight)| Weighted {
            value: *value,
            weight: *weight,
        });
        lower_bound(&weighted.collect::<Vec<_>>())
    }

    #[test]
    fn zeros_and_ones_give_the_bound_of_clopper_and_pearson() {
        for (ones, zeros) in [
            (1.0, 0.0),
            (10.0, 0.0),
            (1_000.0, 0.0),
            (9.0, 1.0),
            (1.0, 9.0),
            (95.0, 5.0),
            (50.0, 950.0),
            (9_999.0, 1.0),
            (2.5, 1.5),
        ] {
            let exact = Beta::new(ones, zeros + 1.0).unwrap().inverse_cdf(TAIL);
            let bound = of(&[(1.0, ones), (0.0, zeros)]);
            let off = (bound - exact) / (1.0 - exact);
            assert!(
                (-0.005..0.005).contains(&off),
                "{bound} for {exact}, {ones} of {zeros}"
            );
        }
    }

    #[test]
    fn ten_ones_have_a_bound_of_seven_tenths() {
        let bound = of(&[(1.0, 10.0)]);
        // 1 - 0.025 to the power of a tenth is 0.3085.
        assert!((0.3085..0.311).contains(&(1.0 - bound)), "{bound}");
    }

    /// Ten times 400,000 draws of Dirichlet weights gave 0.28125.
    #[test]
    fn the_quantile_is_that_of_drawn_weights() {
        let values: Vec<_> = (1..=9)
            .map(|tenth| (f64::from(tenth) / 10.0, 1.0))
            .collect();
        let bound = of(&values);
        assert!((bound - 0.28125).abs() < 0.003, "{bound}");
    }

    #[test]
    fn without_positive_values_the_bound_is_zero() {
        assert_eq!(of(&[]), 0.0);
        assert_eq!(of(&[(0.0, 7.0)]), 0.0);
    }

    proptest! {
        #[test]
        fn the_bound_is_below_the_mean_and_grows_with_the_number_of_observations(
            values in proptest::collection::vec((0.0f64..=1.0, 0.1f64..50.0), 1..20),
        ) {
            let whole: f64 = values.iter().map(|(_, weight)| weight).sum();
            let mean = values.iter().map(|(value, weight)| value * weight).sum::<f64>() / whole;
            let more: Vec<_> = values.iter().map(|(value, weight)| (*value, 2.0 * weight)).collect();
            prop_assert!((0.0..=mean).contains(&of(&values)));
            prop_assert!(of(&values) <= of(&more) + 1e-12);
        }
    }
}
