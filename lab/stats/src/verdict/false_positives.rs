//! Results of A/A tests: verdicts on sides that cannot differ.

use super::required::detectable;
use super::{Assessment, Verdict};
use statrs::function::beta::beta_reg;

/// Counts of tests of equal sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FalsePositives {
    /// Number of tests; exact clocks have none.
    pub tests: usize,
    /// Tests whose unadjusted p-value is at most the level. The level is their expected share.
    pub significant: usize,
    /// Operations reported as changed, after the adjustment to the table.
    pub changed: usize,
    /// Operations reported as equivalent.
    pub equivalent: usize,
    /// Operations reported as unsure.
    pub unsure: usize,
}

impl FalsePositives {
    /// Counts verdicts and p-values of at most `level`.
    pub fn count<'a>(assessments: impl IntoIterator<Item = &'a Assessment>, level: f64) -> Self {
        let mut counts = Self::default();
        for assessment in assessments {
            let Some(p) = assessment.p else { continue };
            counts.tests += 1;
            counts.significant += usize::from(p <= level);
            match assessment.verdict {
                Verdict::Changed | Verdict::RunsDiffer => counts.changed += 1,
                Verdict::Equivalent | Verdict::RunsAgree => counts.equivalent += 1,
                Verdict::Unsure => counts.unsure += 1,
            }
        }
        counts
    }

    /// Returns the probability of at least as many significant tests if all are independent: the tail of
    /// the binomial distribution. Operations of the same boots are not quite independent; significant
    /// tests then cluster.
    pub fn probability(&self, level: f64) -> f64 {
        match self.significant {
            0 => 1.0,
            count => beta_reg(count as f64, (self.tests - count + 1) as f64, level),
        }
    }
}

impl Assessment {
    /// Returns the smallest increase, as a share (0.03 is three percent), that as many boots detect with a
    /// probability of 80% at a two-sided level, from the spread and the number of blocks as for
    /// [`super::RequiredBoots`]. `None` on an exact clock, which shows a change of one digit, and for too
    /// few boots.
    ///
    /// The only change among `m` operations is tested at a level of `alpha / m`.
    pub fn smallest_effect(&self, level: f64) -> Option<f64> {
        let effect = detectable(self.design?, level / 2.0, self.spread?.ln(), self.blocks);
        effect.is_finite().then(|| effect.exp_m1())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Design, Method};
    use super::*;

    fn assessment(p: f64, verdict: Verdict) -> Assessment {
        Assessment {
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
            design: Some(Design::Blocked),
            blocks: 12,
            boots: (12, 12),
            unmatched: (0, 0),
            spread: Some(1.01),
            required: None,
        }
    }

    #[test]
    fn significant_tests_are_counted_with_their_probability() {
        let mut table = vec![assessment(0.5, Verdict::Equivalent); 198];
        table.push(assessment(0.004, Verdict::Unsure));
        table.push(assessment(1e-6, Verdict::Changed));
        let exact = Assessment {
            method: Method::Digits,
            p: None,
            ..assessment(0.0, Verdict::Changed)
        };
        table.push(exact);
        let counts = FalsePositives::count(&table, 0.01);
        let expected = FalsePositives {
            tests: 200,
            significant: 2,
            changed: 1,
            equivalent: 198,
            unsure: 1,
        };
        assert_eq!(counts, expected);
        // 1 - 0.99^200 - 200 * 0.01 * 0.99^199.
        let expected = 1.0 - 0.99f64.powi(200) - 2.0 * 0.99f64.powi(199);
        assert!((counts.probability(0.01) - expected).abs() < 1e-9);
        assert_eq!(
            FalsePositives::count(&table[..9], 0.01).probability(0.01),
            1.0
        );
    }

    #[test]
    fn more_blocks_detect_smaller_changes_and_stricter_levels_larger_ones() {
        let twelve = assessment(0.5, Verdict::Unsure);
        let effect = twelve.smallest_effect(0.01).unwrap();
        // (3.4 + 0.9) * 1% / sqrt(12).
        assert!((0.011..0.014).contains(&effect), "{effect}");
        let strict = twelve.smallest_effect(0.01 / 66.0).unwrap();
        assert!(strict > 1.5 * effect, "{strict}");
        let three = Assessment {
            blocks: 3,
            method: Method::SignedRanks,
            ..twelve
        };
        assert_eq!(three.smallest_effect(0.01), None);
    }
}
