//! The bootstrap of a trimmed mean: from eight boots on.
//!
//! The estimate is the mean without 15% of the values at either end (of differences in
//! blocks, or of either side), with Yuen's (1974) standard error. Nothing is lost by that:
//! what is trimmed decides the standard error. How many standard errors the estimate may be off
//! is learned from simulated boots (the parametric bootstrap of a studentised statistic:
//! Efron and Tibshirani 1993, section 6.5; Davison and Hinkley 1997, sections 2.2 and 5.2),
//! symmetrically (Hall 1988), so that A and B can be exchanged. Boots are simulated as
//! normal on the logarithm, which noise with long tails is not; it errs towards *unsure*
//! then. Resamplings of the boots themselves say too little of the far tail that a table asks
//! for. docs/statistics.md has what was measured of all this.

use super::evidence::Evidence;
use super::trimmed::{trimmed, Estimate};
use crate::spread::chance;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::rc::Rc;

/// Steps of the logarithm of the ratio of two spreads, and the farthest that matters.
const STEP: f64 = 0.1;
const FARTHEST: f64 = 7.0;

/// Tells the chance of verdicts from that of other figures.
const OF_VERDICTS: u64 = 1 << 33;

/// Simulated boots with nothing but noise of one standard deviation. They depend on
/// nothing but how many there are, so a table needs them once.
pub struct Simulated {
    seed: u64,
    draws: usize,
    /// By the number of boots, and to which of two sides they belong.
    estimates: BTreeMap<(usize, u64), Rc<[Estimate]>>,
    /// By the number of boots on one side only.
    deviations: BTreeMap<usize, Rc<[f64]>>,
    /// By the numbers of boots on both sides, and the steps of the ratio of their spreads.
    differences: BTreeMap<(usize, usize, i32), Rc<[f64]>>,
}

impl Simulated {
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            draws: 0,
            estimates: BTreeMap::new(),
            deviations: BTreeMap::new(),
            differences: BTreeMap::new(),
        }
    }

    /// Makes every later distribution one of at least `draws` estimates.
    pub fn require(&mut self, draws: usize) {
        if draws > self.draws {
            *self = Self {
                draws,
                ..Self::new(self.seed)
            };
        }
    }

    fn estimates(&mut self, boots: usize, side: u64) -> Rc<[Estimate]> {
        let (seed, draws) = (self.seed, self.draws);
        let drawn = self.estimates.entry((boots, side)).or_insert_with(|| {
            let mut chance = chance(seed, OF_VERDICTS | side);
            (0..draws)
                .map(|_| trimmed(&normals(boots, &mut chance)))
                .collect()
        });
        Rc::clone(drawn)
    }

    /// How many standard errors estimates of so many blocks are off, in ascending order.
    fn deviations(&mut self, blocks: usize) -> Rc<[f64]> {
        if !self.deviations.contains_key(&blocks) {
            let estimates = self.estimates(blocks, 0);
            let deviations = ascending(estimates.iter().map(|one| one.deviation()));
            self.deviations.insert(blocks, deviations);
        }
        Rc::clone(&self.deviations[&blocks])
    }

    /// The same for a difference of sides with so many boots and so large a spread each. Only
    /// the ratio of the spreads matters, and not much: its steps of a tenth serve.
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

/// So many normal numbers (Box and Muller 1958) in ascending order.
fn normals(count: usize, chance: &mut ChaCha8Rng) -> Vec<f64> {
    let mut drawn = Vec::with_capacity(count + 1);
    while drawn.len() < count {
        let radius = (-2.0 * (1.0 - chance.random::<f64>()).ln()).sqrt();
        let (sine, cosine) = (TAU * chance.random::<f64>()).sin_cos();
        drawn.extend([radius * sine, radius * cosine]);
    }
    drawn.truncate(count);
    drawn.sort_by(f64::total_cmp);
    drawn
}

/// The evidence of a trimmed mean, or of a difference of two.
pub struct Studentised {
    estimate: Estimate,
    /// Of what the standard error is that of one block.
    blocks: usize,
    /// How many standard errors simulated estimates are off, in ascending order.
    deviations: Rc<[f64]>,
}

