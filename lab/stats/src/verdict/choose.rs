//! Choice of the test by design and number of boots.

use super::bootstrap::{BootstrapTest, NullDistributions};
use super::data::{Data, Design};
use super::mean::TTest;
use super::ranks::RankTest;
use super::test::Test;
use super::{Method, LEAST_FOR_BOOTSTRAP};

/// The stricter of two tests at every point, with the estimate of the first.
///
/// The rank sum test is exact for any noise that both sides share, Welch's for normal noise of unequal
/// spread; a difference that both reject is rejected at the level in either case.
struct Stricter(RankTest, TTest);

impl Stricter {
    fn of(a: Vec<f64>, b: Vec<f64>) -> Self {
        let ranks = RankTest::of_sides(&a, &b);
        Self(ranks, TTest::of(&Data::Independent { a, b }))
    }
}

impl Test for Stricter {
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

/// Returns the test of `data` and its method: from [`LEAST_FOR_BOOTSTRAP`] boots on the studentised
/// trimmed mean; below, or if all blocks are equal to the digit and there is no scale, ranks.
pub fn choose_test(data: &Data, simulated: &mut NullDistributions) -> (Method, Box<dyn Test>) {
    match data {
        Data::Differences(differences) => {
            match enough(&[differences])
                .then(|| BootstrapTest::of_blocks(differences, simulated))
                .flatten()
            {
                Some(evidence) => (Method::BlockBootstrap, Box::new(evidence)),
                None => (
                    Method::SignedRanks,
                    Box::new(RankTest::of_blocks(differences)),
                ),
            }
        }
        Data::Independent { a, b } => {
            match enough(&[a, b])
                .then(|| BootstrapTest::of_sides(a, b, simulated))
                .flatten()
            {
                Some(evidence) => (Method::BootBootstrap, Box::new(evidence)),
                None => (
                    Method::RankSums,
                    Box::new(Stricter::of(a.clone(), b.clone())),
                ),
            }
        }
    }
}

/// Returns the estimate of B less A and its interval by ranks, of few boots or many; `None` if no difference is excluded.
/// In blocks the values of a side are in the order of blocks.
pub fn rank_interval(
    a: &[f64],
    b: &[f64],
    design: Design,
    alpha: f64,
) -> Option<(f64, (f64, f64))> {
    let test: Box<dyn Test> = match design {
        Design::Blocked | Design::Hosts { .. } => {
            let differences = a.iter().zip(b).map(|(a, b)| b - a);
            Box::new(RankTest::of_blocks(&differences.collect::<Vec<_>>()))
        }
        Design::Boots | Design::Runs => Box::new(Stricter::of(a.to_vec(), b.to_vec())),
    };
    Some((test.estimate(), test.interval(alpha)?))
}

fn enough(samples: &[&Vec<f64>]) -> bool {
    samples
        .iter()
        .all(|sample| sample.len() >= LEAST_FOR_BOOTSTRAP)
}
