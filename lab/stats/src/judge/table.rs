//! The comparison of a whole table of operations.

use super::boots::{figures, Arranged, BootValues, Data, Design, Side, Unjudged};
use super::bootstrap::Simulated;
use super::evidence::{weigh, Evidence};
use super::levels::{Levels, Tests};
use super::mean::Mean;
use super::outlook::{least_blocks, Outlook, Unsettled};
use super::{Comparison, Method, Settings, Tail, Verdict};
use crate::order::Interval;
use crate::spread::Sorted;
use std::cell::RefCell;
use std::rc::Rc;
use trapline_model::Clock;

/// Simulated estimates expected beyond the strictest level of a table, so that a p-value there is off by
/// about a fifth.
const DRAWS_BEYOND: f64 = 20.0;

/// Least and greatest number of simulated estimates.
const DRAWS: (f64, f64) = (20_000.0, 2_000_000.0);

/// Level of the interval that is given for every operation.
const LEVEL: f64 = 0.95;

/// Relative difference up to which figures of an exact clock are equal: rounding of one division.
const SAME_DIGITS: f64 = 1e-12;

/// One operation measured on both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Clock of all figures.
    pub clock: Clock,
    /// Pairing of the boots; ignored on an exact clock.
    pub design: Design,
    /// Boots of the baseline.
    pub a: Vec<BootValues>,
    /// Boots of the candidate.
    pub b: Vec<BootValues>,
}

/// Compares all operations of a table together and returns the results in its order. An operation that
/// cannot be compared has the reason in its place and is not counted among the tests.
pub fn judge(table: &[Question], settings: &Settings) -> Vec<Result<Comparison, Unjudged>> {
    Judge::new(settings).judge(table)
}

/// Compares tables with one group of settings and keeps the simulated null distributions between them.
/// Clones share these.
#[derive(Clone)]
pub struct Judge {
    settings: Settings,
    simulated: Rc<RefCell<Simulated>>,
}

impl Judge {
    /// Returns a judge with these settings.
    pub fn new(settings: &Settings) -> Self {
        Self {
            settings: *settings,
            simulated: Rc::new(RefCell::new(Simulated::new(settings.seed))),
        }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Compares a table: see [`judge`].
    pub fn judge(&self, table: &[Question]) -> Vec<Result<Comparison, Unjudged>> {
        self.judge_look(table, &self.settings, &[])
    }

    /// Compares a table at one of several looks, with the error rates of that look in `settings` (whose
    /// seed is ignored) and the verdicts that earlier looks settled, in the order of the table.
    pub fn judge_look(
        &self,
        table: &[Question],
        settings: &Settings,
        settled: &[Option<Verdict>],
    ) -> Vec<Result<Comparison, Unjudged>> {
        let mut simulated = self.simulated.borrow_mut();
        simulated.require(draws(table.len(), settings));
        let prepared: Vec<_> = table
            .iter()
            .enumerate()
            .map(|(index, question)| {
                let settled = settled.get(index).copied().flatten();
                Prepared::new(question, settled, &mut simulated, settings)
            })
            .collect();
        let noisy = prepared.iter().flatten().filter_map(Prepared::tests);
        let levels = Levels::new(&noisy.collect::<Vec<_>>(), settings);
        let mut indexes = 0..;
        let mut compared = |prepared| match prepared {
            Prepared::Exact(comparison) => *comparison,
            Prepared::Noisy(noisy) => {
                noisy.compared(&levels, indexes.next().unwrap_or(0), settings)
            }
        };
        prepared
            .into_iter()
            .map(|prepared| prepared.map(&mut compared))
            .collect()
    }
}

fn draws(operations: usize, settings: &Settings) -> usize {
    let wanted = DRAWS_BEYOND * operations as f64 / settings.alpha;
    wanted.clamp(DRAWS.0, DRAWS.1) as usize
}

/// An operation before the levels of its table are known.
enum Prepared {
    Exact(Box<Comparison>),
    Noisy(Box<Noisy>),
}

struct Noisy {
    arranged: Arranged,
    method: Method,
    evidence: Box<dyn Evidence>,
    mean: Mean,
    /// Whether A and B were exchanged: see [`Noisy::new`].
    exchanged: bool,
    tests: Tests,
}

impl Prepared {
    fn new(
        question: &Question,
        settled: Option<Verdict>,
        simulated: &mut Simulated,
        settings: &Settings,
    ) -> Result<Self, Unjudged> {
        if question.clock.is_exact() {
            let a = digits(&question.a, question.clock, Side::A)?;
            let b = digits(&question.b, question.clock, Side::B)?;
            return Ok(Self::Exact(Box::new(exact(a, b, settings))));
        }
        let noisy = Noisy::new(question, settled, simulated, settings)?;
        Ok(Self::Noisy(Box::new(noisy)))
    }

