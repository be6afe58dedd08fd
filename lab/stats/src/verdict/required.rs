//! Number of boots that settles an unsure operation.
//!
//! The boots so far say how large effect and spread may be: after `n` differences of mean `m` and standard deviation
//! `s` the spread `sigma` is distributed as `s` times the root of `(n - 1)` by a chi-squared value, and the effect is
//! within `m` plus or minus [`REACH`] `sigma / sqrt(n)`. With each of them, the mean of all `N` blocks is farther from 0
//! than the test's quantile times its standard error, or nearer to it than the margin less that, with a certain
//! probability. `N` is suggested if that probability, of the effect for which it is least and averaged over the
//! spreads, is at least [`AIM`]. So the promise holds whatever the effect is (`make power`); a number for the effect
//! as estimated would hold for that effect only. 0.6 n - 1 degrees of freedom fit simulated means with 15% trimmed at
//! either end.

use super::{Design, LEAST_FOR_BOOTSTRAP};
use crate::sorted::mean;
use statrs::distribution::{ChiSquared, ContinuousCDF, Normal, StudentsT};

/// Probability that the number of blocks suffices.
pub const POWER: f64 = 0.8;

/// Computed probability of a suggested number. It is above [`POWER`], as operations that have a number are those whose
/// spread seems small.
const AIM: f64 = 0.9;

/// Number of quantiles that stand for a distribution of the spread.
const SPREADS: usize = 16;

/// Half width of the effects that are considered, in standard errors: 90% of a normal distribution.
const REACH: f64 = 1.645;

/// Number of effects that are considered.
const EFFECTS: usize = 9;

/// Boots needed to settle an unsure operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequiredBoots {
    /// An exact test of so few boots cannot reach the level: `n` blocks give a p-value of at least
    /// `2^(1 - n)`, `n` independent boots on either side at least `2 n!^2 / (2n)!`. Fewer than
    /// [`LEAST_FOR_BOOTSTRAP`] say little about the spread, so there is no number that is probably enough.
    TooFewBoots {
        /// Least total number of blocks; of separate runs, on either side.
        needed: usize,
    },
    /// This many more blocks settle it with a probability of at least [`POWER`].
    MoreBoots(usize),
    /// No number up to [`super::Settings::most_blocks`] does.
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
        let needed = least_blocks(self.design, 2.0 * self.changed_level);
        if self.blocks < needed.max(LEAST_FOR_BOOTSTRAP) {
            return RequiredBoots::TooFewBoots {
                needed: needed.max(self.blocks + 1),
            };
        }
        let factors = spread_factors(freedom(self.blocks));
        let settles = |blocks| self.probability(&factors, blocks) >= AIM;
        if settles(most_blocks) {
            RequiredBoots::MoreBoots(least(self.blocks + 1, most_blocks, settles) - self.blocks)
        } else {
            RequiredBoots::Hopeless
        }
    }

    /// Returns the probability that `total` blocks settle the operation, for the effect for which it is least.
    fn probability(&self, factors: &[f64], total: usize) -> f64 {
        let Ok(student) = StudentsT::new(0.0, 1.0, freedom(total)) else {
            return 0.0;
        };
        let reach =
            [self.changed_level, self.equivalent_level].map(|it| student.inverse_cdf(1.0 - it));
        let least = factors.iter().map(|factor| {
            let steps = (0..EFFECTS).map(|index| 2.0 * index as f64 / (EFFECTS - 1) as f64 - 1.0);
            let all = steps.map(|step| self.probability_at(*factor, REACH * step, total, reach));
            all.fold(1.0, f64::min)
        });
        mean(&least.collect::<Vec<_>>())
    }

    /// Returns that probability if the spread is `factor` times the measured one and the effect is so many standard
    /// errors from the measured one. `reach` has the tests' quantiles, of *changed* and of *equivalent*.
    fn probability_at(&self, factor: f64, errors: f64, total: usize, reach: [f64; 2]) -> f64 {
        let (before, all) = (self.blocks as f64, total as f64);
        let new = all - before;
        // The probability that the mean of all blocks, of which the first are known, is at most so far from 0.
        let inside = |measured: f64, spread: f64, reach: f64| {
            let effect = measured + errors * factor * spread / before.sqrt();
            let deviation = factor * spread * new.sqrt() / all;
            let normal = Normal::new(
                (before * measured + new * effect) / all,
                deviation.max(f64::MIN_POSITIVE),
            );
            normal.map_or(0.0, |normal| {
                (normal.cdf(reach) - normal.cdf(-reach)).max(0.0)
            })
        };
        let error = |spread: f64| {
            let squares = (before - 1.0 + new * factor * factor) * spread * spread;
            (squares / (all - 1.0) / all).sqrt()
        };
        let changed = 1.0 - inside(self.estimate, self.spread, reach[0] * error(self.spread));
        let within = |measured, spread| {
            let reach = self.margin - reach[1] * error(spread);
            inside(measured, spread, reach.max(0.0))
        };
        let equivalent =
            within(self.estimate, self.spread).min(within(self.mean, self.mean_spread));
        (changed + equivalent).min(1.0)
    }
}

/// Returns equally probable ratios of the spread to the measured one.
fn spread_factors(freedom: f64) -> Vec<f64> {
    let squares = ChiSquared::new(freedom);
    let quantiles = (0..SPREADS).map(|index| (index as f64 + 0.5) / SPREADS as f64);
    squares.map_or_else(
        |_| Vec::new(),
        |squares| {
            let factors = quantiles.map(|share| (freedom / squares.inverse_cdf(share)).sqrt());
            factors.collect()
        },
    )
}

/// Returns the degrees of freedom of the spread of so many blocks.
fn freedom(blocks: usize) -> f64 {
    (0.6 * blocks as f64 - 1.0).max(1.0)
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
    let student = StudentsT::new(0.0, 1.0, freedom(blocks));
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
        Design::Blocked | Design::Hosts { .. } => 2.0,
        Design::Boots | Design::Runs => (blocks + n) as f64 / n as f64,
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
        assert_eq!(least_blocks(Design::Runs, 0.01), 5, "2 of 252 choices");
        assert_eq!(least_blocks(Design::Runs, 0.001), 7, "2 of 3,432");
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
        let number = |estimate, spread| match more(estimate, spread) {
            RequiredBoots::MoreBoots(number) => number,
            other => panic!("{estimate} {spread}: {other:?}"),
        };
        let some = number(0.0, 0.01);
        assert!((1..30).contains(&some), "{some}");
        assert!(number(0.0, 0.02) > 2 * some);
        assert!(number(0.05, 0.03) > number(0.05, 0.02));
        assert_eq!(more(0.05, 1.0), RequiredBoots::Hopeless);
        // The effect may be the margin, at which neither verdict is near.
        assert!(number(0.012, 0.02) > number(0.0, 0.02));
        let few = Unsettled {
            blocks: 5,
            ..unsettled(0.0, 0.01)
        };
        let needed = RequiredBoots::TooFewBoots { needed: 8 };
        assert_eq!(few.required_boots(200), needed);
    }
}
