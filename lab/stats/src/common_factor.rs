//! One factor between the figures of the same operations on two clocks, and how far each operation is from it.
//!
//! Instructions, cycles and nanoseconds are different units, so figures of two clocks differ by a factor at least. The
//! factor is the geometric mean of the ratios, which is the least squares fit of their logarithms; what remains of an
//! operation is the error of predicting it from the one clock by that factor.

/// Least number of operations of which an error is stated: one of them goes into the factor.
pub const LEAST_FOR_ERROR: usize = 4;

/// The factor between two clocks.
#[derive(Clone, Debug, PartialEq)]
pub struct CommonFactor {
    /// Units of the second clock for one of the first.
    pub factor: f64,
    /// The second clock of each pair, as a multiple of the factor's prediction.
    pub errors: Vec<f64>,
    /// The typical error as a factor above 1: the exponential of the standard deviation of the logarithms, with one
    /// degree of freedom less for the factor. `None` for fewer than [`LEAST_FOR_ERROR`] pairs.
    pub typical: Option<f64>,
}

impl CommonFactor {
    /// Fits pairs of figures; `None` for fewer than two, or one that is not positive.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        if pairs.len() < 2 || !pairs.iter().all(|(a, b)| *a > 0.0 && *b > 0.0) {
            return None;
        }
        let logarithms: Vec<f64> = pairs.iter().map(|(a, b)| (b / a).ln()).collect();
        let mean = crate::sorted::mean(&logarithms);
        let off: Vec<f64> = logarithms.iter().map(|one| one - mean).collect();
        let squares: f64 = off.iter().map(|one| one * one).sum();
        let freedom = (pairs.len() - 1) as f64;
        Some(Self {
            factor: mean.exp(),
            typical: (pairs.len() >= LEAST_FOR_ERROR).then(|| (squares / freedom).sqrt().exp()),
            errors: off.into_iter().map(f64::exp).collect(),
        })
    }

    /// Returns the place of the operation that is farthest from the factor, and its error.
    pub fn worst(&self) -> (usize, f64) {
        let errors = self.errors.iter().copied().enumerate();
        let distance = |error: f64| error.ln().abs();
        let worst = errors.max_by(|one, other| distance(one.1).total_cmp(&distance(other.1)));
        worst.unwrap_or((0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{normal, rng};

    #[test]
    fn a_common_factor_leaves_no_error() {
        let pairs = [(1.0, 2.5), (100.0, 250.0), (40.0, 100.0), (7.0, 17.5)];
        let found = CommonFactor::of(&pairs).unwrap();
        assert!((found.factor - 2.5).abs() < 1e-12);
        assert!((found.typical.unwrap() - 1.0).abs() < 1e-9, "{found:?}");
    }

    /// port-out, mmio-read and cpuid in instructions and in cycles: without an error, since there are three.
    #[test]
    fn three_operations_have_a_factor_and_a_worst_one() {
        let pairs = [(3_264.0, 3_736.0), (5_937.0, 6_486.0), (2_966.0, 1_401.0)];
        let found = CommonFactor::of(&pairs).unwrap();
        assert_eq!(found.typical, None);
        let (place, error) = found.worst();
        assert_eq!(place, 2);
        assert!((0.5..0.6).contains(&error), "{found:?}");
        assert_eq!(CommonFactor::of(&pairs[..1]), None);
        assert_eq!(CommonFactor::of(&[(0.0, 1.0), (1.0, 1.0)]), None);
    }

    #[test]
    fn the_typical_error_is_that_of_the_noise() {
        let mut rng = rng(3, 0);
        let pair = |_| {
            let a = 1000.0 * (0.5 * normal(&mut rng)).exp();
            (a, 0.4 * a * (0.3 * normal(&mut rng)).exp())
        };
        let pairs: Vec<_> = (0..4000).map(pair).collect();
        let found = CommonFactor::of(&pairs).unwrap();
        assert!((found.factor - 0.4).abs() < 0.01);
        assert!(
            (found.typical.unwrap().ln() - 0.3).abs() < 0.02,
            "{:?}",
            found.typical
        );
    }
}
