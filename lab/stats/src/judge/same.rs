//! A against A: what this host and this method say where nothing can have changed.

use super::outlook::reach;
use super::{Comparison, Design, Method, Verdict};
use statrs::function::beta::beta_reg;

/// Counts over comparisons of contenders that are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FalseAlarms {
    /// Comparisons with a test, so not of an exact clock.
    pub tests: usize,
    /// Those with a `p` of the level at most, for itself: its share of all is expected.
    pub alarms: usize,
    /// Called changed, after the adjustment to the table.
    pub changed: usize,
    /// Called equivalent.
    pub equivalent: usize,
    /// Neither.
    pub unsure: usize,
}

impl FalseAlarms {
    /// Counts `comparisons`; an alarm is a `p` of at most `level`.
    pub fn count<'a>(comparisons: impl IntoIterator<Item = &'a Comparison>, level: f64) -> Self {
        let mut counts = Self::default();
        for comparison in comparisons {
            let Some(p) = comparison.p else { continue };
            counts.tests += 1;
            counts.alarms += usize::from(p <= level);
            match comparison.verdict {
                Verdict::Changed => counts.changed += 1,
                Verdict::Equivalent => counts.equivalent += 1,
                Verdict::Unsure => counts.unsure += 1,
            }
        }
        counts
    }

    /// How probable as many alarms or more are, if each test gives one with probability
    /// `level` and all are independent: the tail of the binomial distribution. Operations of
    /// the same boots are not quite; alarms then come in heaps.
    pub fn probability(&self, level: f64) -> f64 {
        match self.alarms {
            0 => 1.0,
            alarms => beta_reg(alarms as f64, (self.tests - alarms + 1) as f64, level),
        }
    }
}

impl Comparison {
    /// The smallest change that as many boots find with a probability of 80% at a two-sided
    /// level, as a share: 0.03 is three percent, up. From the spread and the number of blocks by
    /// the formula of [`super::Outlook`]. `None` on an exact clock, which shows one digit,
    /// and where so few boots find nothing.
    ///
    /// Alone among `m` operations, what changed is tested at a level of `alpha / m`.
    pub fn smallest_effect(&self, level: f64) -> Option<f64> {
        let design = match self.method {
            Method::Digits => return None,
            Method::SignedRanks | Method::BlockBootstrap => Design::Blocks,
            Method::RankSums | Method::BootBootstrap => Design::Apart,
        };
        let effect = reach(design, level / 2.0, self.spread?.ln(), self.blocks);
        effect.is_finite().then(|| effect.exp_m1())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(p: f64, verdict: Verdict) -> Comparison {
        Comparison {
            verdict,
            effect: 1.0,
            interval: None,
            decisive: None,
            p: Some(p),
            q: Some(p),
            p_equivalent: Some(0.5),
            q_equivalent: Some(0.5),
            within_margin: true,
            tail: None,
            method: Method::BlockBootstrap,
            blocks: 12,
            boots: (12, 12),
            lone: (0, 0),
            spread: Some(1.01),
            outlook: None,
        }
    }

    #[test]
    fn alarms_are_counted_and_compared_with_chance() {
        let mut table = vec![comparison(0.5, Verdict::Equivalent); 198];
        table.push(comparison(0.004, Verdict::Unsure));
        table.push(comparison(1e-6, Verdict::Changed));
        let exact = Comparison {
            method: Method::Digits,
            p: None,
            ..comparison(0.0, Verdict::Changed)
        };
        table.push(exact);
        let counts = FalseAlarms::count(&table, 0.01);
        let expected = FalseAlarms {
            tests: 200,
            alarms: 2,
            changed: 1,
            equivalent: 198,
            unsure: 1,
        };
        assert_eq!(counts, expected);
        // 1 - 0.99^200 - 200 * 0.01 * 0.99^199.
        let expected = 1.0 - 0.99f64.powi(200) - 2.0 * 0.99f64.powi(199);
        assert!((counts.probability(0.01) - expected).abs() < 1e-9);
        assert_eq!(FalseAlarms::count(&table[..9], 0.01).probability(0.01), 1.0);
    }

    #[test]
    fn more_blocks_find_less_and_stricter_levels_more() {
        let twelve = comparison(0.5, Verdict::Unsure);
        let effect = twelve.smallest_effect(0.01).unwrap();
        // (3.4 + 0.9) * 1% / sqrt(12).
        assert!((0.011..0.014).contains(&effect), "{effect}");
        let strict = twelve.smallest_effect(0.01 / 66.0).unwrap();
        assert!(strict > 1.5 * effect, "{strict}");
        let three = Comparison {
            blocks: 3,
            method: Method::SignedRanks,
            ..twelve
        };
        assert_eq!(three.smallest_effect(0.01), None);
    }
}
