//! Tests and intervals of one difference of logarithms.
//!
//! A test and its interval are each other's inversion: a difference lies outside the interval of level
//! `1 - alpha` exactly if its two-sided p-value is at most `alpha`. A verdict can therefore be read off
//! the interval it rests on.

use super::boots::Data;
use super::bootstrap::{Simulated, Studentised};
use super::mean::Mean;
use super::ranks::Ranks;
use super::{Method, LEAST_FOR_BOOTSTRAP};

/// An estimate of a difference of logarithms with a test of every possible value.
pub trait Evidence {
    /// Returns the estimate.
    fn estimate(&self) -> f64;
    /// Returns the probability of values this low or lower if the difference is `theta`.
    fn p_low(&self, theta: f64) -> f64;
    /// Returns the probability of values this high or higher if the difference is `theta`.
    fn p_high(&self, theta: f64) -> f64;
    /// Returns the differences whose two-sided p-value exceeds `alpha`; `None` if no difference is
    /// excluded.
    fn interval(&self, alpha: f64) -> Option<(f64, f64)>;
    /// Returns the standard deviation of one block: the standard error times the square root of the
    /// number of blocks.
    fn spread(&self) -> f64;

    /// Returns the two-sided p-value of `theta`.
    fn p(&self, theta: f64) -> f64 {
        (2.0 * self.p_low(theta).min(self.p_high(theta))).min(1.0)
    }

    /// Returns the p-value of two one-sided tests (Schuirmann 1987) against a difference of at least
    /// `margin` in either direction.
    fn p_within(&self, margin: f64) -> f64 {
        self.p_low(margin).max(self.p_high(-margin))
    }
}

/// The stricter of two tests at every point, with the estimate of the first.
///
/// The rank sum test is exact for any noise that both sides share, Welch's for normal noise of unequal
/// spread; a difference that both reject is rejected at the level in either case.
struct Stricter(Ranks, Mean);

impl Evidence for Stricter {
    fn estimate(&self) -> f64 {
        self.0.estimate()
    }

    fn p_low(&self, theta: f64) -> f64 {
        self.0.p_low(theta).max(self.1.p_low(theta))
    }

    fn p_high(&self, theta: f64) -> f64 {
        self.0.p_high(theta).max(self.1.p_high(theta))
    }

    fn interval(&self, alpha: f64) -> Option<(f64, f64)> {
        let (ranks, mean) = (self.0.interval(alpha)?, self.1.interval(alpha)?);
        Some((ranks.0.min(mean.0), ranks.1.max(mean.1)))
    }

    fn spread(&self) -> f64 {
        self.0.spread()
    }
}

/// Returns the evidence of `data` and its method: from [`LEAST_FOR_BOOTSTRAP`] boots on the studentised
/// trimmed mean, below, or where all blocks agree to the digit and there is no scale, ranks.
pub fn weigh(data: &Data, simulated: &mut Simulated) -> (Method, Box<dyn Evidence>) {
    match data {
        Data::Differences(differences) => {
            match enough(&[differences])
                .then(|| Studentised::of_blocks(differences, simulated))
                .flatten()
            {
                Some(evidence) => (Method::BlockBootstrap, Box::new(evidence)),
                None => (Method::SignedRanks, Box::new(Ranks::of_blocks(differences))),
            }
        }
        Data::Apart { a, b } => {
            match enough(&[a, b])
                .then(|| Studentised::of_sides(a, b, simulated))
                .flatten()
            {
                Some(evidence) => (Method::BootBootstrap, Box::new(evidence)),
                None => (
                    Method::RankSums,
                    Box::new(Stricter(Ranks::of_sides(a, b), Mean::of(data))),
                ),
            }
        }
    }
}

fn enough(samples: &[&Vec<f64>]) -> bool {
    samples
        .iter()
        .all(|sample| sample.len() >= LEAST_FOR_BOOTSTRAP)
}
