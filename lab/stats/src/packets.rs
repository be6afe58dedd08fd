//! The rate of packets that a forwarder passes with at most a given loss.
//!
//! After Multiple Loss Ratio Search (RFC draft-ietf-bmwg-mlrsearch-08), with trials of one duration and an exceed ratio of one
//! half: a load is a *lower bound* if at most half of its trials lose more than the goal, and an *upper bound* if more than half
//! do. The result is the largest lower bound below every upper bound. Loads are bisected until both bounds are within 1% of
//! each other. Trials for one goal count for the others, too.

use crate::order::{median_interval, Interval};

/// Shares of frames that may be lost, for which the rate is searched.
pub const GOALS: [f64; 2] = [0.0, 0.005];
/// Trials of a load that are needed, at most. An odd number has no tie.
pub const TRIALS: usize = 5;
/// Relative width at which a search ends.
pub const WIDTH: f64 = 0.01;
/// Factor between loads before both bounds are known.
const STEP: f64 = 1.5;
/// Loads of a search, at most.
const MOST_LOADS: usize = 40;

/// A trial of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadTrial {
    /// Offered load, in frames a second.
    pub load: f64,
    /// Share of frames that were lost.
    pub loss: f64,
}

/// Bounds of the load of a goal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// The largest load that is a lower bound and below [`Self::upper`].
    pub lower: Option<f64>,
    /// The smallest upper bound.
    pub upper: Option<f64>,
}

/// Next step of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Another trial with this load.
    Try(f64),
    /// The search is over.
    Done(Bounds),
}

/// Is a load a bound?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Lower,
    Upper,
    Undecided,
}

fn loads(trials: &[LoadTrial]) -> Vec<f64> {
    let mut loads: Vec<f64> = trials.iter().map(|trial| trial.load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    loads
}

fn class(trials: &[LoadTrial], load: f64, goal: f64) -> Class {
    let of_load = || trials.iter().filter(|trial| trial.load == load);
    let bad = of_load().filter(|trial| trial.loss > goal).count();
    let good = of_load().count() - bad;
    match (good * 2 > TRIALS, bad * 2 > TRIALS) {
        (true, _) => Class::Lower,
        (_, true) => Class::Upper,
        _ => Class::Undecided,
    }
}

/// Returns the bounds of a goal: a share of frames that may be lost.
pub fn bounds(trials: &[LoadTrial], goal: f64) -> Bounds {
    let loads = loads(trials);
    let of_class = |wanted| {
        let all = loads.iter().copied();
        all.filter(move |load| class(trials, *load, goal) == wanted)
    };
    let upper = of_class(Class::Upper).next();
    let below = |load: &f64| upper.is_none_or(|upper| *load < upper);
    Bounds {
        lower: of_class(Class::Lower).rfind(below),
        upper,
    }
}

/// Returns the interval of the load that searches look for, from an order statistic of their lower bounds to one of their
/// upper bounds ([`median_interval`]); `None` for fewer than two searches, or if one has only one bound.
pub fn interval_of_searches(searches: &[Bounds]) -> Option<Interval> {
    let ends = |end: fn(&Bounds) -> Option<f64>| {
        let ends = searches.iter().map(end).collect::<Option<Vec<f64>>>();
        median_interval(&ends?)
    };
    let (lower, upper) = (ends(|it| it.lower)?, ends(|it| it.upper)?);
    Some(Interval {
        high: upper.high,
        ..lower
    })
}

/// Returns the next step of the search for a goal. `first` is the load to begin with, `most` the largest that can be offered.
pub fn next(trials: &[LoadTrial], goal: f64, first: f64, most: f64) -> Step {
    let loads = loads(trials);
    let bounds = bounds(trials, goal);
    let between = |load: &f64| {
        bounds.lower.is_none_or(|lower| *load > lower)
            && bounds.upper.is_none_or(|upper| *load < upper)
    };
    let undecided = loads.iter().copied().filter(between);
    // Trials of another goal may have left a load undecided for this one.
    if let Some(load) = undecided.into_iter().next() {
        return Step::Try(load);
    }
    if loads.len() >= MOST_LOADS {
        return Step::Done(bounds);
    }
    match (bounds.lower, bounds.upper) {
        (None, None) => Step::Try(first.min(most)),
        (Some(lower), None) if lower >= most => Step::Done(bounds),
        (Some(lower), None) => Step::Try((lower * STEP).min(most)),
        (None, Some(upper)) if upper < 1.0 => Step::Done(bounds),
        (None, Some(upper)) => Step::Try(upper / STEP),
        (Some(lower), Some(upper)) if upper / lower <= 1.0 + WIDTH => Step::Done(bounds),
        (Some(lower), Some(upper)) => Step::Try((lower * upper).sqrt()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// A forwarder that loses nothing up to a rate, and the rest beyond, except that some trials are disturbed.
    struct Forwarder {
        rate: f64,
        disturbed: f64,
        rng: ChaCha8Rng,
    }

    impl Forwarder {
        fn trial(&mut self, load: f64) -> LoadTrial {
            let disturbed = self.rng.random::<f64>() < self.disturbed;
            let loss = (1.0 - self.rate / load).max(0.0) + f64::from(disturbed) * 0.02;
            LoadTrial { load, loss }
        }

        fn search(&mut self, goal: f64) -> (Bounds, usize) {
            let mut trials = Vec::new();
            loop {
                match next(&trials, goal, self.rate * 0.7, 1e9) {
                    Step::Try(load) => trials.push(self.trial(load)),
                    Step::Done(bounds) => return (bounds, trials.len()),
                }
                assert!(trials.len() < 1000, "{trials:?}");
            }
        }
    }

    #[test]
    fn disturbed_trials_rarely_change_the_rate() {
        for goal in GOALS {
            let mut right = 0;
            for seed in 0..500 {
                let mut forwarder = Forwarder {
                    rate: 7e6,
                    disturbed: 0.05,
                    rng: ChaCha8Rng::seed_from_u64(seed),
                };
                let (bounds, trials) = forwarder.search(goal);
                let lower = bounds.lower.unwrap();
                let truth = 7e6 / (1.0 - goal);
                right += u32::from((0.985..=1.001).contains(&(lower / truth)));
                assert!(trials < 100, "{trials}");
            }
            // Three of five trials of one load are disturbed with a probability of 0.0012.
            assert!(right >= 490, "{goal}: {right} of 500");
        }
    }

    #[test]
    fn one_load_needs_a_majority() {
        let trial = |loss| LoadTrial { load: 5.0, loss };
        let mut trials = vec![trial(0.0), trial(0.1), trial(0.0), trial(0.1)];
        assert_eq!(bounds(&trials, 0.0), Bounds::default());
        assert_eq!(next(&trials, 0.0, 9.0, 9.0), Step::Try(5.0));
        trials.push(trial(0.0));
        assert_eq!(bounds(&trials, 0.0).lower, Some(5.0));
        assert_eq!(bounds(&trials, 0.2).lower, Some(5.0));
    }

    #[test]
    fn search_ends_at_the_largest_load_that_can_be_offered() {
        let trials = [LoadTrial {
            load: 9.0,
            loss: 0.0,
        }; TRIALS];
        let Step::Done(bounds) = next(&trials, 0.0, 3.0, 9.0) else {
            panic!("the search goes on");
        };
        assert_eq!((bounds.lower, bounds.upper), (Some(9.0), None));
    }
}
