//! Interim looks: error rates that hold although measuring stops at the first verdict.
//!
//! Stopping at the first significant result of several looks raises the error rate above that of one
//! look. So the error rate is spent: a function of the share of blocks that have run limits the part
//! spent by then (Lan and DeMets 1983), and each look gets the part added since the last. The
//! probability of an error at any look is at most the sum over looks, for any tests and any dependence
//! between them (Bonferroni). The same holds for the false discovery rate: the final table has all
//! changes that any look reported, and the false ones of a look are a smaller share of it than of that
//! look's discoveries. Operations that an earlier look settled as equivalent do not count among the
//! discoveries of a later one. Looks may come after any number of blocks that does not depend on
//! measurements.

use super::{Assessment, Settings, TableTest, TestError, TestInput, Verdict};
use std::f64::consts::E;

/// Returns the part of `alpha` that may be spent after this share of all blocks: the function of Lan and
/// DeMets (1983) that resembles Pocock's boundaries, `alpha ln(1 + (e - 1) t)`, almost even, with a little
/// more at early looks. The function that resembles O'Brien and Fleming's leaves early looks a level that
/// few boots never reach.
fn spent(alpha: f64, share: f64) -> f64 {
    alpha * ((E - 1.0) * share.clamp(0.0, 1.0)).ln_1p()
}

/// Levels of successive looks.
#[derive(Clone, Debug, PartialEq)]
pub struct AlphaSpending {
    alpha: f64,
    most_blocks: usize,
    blocks: usize,
    spent: f64,
}

impl AlphaSpending {
    /// Plans an error rate of `alpha` over all looks, the last of which is after `most_blocks`.
    pub fn new(alpha: f64, most_blocks: usize) -> Self {
        Self {
            alpha,
            most_blocks,
            blocks: 0,
            spent: 0.0,
        }
    }

    /// Returns the level of a look after `blocks` blocks; `None` if no block ran since the last look, or
    /// the error rate is spent.
    pub fn look(&mut self, blocks: usize) -> Option<f64> {
        let share = blocks as f64 / self.most_blocks.max(1) as f64;
        self.spend(blocks, spent(self.alpha, share))
    }

    /// Returns the level of the last look: the rest of the error rate. The decision to make it must not
    /// depend on results.
    pub fn last_look(&mut self, blocks: usize) -> Option<f64> {
        self.spend(blocks, self.alpha)
    }

    fn spend(&mut self, blocks: usize, spent: f64) -> Option<f64> {
        let level = spent.min(self.alpha) - self.spent;
        let is_new = blocks > self.blocks && level > 0.0;
        is_new.then(|| {
            self.blocks = blocks;
            self.spent += level;
            level
        })
    }
}

/// A table that is tested repeatedly as blocks are added. A settled operation keeps its result.
pub struct InterimTests {
    test: TableTest,
    changed: AlphaSpending,
    equivalent: AlphaSpending,
    results: Vec<Result<Assessment, TestError>>,
}

impl InterimTests {
    /// Creates tests that keep the error rates of `test` over all looks.
    pub fn new(test: TableTest) -> Self {
        let settings = test.settings();
        let looks = |alpha| AlphaSpending::new(alpha, settings.most_blocks);
        Self {
            changed: looks(settings.alpha),
            equivalent: looks(settings.equivalence_alpha),
            test,
            results: Vec::new(),
        }
    }

    /// Tests the table, always of the same operations, after `blocks` blocks. `is_last` spends the rest of
    /// the error rate. Intervals have the level of the look that settled an operation, or of this one.
    pub fn look(
        &mut self,
        table: &[TestInput],
        blocks: usize,
        is_last: bool,
    ) -> &[Result<Assessment, TestError>] {
        let level = |looks: &mut AlphaSpending| {
            if is_last {
                looks.last_look(blocks)
            } else {
                looks.look(blocks)
            }
        };
        if let (Some(alpha), Some(equivalence_alpha)) =
            (level(&mut self.changed), level(&mut self.equivalent))
        {
            let settings = Settings {
                alpha,
                equivalence_alpha,
                ..*self.test.settings()
            };
            let settled = self.settled();
            let now = self.test.test_at_look(table, &settings, &settled);
            self.update(now);
        }
        &self.results
    }

    /// Returns the verdicts of settled operations, in the order of the table.
    fn settled(&self) -> Vec<Option<Verdict>> {
        let verdict = |one: &Result<Assessment, TestError>| {
            let settled = one.as_ref().ok().filter(|one| is_settled(one));
            settled.map(|one| one.verdict)
        };
        self.results.iter().map(verdict).collect()
    }

    /// Replaces the results of operations that are not settled.
    fn update(&mut self, mut now: Vec<Result<Assessment, TestError>>) {
        let before = std::mem::take(&mut self.results);
        for (old, new) in before.into_iter().zip(&mut now) {
            if old.as_ref().is_ok_and(is_settled) {
                *new = old;
            }
        }
        self.results = now;
    }

    /// Returns true if all testable operations have a verdict other than *unsure*.
    pub fn is_settled(&self) -> bool {
        self.results.iter().flatten().all(is_settled)
    }
}

fn is_settled(comparison: &Assessment) -> bool {
    comparison.verdict != Verdict::Unsure
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, proptest};

    /// Textbook values for five looks at equal distances and 2.5%.
    #[test]
    fn spending_agrees_with_textbook_tables() {
        let expected = [0.0074, 0.0131, 0.0177, 0.0216, 0.0250];
        for (share, expected) in [0.2, 0.4, 0.6, 0.8, 1.0].into_iter().zip(expected) {
            let found = spent(0.025, share);
            assert!((found - expected).abs() < 6e-5, "{share}: {found}");
        }
    }

    #[test]
    fn a_look_without_new_blocks_has_no_level() {
        let mut looks = AlphaSpending::new(0.01, 40);
        let first = looks.look(8).unwrap();
        assert_eq!(looks.look(8), None);
        assert_eq!(looks.look(4), None);
        let rest = looks.last_look(9).unwrap();
        assert!((first + rest - 0.01).abs() < 1e-15);
        assert_eq!(looks.last_look(100), None, "all is spent");
        assert_eq!(AlphaSpending::new(0.01, 40).look(0), None);
    }

    proptest! {
        #[test]
        fn levels_add_up_to_alpha(
            steps in proptest::collection::vec(1..9_usize, 1..20),
            alpha in 0.001f64..0.2,
            most in 1..80_usize,
        ) {
            let mut looks = AlphaSpending::new(alpha, most);
            let (mut blocks, mut sum) = (0, 0.0);
            for step in &steps {
                blocks += step;
                sum += looks.look(blocks).unwrap_or(0.0);
            }
            sum += looks.last_look(blocks + 1).unwrap_or(0.0);
            prop_assert!((sum - alpha).abs() < 1e-12, "{sum} of {alpha}");
        }
    }
}
