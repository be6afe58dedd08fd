//! Verdicts of a table and their levels.
//!
//! Two families of tests run over a table, each with its own false discovery rate: against no
//! difference, for *changed*, and against a difference as large as the margin, for *equivalent*.
//! *Equivalent* takes precedence, so operations that are equivalent are never reported as changed and
//! must not count among the discoveries of that family ([`focused_q_values`]). Intervals have the level
//! that the procedure leaves to each reported operation (Benjamini and Yekutieli 2005), so that
//! verdict and interval agree.

use super::adjust::focused_q_values;
use super::{Settings, Verdict};

/// p-values of one operation.
#[derive(Clone, Copy, Debug)]
pub struct PValues {
    /// p-value against no difference.
    pub p: f64,
    /// p-value against a difference as large as the margin.
    pub p_equivalent: f64,
    /// Final verdict of an earlier look.
    pub settled: Option<Verdict>,
}

/// Adjusted p-values of a table and what follows from them.
pub struct Levels<'a> {
    settings: &'a Settings,
    q: Vec<Option<f64>>,
    q_equivalent: Vec<Option<f64>>,
    changed: usize,
    equivalent: usize,
    unsure: usize,
}

impl<'a> Levels<'a> {
    pub fn new(tests: &[PValues], settings: &'a Settings) -> Self {
        let is_settled = |test: &PValues, verdict| test.settled == Some(verdict);
        let p_equivalent: Vec<f64> = tests.iter().map(|test| test.p_equivalent).collect();
        let reportable: Vec<bool> = tests
            .iter()
            .map(|test| !is_settled(test, Verdict::Changed))
            .collect();
        let q_equivalent = focused_q_values(&p_equivalent, &reportable);
        let reportable: Vec<bool> = tests
            .iter()
            .zip(&q_equivalent)
            .map(|(test, q)| {
                let is_equivalent = at_most(*q, settings.equivalence_alpha);
                !is_equivalent && !is_settled(test, Verdict::Equivalent)
            })
            .collect();
        let p: Vec<f64> = tests.iter().map(|test| test.p).collect();
        let q = focused_q_values(&p, &reportable);
        let count = |q: &[Option<f64>], alpha| q.iter().filter(|q| at_most(**q, alpha)).count();
        let changed = count(&q, settings.alpha);
        let equivalent = count(&q_equivalent, settings.equivalence_alpha);
        Self {
            settings,
            changed,
            equivalent,
            unsure: tests.len().saturating_sub(changed + equivalent),
            q,
            q_equivalent,
        }
    }

    pub fn verdict(&self, index: usize) -> Verdict {
        if at_most(self.q_equivalent[index], self.settings.equivalence_alpha) {
            Verdict::Equivalent
        } else if at_most(self.q[index], self.settings.alpha) {
            Verdict::Changed
        } else {
            Verdict::Unsure
        }
    }

    pub fn q(&self, index: usize) -> Option<f64> {
        self.q[index]
    }

    pub fn q_equivalent(&self, index: usize) -> Option<f64> {
        self.q_equivalent[index]
    }

    /// Returns the two-sided level of the interval that decides the verdict.
    pub fn of_verdict(&self, index: usize) -> f64 {
        match self.verdict(index) {
            Verdict::Equivalent => {
                2.0 * self.share(self.equivalent) * self.settings.equivalence_alpha
            }
            _ => self.of_changed(index),
        }
    }

    /// Returns the two-sided level at which an operation is reported as changed, or would be as the next
    /// one.
    pub fn of_changed(&self, index: usize) -> f64 {
        let next = usize::from(self.verdict(index) != Verdict::Changed);
        self.share(self.changed + next) * self.settings.alpha
    }

    /// Returns the one-sided level of *equivalent* if all unsure operations were equivalent, as most are.
    pub fn of_more_equivalent(&self) -> f64 {
        self.share(self.equivalent + self.unsure) * self.settings.equivalence_alpha
    }

    fn share(&self, reported: usize) -> f64 {
        reported as f64 / self.q.len() as f64
    }
}

fn at_most(q: Option<f64>, alpha: f64) -> bool {
    q.is_some_and(|q| q <= alpha)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(p: f64, p_equivalent: f64) -> PValues {
        PValues {
            p,
            p_equivalent,
            settled: None,
        }
    }

    /// 33 operations differ within the margin.
    #[test]
    fn equivalent_operations_do_not_loosen_the_level_of_changed() {
        let mut table = vec![test(1e-9, 1e-9); 33];
        table.push(test(0.004, 0.9));
        table.extend(vec![test(0.6, 0.9); 32]);
        let settings = Settings::default();
        let levels = Levels::new(&table, &settings);
        assert_eq!(levels.verdict(0), Verdict::Equivalent);
        assert_eq!(levels.q(0), None);
        assert_eq!(levels.verdict(33), Verdict::Unsure, "1% of 66 is 0.00015");
        assert!((levels.of_changed(33) - 0.01 / 66.0).abs() < 1e-12);
        assert!((levels.of_verdict(0) - 2.0 * 0.05 / 2.0).abs() < 1e-12);
    }

    #[test]
    fn verdicts_of_earlier_looks_are_not_counted_again() {
        let settled = |verdict, p, p_equivalent| PValues {
            settled: Some(verdict),
            ..test(p, p_equivalent)
        };
        let table = [
            settled(Verdict::Equivalent, 1e-9, 0.5),
            settled(Verdict::Changed, 0.5, 1e-9),
            test(0.006, 0.04),
        ];
        let settings = Settings::default();
        let levels = Levels::new(&table, &settings);
        assert_eq!(levels.verdict(2), Verdict::Unsure);
        assert_eq!((levels.q(0), levels.q_equivalent(1)), (None, None));
    }
}
