//! Bisection: finds the commit that changed a figure, with few measurements, if some commits cannot be
//! measured.
//!
//! The first commit of the sequence is unchanged, the last is changed. The search proposes the next commit,
//! takes its result, and ends with the first changed commit or the smallest range that contains it. An exact
//! figure needs no repetition, so no commit is tried twice.

use std::ops::RangeInclusive;

/// Result of trying a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// The figures equal those of the first commit.
    Unchanged,
    /// The figures differ from those of the first commit.
    Changed,
    /// The commit does not build, or cannot be measured.
    Untestable,
}

/// Next step of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Try this commit.
    Try(usize),
    /// The search ends: this commit changed the figure.
    FirstChanged(usize),
    /// The search ends: one of these commits did; all but the last are untestable.
    Range(RangeInclusive<usize>),
}

/// A search in a sequence of commits.
#[derive(Clone, Debug)]
pub struct Search {
    /// The last commit known to be unchanged.
    unchanged: usize,
    /// The first commit known to be changed.
    changed: usize,
    /// For each commit, true if it is untestable.
    untestable: Vec<bool>,
}

impl Search {
    /// Starts a search among `commits` commits, of which the first is unchanged and the last changed; `None`
    /// for fewer than two.
    pub fn new(commits: usize) -> Option<Self> {
        (commits >= 2).then(|| Self {
            unchanged: 0,
            changed: commits - 1,
            untestable: vec![false; commits],
        })
    }

    /// Returns the next step.
    pub fn next(&self) -> Next {
        let inside = self.unchanged + 1..self.changed;
        let untestable = inside.clone().filter(|at| self.untestable[*at]).count();
        let wanted = self.wanted(untestable);
        let untried = inside.filter(|at| !self.untestable[*at]);
        match untried.min_by_key(|at| at.abs_diff(wanted)) {
            Some(at) => Next::Try(at),
            None if untestable == 0 => Next::FirstChanged(self.changed),
            None => Next::Range(self.unchanged + 1..=self.changed),
        }
    }

    /// Returns the middle; after each untestable commit a place far from it, because untestable commits are
    /// often consecutive.
    fn wanted(&self, untestable: usize) -> usize {
        let length = (self.changed - self.unchanged) as f64;
        self.unchanged + (length * spread(untestable + 1)) as usize
    }

    /// Records the result of a commit. Commits outside the current range are ignored.
    pub fn record(&mut self, at: usize, trial: Trial) {
        if at <= self.unchanged || at >= self.changed {
            return;
        }
        match trial {
            Trial::Unchanged => self.unchanged = at,
            Trial::Changed => self.changed = at,
            Trial::Untestable => self.untestable[at] = true,
        }
    }
}

/// Returns element `number`, from 1, of the sequence 1/2, 1/4, 3/4, 1/8, 5/8 … (van der Corput, base 2).
fn spread(number: usize) -> f64 {
    let mut rest = number;
    let (mut sum, mut step) = (0.0, 0.5);
    while rest > 0 {
        sum += step * (rest & 1) as f64;
        rest >>= 1;
        step /= 2.0;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs a search to its end; returns its result and the commits it tried.
    fn found(builds: &[bool], first_changed: usize) -> (Next, Vec<usize>) {
        let mut search = Search::new(builds.len()).expect("there are two");
        let mut tried = Vec::new();
        loop {
            match search.next() {
                Next::Try(at) => {
                    tried.push(at);
                    search.record(at, trial(builds, first_changed, at));
                }
                end => return (end, tried),
            }
        }
    }

    fn trial(builds: &[bool], first_changed: usize, at: usize) -> Trial {
        match (builds[at], at < first_changed) {
            (false, _) => Trial::Untestable,
            (true, true) => Trial::Unchanged,
            (true, false) => Trial::Changed,
        }
    }

    prop_compose! {
        /// Commits that build or not, except that the ends do, and the one that changed the figure.
        fn rows()(commits in 2usize..80)(
            first_changed in 1..commits,
            builds in proptest::collection::vec(proptest::bool::weighted(0.7), commits),
        ) -> (Vec<bool>, usize) {
            let mut builds = builds;
            builds[0] = true;
            *builds.last_mut().expect("there are two") = true;
            (builds, first_changed)
        }
    }

    proptest! {
        #[test]
        fn the_first_changed_commit_or_the_smallest_range_is_found((builds, first_changed) in rows()) {
            let (end, tried) = found(&builds, first_changed);
            // The nearest commits that build bound what any search can find.
            let before = (0..first_changed).rev().find(|at| builds[*at]).expect("the first builds");
            let changed = (first_changed..builds.len()).find(|at| builds[*at]).expect("the last builds");
            let expected = if before + 1 == changed { Next::FirstChanged(first_changed) } else { Next::Range(before + 1..=changed) };
            prop_assert_eq!(end, expected);
            let mut once = tried.clone();
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), tried.len(), "a commit was tried twice");
            prop_assert!(!tried.contains(&0) && !tried.contains(&(builds.len() - 1)));
        }

        #[test]
        fn if_all_commits_build_the_search_halves(commits in 2usize..5000, seed in any::<usize>()) {
            let first_changed = 1 + seed % (commits - 1);
            let (end, tried) = found(&vec![true; commits], first_changed);
            prop_assert_eq!(end, Next::FirstChanged(first_changed));
            let halvings = (commits - 1).next_power_of_two().trailing_zeros() as usize;
            prop_assert!(tried.len() <= halvings, "{} trials among {commits}", tried.len());
        }
    }

    #[test]
    fn consecutive_broken_commits_cost_few_trials() {
        let mut builds = vec![true; 1000];
        builds[400..600].fill(false);
        let (end, tried) = found(&builds, 900);
        assert_eq!(end, Next::FirstChanged(900));
        assert!(tried.len() < 20, "{tried:?}");
    }

    #[test]
    fn a_search_needs_two_commits() {
        assert!(Search::new(1).is_none());
        assert_eq!(Search::new(2).expect("a row").next(), Next::FirstChanged(1));
    }
}
