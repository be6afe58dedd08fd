//! What would settle an operation of which these boots do not tell.
//!
//! The estimate's standard error is the spread from block to block by the root of the
//! number of blocks. It is settled as *changed* when the effect is so many of them away
//! from nothing, as *equivalent* when so far within the margin. With the
//! spread and the effect as they are seen now, `n` blocks do that with a probability of 80%
//! if `(t(1 - a) + t(80%)) * spread / sqrt(n)` is at most the way to go: `log(effect)` to one side,
//! `log(1 + margin) - log(effect)` to the other; `t` are quantiles of Student's distribution
//! and `a` is the level of the one-sided test. With 0.6 n - 1 degrees of freedom it fits what
//! simulation finds of means of which 15% are trimmed at either end. The effect is only an
//! estimate, so this is one, too.

use super::{Design, LEAST_FOR_BOOTSTRAP};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The probability with which the number of blocks should do.
pub const POWER: f64 = 0.8;

/// What would settle an unsure operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outlook {
    /// No result of so few boots is improbable enough: an exact test of `n` blocks gives at
    /// least `2^(1 - n)`, one of `n` boots on either side, apart, at least `2 n!^2 / (2n)!`.
    TooFewBoots {
        /// Blocks in all; apart, boots of either side.
        needed: usize,
    },
    /// So many more blocks would probably settle it.
    MoreBoots(usize),
    /// More than anybody would run.
    Hopeless,
}

/// An operation that is not settled, and the one-sided levels that it would have to reach.
#[derive(Clone, Copy, Debug)]
pub struct Unsettled {
    pub design: Design,
    pub blocks: usize,
    pub estimate: f64,
    pub spread: f64,
    /// The mean without trimming and its standard deviation of one block: *equivalent* needs it within
    /// the margin, too.
    pub mean: f64,
    pub mean_spread: f64,
    /// The logarithm of the largest ratio within the margin.
    pub margin: f64,
    pub changed_level: f64,
    pub equivalent_level: f64,
}

impl Unsettled {
    pub fn outlook(&self, most_blocks: usize) -> Outlook {
        let to_change = self.estimate.abs();
        let settles = |blocks| {
            let reaches = |level, spread, way| reach(self.design, level, spread, blocks) <= way;
            let within = |spread, estimate: f64| {
                reaches(self.equivalent_level, spread, self.margin - estimate.abs())
            };
            reaches(self.changed_level, self.spread, to_change)
                || within(self.spread, self.estimate) && within(self.mean_spread, self.mean)
        };
        match settles(most_blocks) {
            true => Outlook::MoreBoots(least(self.blocks + 1, most_blocks, settles) - self.blocks),
            false => Outlook::Hopeless,
        }
    }
}

/// The least number from which on `settles` is true, which it is of the `last`.
fn least(first: usize, last: usize, settles: impl Fn(usize) -> bool) -> usize {
    let (mut first, mut last) = (first, last.max(first));
    while first < last {
        let middle = usize::midpoint(first, last);
        match settles(middle) {
            true => last = middle,
            false => first = middle + 1,
        }
    }
    last
}

/// The smallest effect, as a logarithm, that so many blocks find with [`POWER`] at this
/// one-sided level. Nothing, however large, where exact tests of so few blocks never
/// reach the level.
pub fn reach(design: Design, level: f64, spread: f64, blocks: usize) -> f64 {
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

/// The least that a two-sided test of so many blocks, or boots on either side, can give.
fn least_p(design: Design, blocks: usize) -> f64 {
    if blocks >= LEAST_FOR_BOOTSTRAP {
        return 0.0;
    }
    let one_of = |n: usize| match design {
        Design::Blocks => 2.0,
        Design::Apart => (blocks + n) as f64 / n as f64,
    };
    2.0 / (1..=blocks).map(one_of).product::<f64>()
}

/// Blocks, or boots on either side, from which on a test can give `level` (two-sided) at all.
pub fn least_blocks(design: Design, level: f64) -> usize {
    (1..LEAST_FOR_BOOTSTRAP)
        .find(|blocks| least_p(design, *blocks) <= level)
        .unwrap_or(LEAST_FOR_BOOTSTRAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_to_the_power_of_blocks_limits_exact_tests() {
        assert_eq!(least_blocks(Design::Blocks, 0.05), 6);
        assert_eq!(least_blocks(Design::Blocks, 0.01), LEAST_FOR_BOOTSTRAP);
        assert_eq!(least_blocks(Design::Blocks, 0.5), 2);
        assert_eq!(least_blocks(Design::Apart, 0.01), 5, "2 of 252 choices");
        assert_eq!(least_blocks(Design::Apart, 0.001), 7, "2 of 3,432");
        assert_eq!(reach(Design::Blocks, 0.005, 0.01, 7), f64::INFINITY);
    }

    #[test]
    fn more_spread_needs_more_blocks_and_too_much_is_hopeless() {
        let unsettled = |estimate, spread| Unsettled {
            design: Design::Blocks,
            blocks: 8,
            estimate,
            spread,
            mean: estimate,
            mean_spread: spread,
            margin: 1.02f64.ln(),
            changed_level: 0.005,
            equivalent_level: 0.05,
        };
        let more = |estimate, spread| unsettled(estimate, spread).outlook(200);
        let Outlook::MoreBoots(some) = more(0.05, 0.05) else {
            panic!("{:?}", more(0.05, 0.05));
        };
        // (2.86 + 0.87)^2 with 9 degrees of freedom and so on: about 16 blocks in all.
        assert!((7..=11).contains(&some), "{some}");
        let Outlook::MoreBoots(many) = more(0.05, 0.10) else {
            panic!("{:?}", more(0.05, 0.10));
        };
        assert!(many > 4 * some, "{many}");
        assert_eq!(more(0.05, 1.0), Outlook::Hopeless);
        assert!(
            matches!(more(0.0, 0.02), Outlook::MoreBoots(_)),
            "to the margin"
        );
    }
}
