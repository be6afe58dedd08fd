//! Number of boots that settles an unsure operation.
//!
//! The standard error of the estimate is the spread from block to block by the root of the number of
//! blocks. With the present spread and effect, `n` blocks settle the operation with a probability of
//! 80% if `(t(1 - a) + t(80%)) * spread / sqrt(n)` is at most the distance to the null hypothesis:
//! `log(effect)` for *changed*, `log(1 + margin) - log(effect)` for *equivalent*; `t` are quantiles of
//! Student's distribution and `a` is the level of the one-sided test. 0.6 n - 1 degrees of freedom fit
//! simulated means with 15% trimmed at either end. The effect is an estimate, so the number of boots is,
//! too.

use super::{Design, LEAST_FOR_BOOTSTRAP};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Probability that the number of blocks suffices.
pub const POWER: f64 = 0.8;

/// Boots needed to settle an unsure operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequiredBoots {
    /// An exact test of so few boots cannot reach the level: `n` blocks give a p-value of at least
    /// `2^(1 - n)`, `n` independent boots on either side at least `2 n!^2 / (2n)!`.
    TooFewBoots {
        /// Total number of blocks; of independent boots, on either side.
        needed: usize,
    },
    /// This many more blocks probably settle it.
    MoreBoots(usize),
    /// More than [`super::Settings::most_blocks`].
    Hopeless,
}

/// An unsure operation with the one-sided levels of its verdicts.
#[derive(Clone, Copy, Debug)]
pub struct Unsettled {
    pub design: Design,
    pub blocks: usize,
    pub estimate: f64,
    pub spread: f64,
    /// The untrimmed mean, which *equivalent* needs within the margin, too.
    pub mean: f64,
    /// Standard deviation of one block around that mean.
    pub mean_spread: f64,
    /// Logarithm of the largest ratio within the margin.
    pub margin: f64,
    pub changed_level: f64,
    pub equivalent_level: f64,
}

impl Unsettled {
    pub fn required_boots(&self, most_blocks: usize) -> RequiredBoots {
        let to_change = self.estimate.abs();
        let settles = |blocks| {
            let detects = |level, spread, distance| {
                detectable(self.design, level, spread, blocks) <= distance
            };
            let within = |spread, estimate: f64| {
                detects(self.equivalent_level, spread, self.margin - estimate.abs())
            };
            detects(self.changed_level, self.spread, to_change)
                || within(self.spread, self.estimate) && within(self.mean_spread, self.mean)
        };
        if settles(most_blocks) {
            RequiredBoots::MoreBoots(least(self.blocks + 1, most_blocks, settles) - self.blocks)
        } else {
            RequiredBoots::Hopeless
        }
    }
}

/// Returns the smallest number for which the monotonic `settles` is true; it is for `last`.
fn least(first: usize, last: usize, settles: impl Fn(usize) -> bool) -> usize {
    let (mut first, mut last) = (first, last.max(first));
    while first < last {
        let middle = usize::midpoint(first, last);
        if settles(middle) {
            last = middle
        } else {
            first = middle + 1
        }
    }
    last
}

/// Returns the smallest effect, as a logarithm, that a one-sided test of `blocks` blocks detects with
/// probability [`POWER`]; infinite if an exact test of so few blocks cannot reach the level.
pub fn detectable(design: Design, level: f64, spread: f64, blocks: usize) -> f64 {
    let freedom = (0.6 * blocks as f64 - 1.0).max(1.0);
    let student = StudentsT::new(0.0, 1.0, freedom);
    match student {
        Ok(student) if least_p(design, blocks) <= 2.0 * level => {
            let quantiles = student.inverse_cdf(1.0 - level) + student.inverse_cdf(POWER);
            quantiles * spread / (blocks as f64).sqrt()
        }
        _ => f64::INFINITY,
    }
}

/// Returns the smallest p-value of a two-sided test of so many blocks, or boots on either side.
fn least_p(design: Design, blocks: usize) -> f64 {
    if blocks >= LEAST_FOR_BOOTSTRAP {
        return 0.0;
    }
    let one_of = |n: usize| match design {
        Design::Blocked => 2.0,
        Design::Independent => (blocks + n) as f64 / n as f64,
    };
    2.0 / (1..=blocks).map(one_of).product::<f64>()
}

/// Returns the number of blocks, or boots on either side, from which on a two-sided test can reach
/// `level`.
pub fn least_blocks(design: Design, level: f64) -> usize {
    (1..LEAST_FOR_BOOTSTRAP)
        .find(|blocks| least_p(design, *blocks) <= level)
        .unwrap_or(LEAST_FOR_BOOTSTRAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_blocks_limit_the_level_of_exact_tests() {
        assert_eq!(least_blocks(Design::Blocked, 0.05), 6);
        assert_eq!(least_blocks(Design::Blocked, 0.01), LEAST_FOR_BOOTSTRAP);
        assert_eq!(least_blocks(Design::Blocked, 0.5), 2);
        assert_eq!(
            least_blocks(Design::Independent, 0.01),
            5,
            "2 of 252 choices"
        );
        assert_eq!(least_blocks(Design::Independent, 0.001), 7, "2 of 3,432");
        assert_eq!(detectable(Design::Blocked, 0.005, 0.01, 7), f64::INFINITY);
    }

    #[test]
    fn more_spread_needs_more_blocks_up_to_the_limit() {
        let unsettled = |estimate, spread| Unsettled {
            design: Design::Blocked,
            blocks: 8,
            estimate,
            spread,
            mean: estimate,
            mean_spread: spread,
            margin: 1.02f64.ln(),
            changed_level: 0.005,
            equivalent_level: 0.05,
        };
        let more = |estimate, spread| unsettled(estimate, spread).required_boots(200);
        let RequiredBoots::MoreBoots(some) = more(0.05, 0.05) else {
            panic!("{:?}", more(0.05, 0.05));
        };
        // (2.86 + 0.87)^2 with 9 degrees of freedom and so on: about 16 blocks in all.
        assert!((7..=11).contains(&some), "{some}");
        let RequiredBoots::MoreBoots(many) = more(0.05, 0.10) else {
            panic!("{:?}", more(0.05, 0.10));
        };
        assert!(many > 4 * some, "{many}");
        assert_eq!(more(0.05, 1.0), RequiredBoots::Hopeless);
        assert!(
            matches!(more(0.0, 0.02), RequiredBoots::MoreBoots(_)),
            "to the margin"
        );
    }
}
