//! Bootstrap test of a trimmed mean, from eight boots on.
//!
//! The estimate is the mean without 15% of the values at either end (of differences in blocks, or of
//! either side), with Yuen's (1974) standard error, to which the trimmed values contribute. The
//! distribution of its error in standard errors is simulated (the parametric bootstrap of a studentised
//! statistic: Efron and Tibshirani 1993, section 6.5; Davison and Hinkley 1997, sections 2.2 and 5.2),
//! symmetrically (Hall 1988), so that A and B can be exchanged. Boots are simulated as normal on the
//! logarithm; for noise with longer tails the test errs towards *unsure*. Resampling of the boots
//! themselves cannot show the far tail that a table requires. docs/internals/statistics.md has the simulated error
//! rates.

use super::test::Test;
use super::trimmed::{trimmed, TrimmedMean};
use crate::rng::rng;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::rc::Rc;

/// Step and limit of the logarithm of the ratio of two spreads.
const STEP: f64 = 0.1;
const FARTHEST: f64 = 7.0;

/// Random number streams of simulated boots.
const STREAM: u64 = 1 << 33;

/// Null distributions from simulated boots with standard normal noise. They depend only on numbers of
/// boots, so a table simulates them once.
pub struct NullDistributions {
    seed: u64,
    draws: usize,
    /// By number of boots, and side.
    estimates: BTreeMap<(usize, u64), Rc<[TrimmedMean]>>,
    /// By number of blocks.
    deviations: BTreeMap<usize, Rc<[f64]>>,
    /// By numbers of boots on both sides, and step of the ratio of their spreads.
    differences: BTreeMap<(usize, usize, i32), Rc<[f64]>>,
}

impl NullDistributions {
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            draws: 0,
            estimates: BTreeMap::new(),
            deviations: BTreeMap::new(),
            differences: BTreeMap::new(),
        }
    }

    /// Raises the number of estimates of every later distribution to `draws`.
    pub fn require(&mut self, draws: usize) {
        if draws > self.draws {
            *self = Self {
                draws,
                ..Self::new(self.seed)
            };
        }
    }

    fn estimates(&mut self, boots: usize, side: u64) -> Rc<[TrimmedMean]> {
        let (seed, draws) = (self.seed, self.draws);
        let drawn = self.estimates.entry((boots, side)).or_insert_with(|| {
            let mut rng = rng(seed, STREAM | side);
            (0..draws)
                .map(|_| trimmed(&normals(boots, &mut rng)))
                .collect()
        });
        Rc::clone(drawn)
    }

    /// Returns the errors of estimates of `blocks` blocks, in standard errors, in ascending order.
    fn deviations(&mut self, blocks: usize) -> Rc<[f64]> {
        if !self.deviations.contains_key(&blocks) {
            let estimates = self.estimates(blocks, 0);
            let deviations = ascending(estimates.iter().map(|one| one.deviation()));
            self.deviations.insert(blocks, deviations);
        }
        Rc::clone(&self.deviations[&blocks])
    }

    /// Returns the errors of a difference of sides, each with its number of boots and spread. Only the ratio
    /// of the spreads matters, and little: steps of a tenth suffice.
    fn differences(
        &mut self,
        (a, spread_a): (usize, f64),
        (b, spread_b): (usize, f64),
    ) -> Rc<[f64]> {
        let ratio = (spread_a / spread_b).ln().clamp(-FARTHEST, FARTHEST);
        let step = (ratio / STEP).round() as i32;
        if !self.differences.contains_key(&(a, b, step)) {
            let of_a = self.estimates(a, 1);
            let of_b = self.estimates(b, 2);
            let ratio = (f64::from(step) * STEP).exp();
            let pairs = of_a.iter().zip(of_b.iter());
            let deviations = pairs.map(|(a, b)| b.less(a.scaled(ratio)).deviation());
            self.differences.insert((a, b, step), ascending(deviations));
        }
        Rc::clone(&self.differences[&(a, b, step)])
    }
}

fn ascending(deviations: impl Iterator<Item = f64>) -> Rc<[f64]> {
    let mut all: Vec<f64> = deviations.collect();
    all.sort_by(f64::total_cmp);
    all.into()
}

/// Draws `count` normal numbers (Box and Muller 1958) in ascending order.
fn normals(count: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut drawn = Vec::with_capacity(count + 1);
    while drawn.len() < count {
        let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
        let (sine, cosine) = (TAU * rng.random::<f64>()).sin_cos();
        drawn.extend([radius * sine, radius * cosine]);
    }
    drawn.truncate(count);
    drawn.sort_by(f64::total_cmp);
    drawn
}

/// The test of a trimmed mean, or of a difference of two.
pub struct BootstrapTest {
    estimate: TrimmedMean,
    /// Number of blocks of the standard error.
    blocks: usize,
    /// Errors of simulated estimates, in standard errors, in ascending order.
    deviations: Rc<[f64]>,
}