impl Studentised {
    /// Of differences within blocks; `None` if they have no spread.
    pub fn of_blocks(differences: &[f64], simulated: &mut Simulated) -> Option<Self> {
        let estimate = Estimate::of(differences);
        let blocks = differences.len();
        (estimate.variance > 0.0).then(|| Self {
            estimate,
            blocks,
            deviations: simulated.deviations(blocks),
        })
    }

    /// Of boots that ran apart; `None` if they have no spread.
    pub fn of_sides(a: &[f64], b: &[f64], simulated: &mut Simulated) -> Option<Self> {
        let (of_a, of_b) = (Estimate::of(a), Estimate::of(b));
        let estimate = of_b.less(of_a);
        let side = |of: Estimate, boots: usize| (boots, of.spread(boots));
        (estimate.variance > 0.0).then(|| Self {
            estimate,
            blocks: a.len().min(b.len()),
            deviations: simulated.differences(side(of_a, a.len()), side(of_b, b.len())),
        })
    }

    /// The probability to be off by so many standard errors or more, in either direction.
    fn beyond(&self, deviation: f64) -> f64 {
        let within = self.deviations.partition_point(|one| *one < deviation);
        let beyond = self.deviations.len() - within;
        // The boots themselves are one more draw (Davison and Hinkley 1997, section 4.2.5).
        (beyond + 1) as f64 / (self.deviations.len() + 1) as f64
    }

    /// The probability of an estimate so many standard errors away or more, away to this side.
    fn tail(&self, deviation: f64) -> f64 {
        let half = self.beyond(deviation.abs()) / 2.0;
        match deviation >= 0.0 {
            true => half,
            false => 1.0 - half,
        }
    }

    fn deviation(&self, theta: f64) -> f64 {
        (self.estimate.center - theta) / self.estimate.variance.sqrt()
    }
}

impl Evidence for Studentised {
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

    fn simulated(draws: usize, seed: u64) -> Simulated {
        let mut simulated = Simulated::new(seed);
        simulated.require(draws);
        simulated
    }

    /// Of six blocks nothing is trimmed, and the deviation is Student's t.
    #[test]
    fn without_trimming_it_is_students_distribution() {
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
    fn blocks_that_agree_have_no_scale() {
        assert!(Studentised::of_blocks(&[0.5; 9], &mut simulated(100, 1)).is_none());
    }

    /// One side without noise adds none, and the other is as it would be in blocks.
    #[test]
    fn a_side_without_noise_leaves_the_other_as_it_is() {
        let noisy = [1.0, 2.0, 4.0, 3.0, 5.0, 2.5, 1.5, 3.5];
        let mut simulated = simulated(20_000, 1);
        let apart = Studentised::of_sides(&[1.0; 8], &noisy, &mut simulated).unwrap();
        let differences = noisy.map(|value| value - 1.0);
        let paired = Studentised::of_blocks(&differences, &mut simulated).unwrap();
        assert_eq!(apart.estimate(), paired.estimate());
        let (one, other) = (
            apart.interval(0.05).unwrap(),
            paired.interval(0.05).unwrap(),
        );
        assert!((one.0 - other.0).abs() < 0.05, "{one:?} {other:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn intervals_hold_what_tests_do_not_reject(
            values in proptest::collection::vec(-1.0f64..1.0, 8..14),
            theta in -1.0f64..1.0,
            alpha in 0.001f64..0.5,
            seed in any::<u64>(),
        ) {
            let mut simulated = simulated(999, seed);
            let test = Studentised::of_blocks(&values, &mut simulated).unwrap();
            let inside = test
                .interval(alpha)
                .is_none_or(|(low, high)| low <= theta && theta <= high);
            prop_assert_eq!(inside, test.p(theta) > alpha);
            prop_assert!((test.p_low(theta) + test.p_high(theta) - 1.0).abs() < 1e-9);
        }
    }
}
