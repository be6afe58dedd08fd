//! Which commit changed a figure, from as few measurements as possible, where
//! some commits cannot be measured.
//!
//! Commits stand in a row; the first is as it was, the last is not. A search says
//! which to try next, is told what came of it, and ends with the culprit or with
//! the smallest range that holds it. An exact figure needs no repetitions, so a
//! commit is never tried twice.

use std::ops::RangeInclusive;

/// What came of trying a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// Its figures are those of the first.
    AsBefore,
    /// They are not.
    Changed,
    /// It has none: it does not build, or cannot be measured.
    Unknown,
}

/// Where the search is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Try this commit.
    Try(usize),
    /// This commit changed it.
    Culprit(usize),
    /// One of these did; all but the last cannot be tried.
    Range(RangeInclusive<usize>),
}

/// A search in a row of commits.
#[derive(Clone, Debug)]
pub struct Search {
    /// The last that is known to be as before.
    before: usize,
    /// The first after it that is known to be changed.
    changed: usize,
    /// By commit, whether it was tried in vain.
    in_vain: Vec<bool>,
}

impl Search {
    /// A search among `commits`, of which the first is as before and the last is
    /// changed. `None` if there are not two.
    pub fn new(commits: usize) -> Option<Self> {
        (commits >= 2).then(|| Self {
            before: 0,
            changed: commits - 1,
            in_vain: vec![false; commits],
        })
    }

    /// What to do next.
    pub fn next(&self) -> Next {
        let inside = self.before + 1..self.changed;
        let in_vain = inside.clone().filter(|at| self.in_vain[*at]).count();
        let wanted = self.wanted(in_vain);
        let untried = inside.filter(|at| !self.in_vain[*at]);
        match untried.min_by_key(|at| at.abs_diff(wanted)) {
            Some(at) => Next::Try(at),
            None if in_vain == 0 => Next::Culprit(self.changed),
            None => Next::Range(self.before + 1..=self.changed),
        }
    }

    /// The middle; after each trial in vain somewhere far from there, for commits
    /// that do not build come in rows.
    fn wanted(&self, in_vain: usize) -> usize {
        let length = (self.changed - self.before) as f64;
        self.before + (length * spread(in_vain + 1)) as usize
    }

    /// Takes what came of trying a commit. One outside of where the search is says
    /// nothing new.
    pub fn tell(&mut self, at: usize, trial: Trial) {
        if at <= self.before || at >= self.changed {
            return;
        }
        match trial {
            Trial::AsBefore => self.before = at,
            Trial::Changed => self.changed = at,
            Trial::Unknown => self.in_vain[at] = true,
        }
    }
}

/// The sequence 1/2, 1/4, 3/4, 1/8, 5/8 … (van der Corput, base 2), from 1.
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

    /// Runs a search to its end; what it found, and the trials it took.
    fn found(builds: &[bool], culprit: usize) -> (Next, Vec<usize>) {
        let mut search = Search::new(builds.len()).expect("there are two");
        let mut tried = Vec::new();
        loop {
            match search.next() {
                Next::Try(at) => {
                    tried.push(at);
                    search.tell(at, trial(builds, culprit, at));
                }
                end => return (end, tried),
            }
        }
    }

    fn trial(builds: &[bool], culprit: usize, at: usize) -> Trial {
        match (builds[at], at < culprit) {
            (false, _) => Trial::Unknown,
            (true, true) => Trial::AsBefore,
            (true, false) => Trial::Changed,
        }
    }

    prop_compose! {
        /// Which of some commits build - the ends do - and which changed it.
        fn rows()(commits in 2usize..80)(
            culprit in 1..commits,
            builds in proptest::collection::vec(proptest::bool::weighted(0.7), commits),
        ) -> (Vec<bool>, usize) {
            let mut builds = builds;
            builds[0] = true;
            *builds.last_mut().expect("there are two") = true;
            (builds, culprit)
        }
    }

    proptest! {
        #[test]
        fn the_culprit_or_the_smallest_range_is_found((builds, culprit) in rows()) {
            let (end, tried) = found(&builds, culprit);
            // No search can know more than what the nearest commits that build say.
            let before = (0..culprit).rev().find(|at| builds[*at]).expect("the first builds");
            let changed = (culprit..builds.len()).find(|at| builds[*at]).expect("the last builds");
            let expected = match before + 1 == changed {
                true => Next::Culprit(culprit),
                false => Next::Range(before + 1..=changed),
            };
            prop_assert_eq!(end, expected);
            let mut once = tried.clone();
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), tried.len(), "a commit was tried twice");
            prop_assert!(!tried.contains(&0) && !tried.contains(&(builds.len() - 1)));
        }

        #[test]
        fn where_all_build_it_takes_no_more_than_halving(commits in 2usize..5000, seed in any::<usize>()) {
            let culprit = 1 + seed % (commits - 1);
            let (end, tried) = found(&vec![true; commits], culprit);
            prop_assert_eq!(end, Next::Culprit(culprit));
            let halvings = (commits - 1).next_power_of_two().trailing_zeros() as usize;
            prop_assert!(tried.len() <= halvings, "{} trials among {commits}", tried.len());
        }
    }

    #[test]
    fn a_row_of_broken_commits_is_left_quickly() {
        let mut builds = vec![true; 1000];
        builds[400..600].fill(false);
        let (end, tried) = found(&builds, 900);
        assert_eq!(end, Next::Culprit(900));
        assert!(tried.len() < 20, "{tried:?}");
    }

    #[test]
    fn one_commit_is_no_row() {
        assert!(Search::new(1).is_none());
        assert_eq!(Search::new(2).expect("a row").next(), Next::Culprit(1));
    }
}