impl BootstrapTest {
    /// Creates the test of differences within blocks; `None` if they have no spread.
    pub fn of_blocks(differences: &[f64], simulated: &mut NullDistributions) -> Option<Self> {
        let estimate = TrimmedMean::of(differences);
        let blocks = differences.len();
        (estimate.variance > 0.0).then(|| Self {
            estimate,
            blocks,
            deviations: simulated.deviations(blocks),
        })
    }

    /// Creates the test of independent boots; `None` if they have no spread.
    pub fn of_sides(a: &[f64], b: &[f64], simulated: &mut NullDistributions) -> Option<Self> {
        let (of_a, of_b) = (TrimmedMean::of(a), TrimmedMean::of(b));
        let estimate = of_b.less(of_a);
        let side = |of: TrimmedMean, boots: usize| (boots, of.spread(boots));
        (estimate.variance > 0.0).then(|| Self {
            estimate,
            blocks: a.len().min(b.len()),
            deviations: simulated.differences(side(of_a, a.len()), side(of_b, b.len())),
        })
    }

    /// Returns the probability of an error of at least `deviation` standard errors in either direction.
    fn beyond(&self, deviation: f64) -> f64 {
        let within = self.deviations.partition_point(|one| *one < deviation);
        let beyond = self.deviations.len() - within;
        // The boots themselves are one more draw (Davison and Hinkley 1997, section 4.2.5).
        (beyond + 1) as f64 / (self.deviations.len() + 1) as f64
    }

    /// Returns the probability of an error of at least `deviation` standard errors in its direction.
    fn tail(&self, deviation: f64) -> f64 {
        let half = self.beyond(deviation.abs()) / 2.0;
        if deviation >= 0.0 {
            half
        } else {
            1.0 - half
        }
    }

    fn deviation(&self, theta: f64) -> f64 {
        (self.estimate.center - theta) / self.estimate.variance.sqrt()
    }
}

impl Test for BootstrapTest {
    fn estimate(&self) -> f64 {
        self.estimate.center
    }

    fn p_low(&self, theta: f64) -> f64 {
        self.tail(-self.deviation(theta))
    }

    fn p_high(&self, theta: f64) -> f64 {
        self.tail(self.deviation(theta))
    }

    fn interval(&self, alpha: f64) -> Option<(f64, f64)> {
        let beyond = (alpha * (self.deviations.len() + 1) as f64) as usize;
        let widest = self.deviations.len().checked_sub(beyond)?;
        let reach = self.deviations.get(widest)? * self.estimate.variance.sqrt();
        Some((self.estimate.center - reach, self.estimate.center + reach))
    }

    fn spread(&self) -> f64 {
        self.estimate.spread(self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest, ProptestConfig};
    use statrs::distribution::{ContinuousCDF, StudentsT};

    fn simulated(draws: usize, seed: u64) -> NullDistributions {
        let mut simulated = NullDistributions::new(seed);
        simulated.require(draws);
        simulated
    }

    /// No value of six is trimmed, so the deviation is Student's t.
    #[test]
    fn without_trimming_the_null_distribution_is_students() {
        let deviations = simulated(40_000, 1).deviations(6);
        let student = StudentsT::new(0.0, 1.0, 5.0).unwrap();
        for share in [0.5, 0.9, 0.95, 0.99] {
            let found = deviations[(share * 40_000.0) as usize];
            let expected = student.inverse_cdf((1.0 + share) / 2.0);
            assert!(
                (found / expected - 1.0).abs() < 0.03,
                "{share}: {found} {expected}"
            );
        }
    }

    #[test]
    fn equal_blocks_have_no_bootstrap_test() {
        assert!(BootstrapTest::of_blocks(&[0.5; 9], &mut simulated(100, 1)).is_none());
    }

    /// A side without noise makes the test that of differences in blocks.
    #[test]
    fn a_side_without_noise_does_not_change_the_interval() {
        let noisy = [1.0, 2.0, 4.0, 3.0, 5.0, 2.5, 1.5, 3.5];
        let mut simulated = simulated(20_000, 1);
        let unpaired = BootstrapTest::of_sides(&[1.0; 8], &noisy, &mut simulated).unwrap();
        let differences = noisy.map(|value| value - 1.0);
        let paired = BootstrapTest::of_blocks(&differences, &mut simulated).unwrap();
        assert_eq!(unpaired.estimate(), paired.estimate());
        let (one, other) = (
            unpaired.interval(0.05).unwrap(),
            paired.interval(0.05).unwrap(),
        );
        assert!((one.0 - other.0).abs() < 0.05, "{one:?} {other:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn intervals_contain_the_differences_that_are_not_rejected(
            values in proptest::collection::vec(-1.0f64..1.0, 8..14),
            theta in -1.0f64..1.0,
            alpha in 0.001f64..0.5,
            seed in any::<u64>(),
        ) {
            let mut simulated = simulated(999, seed);
            let test = BootstrapTest::of_blocks(&values, &mut simulated).unwrap();
            let inside = test
                .interval(alpha)
                .is_none_or(|(low, high)| low <= theta && theta <= high);
            prop_assert_eq!(inside, test.p(theta) > alpha);
            prop_assert!((test.p_low(theta) + test.p_high(theta) - 1.0).abs() < 1e-9);
        }
    }
}
