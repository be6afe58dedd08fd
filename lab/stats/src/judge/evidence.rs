//! What boots say of a difference of logarithms: an estimate, how improbable any other
//! difference is, and the interval of those that are not improbable.
//!
//! Tests and intervals are each other's inversion: a difference lies outside the interval at
//! level `1 - alpha` exactly if its test gives `alpha` or less. So a verdict can be read off
//! the interval that is printed beside it.

use super::boots::{Arranged, Data};
use super::bootstrap::{Simulated, Studentised};
use super::ranks::Ranks;
use super::{Method, LEAST_FOR_BOOTSTRAP};

/// A test for every possible difference.
pub trait Evidence {
    /// How it was made.
    fn method(&self) -> Method;
    /// The difference that fits best.
    fn estimate(&self) -> f64;
    /// How probable boots are that lie so low or lower, if the difference is `theta`.
    fn p_low(&self, theta: f64) -> f64;
    /// How probable boots are that lie so high or higher, if the difference is `theta`.
    fn p_high(&self, theta: f64) -> f64;
    /// All differences whose two-sided test gives more than `alpha`; `None` if that is
    /// every difference there is.
    fn interval(&self, alpha: f64) -> Option<(f64, f64)>;
    /// The standard deviation of what one block says. Of so many blocks, the estimate's
    /// standard error is this by the root of their number.
    fn spread(&self) -> f64;

    /// How probable boots are that lie so far from `theta` or farther, if the difference is
    /// `theta`.
    fn p(&self, theta: f64) -> f64 {
        (2.0 * self.p_low(theta).min(self.p_high(theta))).min(1.0)
    }

    /// How probable boots are that lie so well within `margin` if the difference is as large:
    /// two one-sided tests (Schuirmann 1987).
    fn p_within(&self, margin: f64) -> f64 {
        self.p_low(margin).max(self.p_high(-margin))
    }
}

/// The evidence of `arranged`, by the method that suits so many boots. Where all blocks agree
/// to the digit a bootstrap has no scale, and ranks are used.
pub fn weigh(arranged: &Arranged, simulated: &mut Simulated) -> Box<dyn Evidence> {
    match &arranged.data {
        Data::Differences(differences) => {
            let resampled = enough(&[differences])
                .then(|| Studentised::of_blocks(differences, simulated))
                .flatten();
            match resampled {
                Some(evidence) => Box::new(evidence),
                None => Box::new(Ranks::of_blocks(differences)),
            }
        }
        Data::Apart { a, b } => {
            let resampled = enough(&[a, b])
                .then(|| Studentised::of_sides(a, b, simulated))
                .flatten();
            match resampled {
                Some(evidence) => Box::new(evidence),
                None => Box::new(Ranks::of_sides(a, b)),
            }
        }
    }
}

fn enough(samples: &[&Vec<f64>]) -> bool {
    samples
        .iter()
        .all(|sample| sample.len() >= LEAST_FOR_BOOTSTRAP)
}