    fn tests(&self) -> Option<Tests> {
        match self {
            Self::Exact(_) => None,
            Self::Noisy(noisy) => Some(noisy.tests),
        }
    }
}

/// Returns the figure of an exact clock and the number of boots that agree on it.
fn digits(boots: &[BootValues], clock: Clock, side: Side) -> Result<(f64, usize), Unjudged> {
    let figures = figures(boots, clock, side)?;
    let first = figures[0].1;
    let other = figures
        .iter()
        .find(|(_, figure)| !same_digits(first, *figure));
    match other {
        None => Ok((first, figures.len())),
        Some((_, other)) => Err(Unjudged::NotDeterministic {
            side,
            first,
            other: *other,
        }),
    }
}

/// Returns true if two figures of an exact clock are equal.
pub fn same_digits(one: f64, other: f64) -> bool {
    (one - other).abs() <= SAME_DIGITS * one.abs().max(other.abs())
}

/// Compares two exact figures, each with its number of boots. The effect is certain; it is 1 only for
/// equal digits.
fn exact(a: (f64, usize), b: (f64, usize), settings: &Settings) -> Comparison {
    let is_same = same_digits(a.0, b.0);
    let effect = if is_same { 1.0 } else { b.0 / a.0 };
    let within_margin = is_within(effect, settings);
    Comparison {
        verdict: match within_margin {
            true => Verdict::Equivalent,
            false => Verdict::Changed,
        },
        effect,
        interval: None,
        decisive: None,
        p: None,
        q: None,
        p_equivalent: None,
        q_equivalent: None,
        within_margin,
        tail: None,
        method: Method::Digits,
        blocks: a.1.min(b.1),
        boots: (a.1, b.1),
        lone: (0, 0),
        spread: None,
        outlook: None,
    }
}

fn is_within(effect: f64, settings: &Settings) -> bool {
    effect > 0.0 && effect.ln().abs() <= settings.margin.ln_1p()
}

impl Noisy {
    /// The side with the smaller figures is taken as A and the result mirrored, so that exchanging the
    /// sides changes no digit.
    fn new(
        question: &Question,
        settled: Option<Verdict>,
        simulated: &mut Simulated,
        settings: &Settings,
    ) -> Result<Self, Unjudged> {
        // In the order given first, so that a refusal names the right side.
        Arranged::new(&question.a, &question.b, question.design)?;
        let (mut a, mut b) = (&question.a, &question.b);
        let exchanged = middle(b) < middle(a);
        if exchanged {
            (a, b) = (b, a);
        }
        let arranged = Arranged::new(a, b, question.design)?;
        let (method, evidence) = weigh(&arranged.data, simulated);
        let mean = Mean::of(&arranged.data);
        let margin = settings.margin.ln_1p();
        Ok(Self {
            tests: Tests {
                p: evidence.p(0.0),
                p_equivalent: evidence.p_within(margin).max(mean.p_within(margin)),
                settled,
            },
            method,
            evidence,
            mean,
            arranged,
            exchanged,
        })
    }

    fn compared(&self, levels: &Levels<'_>, index: usize, settings: &Settings) -> Comparison {
        let verdict = levels.verdict(index);
        let effect = self.ratio(self.evidence.estimate());
        Comparison {
            verdict,
            effect,
            interval: self.interval(1.0 - LEVEL),
            decisive: self.interval(levels.decisive(index)),
            p: Some(self.tests.p),
            q: levels.q(index),
            p_equivalent: Some(self.tests.p_equivalent),
            q_equivalent: levels.q_equivalent(index),
            within_margin: is_within(effect, settings),
            tail: self.tail(levels, verdict, settings),
            method: self.method,
            blocks: self.blocks(),
            boots: self.turned(self.arranged.boots),
            lone: self.turned(self.arranged.lone),
            spread: Some(self.evidence.spread().exp()),
            outlook: (verdict == Verdict::Unsure).then(|| self.outlook(levels, index, settings)),
        }
    }

    /// Returns the ratio of B to A for a difference of logarithms.
    fn ratio(&self, difference: f64) -> f64 {
        match self.exchanged {
            true => (-difference).exp(),
            false => difference.exp(),
        }
    }

    fn turned<T>(&self, (one, other): (T, T)) -> (T, T) {
        match self.exchanged {
            true => (other, one),
            false => (one, other),
        }
    }

    fn interval(&self, alpha: f64) -> Option<Interval> {
        let (low, high) = self.evidence.interval(alpha)?;
        let (low, high) = self.turned((low, high));
        Some(Interval {
            level: 1.0 - alpha,
            low: self.ratio(low),
            high: self.ratio(high),
        })
    }

    /// Returns the blocks outside the margin if they alone prevent *equivalent*.
    fn tail(&self, levels: &Levels<'_>, verdict: Verdict, settings: &Settings) -> Option<Tail> {
        let Data::Differences(differences) = &self.arranged.data else {
            return None;
        };
        let margin = settings.margin.ln_1p();
        let typical = self.evidence.p_within(margin) <= levels.of_more_equivalent();
        let outside = || differences.iter().filter(|one| one.abs() > margin);
        let farthest = outside().max_by(|a, b| a.abs().total_cmp(&b.abs()))?;
        (verdict == Verdict::Unsure && typical).then(|| Tail {
            blocks: outside().count(),
            farthest: self.ratio(*farthest),
        })
    }

    fn blocks(&self) -> usize {
        match &self.arranged.data {
            Data::Differences(differences) => differences.len(),
            Data::Apart { a, b } => a.len().min(b.len()),
        }
    }

    fn design(&self) -> Design {
        match &self.arranged.data {
            Data::Differences(_) => Design::Blocks,
            Data::Apart { .. } => Design::Apart,
        }
    }

    fn outlook(&self, levels: &Levels<'_>, index: usize, settings: &Settings) -> Outlook {
        let changed_level = levels.of_changed(index);
        let needed = least_blocks(self.design(), changed_level);
        if self.blocks() < needed {
            return Outlook::TooFewBoots { needed };
        }
        let unsettled = Unsettled {
            design: self.design(),
            blocks: self.blocks(),
            estimate: self.evidence.estimate(),
            spread: self.evidence.spread(),
            mean: self.mean.estimate(),
            mean_spread: self.mean.spread(),
            margin: settings.margin.ln_1p(),
            changed_level: changed_level / 2.0,
            equivalent_level: levels.of_more_equivalent(),
        };
        unsettled.outlook(settings.most_blocks)
    }
}

fn middle(boots: &[BootValues]) -> Option<f64> {
    let medians = boots.iter().filter_map(BootValues::median);
    Sorted::new(medians.collect()).map(|sorted| sorted.median())
}
