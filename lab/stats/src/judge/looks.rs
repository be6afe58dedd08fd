//! Looking more than once: how an error rate is kept although one stops when sure.
//!
//! Who looks at the boots after every few blocks and stops at the first significant result
//! is wrong far more often than each look says. So the error rate is spent: a function of
//! the share of blocks that have run says how much of it may be used up by then (Lan and
//! DeMets 1983), and each look has what was added since the one before. The probability to be
//! wrong at any look is at most the sum over looks, whatever the tests are and however they
//! depend on each other (Bonferroni). So is the share of false ones in a table: the table
//! in the end has all that any look called changed, and those of one look that are false are a
//! smaller share of it than of what that look found. Operations that an earlier look settled as
//! equivalent do not count among the discoveries of a later one. Looks may come after any number of
//! blocks, as long as nothing that was measured decides when.

use super::{Comparison, Judge, Question, Settings, Unjudged, Verdict};
use std::f64::consts::E;

/// Returns how much of `alpha` may be spent when this share of all blocks has run: the function of Lan and
/// DeMets (1983) that resembles Pocock's boundaries, `alpha ln(1 + (e - 1) t)`, about even and early a
/// little more. The function that resembles O'Brien and Fleming's leaves early looks a level that few boots
/// never reach.
fn spent(alpha: f64, share: f64) -> f64 {
    alpha * ((E - 1.0) * share.clamp(0.0, 1.0)).ln_1p()
}

/// The levels of successive looks.
#[derive(Clone, Debug, PartialEq)]
pub struct Looks {
    alpha: f64,
    most_blocks: usize,
    blocks: usize,
    spent: f64,
}

impl Looks {
    /// With an error rate of `alpha` over all looks, the last of which is after
    /// `most_blocks`.
    pub fn new(alpha: f64, most_blocks: usize) -> Self {
        Self {
            alpha,
            most_blocks,
            blocks: 0,
            spent: 0.0,
        }
    }

    /// The level of a look after so many blocks; `None` if nothing ran since the last, or
    /// nothing is left.
    pub fn look(&mut self, blocks: usize) -> Option<f64> {
        let share = blocks as f64 / self.most_blocks.max(1) as f64;
        self.spend(blocks, spent(self.alpha, share))
    }

    /// The level of the last look, after so many blocks: all that is left. Allowed when time
    /// is up, but not when the result invites it.
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

/// A table that is judged again and again as blocks are added. An operation that was
/// settled stays as it was then.
pub struct UntilSure {
    judge: Judge,
    changed: Looks,
    equivalent: Looks,
    judged: Vec<Result<Comparison, Unjudged>>,
}

impl UntilSure {
    /// With the error rates of `judge` over all looks.
    pub fn new(judge: Judge) -> Self {
        let settings = judge.settings();
        let looks = |alpha| Looks::new(alpha, settings.most_blocks);
        Self {
            changed: looks(settings.alpha),
            equivalent: looks(settings.equivalence_alpha),
            judge,
            judged: Vec::new(),
        }
    }

    /// Looks at the table, always of the same operations, when so many blocks have run; `is_last`
    /// if time is up. Intervals are of the level of the look that settled an operation, or of
    /// this one.
    pub fn look(
        &mut self,
        table: &[Question],
        blocks: usize,
        is_last: bool,
    ) -> &[Result<Comparison, Unjudged>] {
        let level = |looks: &mut Looks| match is_last {
            true => looks.last_look(blocks),
            false => looks.look(blocks),
        };
        if let (Some(alpha), Some(equivalence_alpha)) =
            (level(&mut self.changed), level(&mut self.equivalent))
        {
            let settings = Settings {
                alpha,
                equivalence_alpha,
                ..*self.judge.settings()
            };
            let settled = self.settled();
            let now = self.judge.judge_look(table, &settings, &settled);
            self.keep(now);
        }
        &self.judged
    }

    /// Returns the verdicts that stand, in the order of the table.
    fn settled(&self) -> Vec<Option<Verdict>> {
        let verdict = |one: &Result<Comparison, Unjudged>| {
            let settled = one.as_ref().ok().filter(|one| is_settled(one));
            settled.map(|one| one.verdict)
        };
        self.judged.iter().map(verdict).collect()
    }

    /// What was settled stays.
    fn keep(&mut self, mut now: Vec<Result<Comparison, Unjudged>>) {
        let before = std::mem::take(&mut self.judged);
        for (old, new) in before.into_iter().zip(&mut now) {
            if old.as_ref().is_ok_and(is_settled) {
                *new = old;
            }
        }
        self.judged = now;
    }

    /// Whether all that can be judged is settled.
    pub fn is_sure(&self) -> bool {
        self.judged.iter().flatten().all(is_settled)
    }
}

fn is_settled(comparison: &Comparison) -> bool {
    comparison.verdict != Verdict::Unsure
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, proptest};

    /// Five looks at equal distances and 2.5%, as textbooks tabulate the function.
    #[test]
    fn spending_is_that_of_the_tables() {
        let expected = [0.0074, 0.0131, 0.0177, 0.0216, 0.0250];
        for (share, expected) in [0.2, 0.4, 0.6, 0.8, 1.0].into_iter().zip(expected) {
            let found = spent(0.025, share);
            assert!((found - expected).abs() < 6e-5, "{share}: {found}");
        }
    }

    #[test]
    fn a_look_without_new_blocks_is_none() {
        let mut looks = Looks::new(0.01, 40);
        let first = looks.look(8).unwrap();
        assert_eq!(looks.look(8), None);
        assert_eq!(looks.look(4), None);
        let rest = looks.last_look(9).unwrap();
        assert!((first + rest - 0.01).abs() < 1e-15);
        assert_eq!(looks.last_look(100), None, "nothing is left");
        assert_eq!(Looks::new(0.01, 40).look(0), None);
    }

    proptest! {
        #[test]
        fn no_more_is_spent_than_there_is(
            steps in proptest::collection::vec(1..9_usize, 1..20),
            alpha in 0.001f64..0.2,
            most in 1..80_usize,
        ) {
            let mut looks = Looks::new(alpha, most);
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
