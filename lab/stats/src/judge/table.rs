//! The verdicts of a whole table.
//!
//! Two families of tests run over it, each with its own Benjamini and Hochberg: against no
//! difference, for *changed*, and against a difference as large as the margin, for
//! *equivalent*. What is certainly within the margin is equivalent even where it certainly
//! differs: the margin says what matters, and the effect stands beside the verdict. Intervals are
//! made at the level that the adjustment leaves to each operation (Benjamini and Yekutieli
//! 2005), so that verdict and interval never contradict each other.

use super::boots::{figures, Arranged, BootValues, Data, Design, Side, Unjudged};
use super::bootstrap::Simulated;
use super::evidence::{weigh, Evidence};
use super::outlook::{least_blocks, Outlook, Unsettled};
use super::{q_values, Comparison, Interval, Method, Settings, Verdict};
use crate::spread::Sorted;
use std::cell::RefCell;
use std::rc::Rc;
use trapline_plan::Clock;

/// How many simulated estimates are to be expected beyond the strictest level that a table
/// may ask for.
const DRAWS_BEYOND: f64 = 20.0;

/// The fewest and the most simulated estimates.
const DRAWS: (f64, f64) = (20_000.0, 200_000.0);

/// The level of the interval that is shown of everything.
const SHOWN: f64 = 0.95;

/// Digits of an exact clock are the same if figures differ by less than this share: what a
/// division leaves.
const SAME_DIGITS: f64 = 1e-12;

/// One operation, measured of two contenders.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// By which clock. Figures of one clock only.
    pub clock: Clock,
    /// How the boots belong together; of no meaning on an exact clock.
    pub design: Design,
    /// The contender that is compared with.
    pub a: Vec<BootValues>,
    /// The contender that is compared.
    pub b: Vec<BootValues>,
}

/// Judges all operations of a table together, in their order. What cannot be judged has its
/// reason, and no part in the adjustment.
pub fn judge(table: &[Question], settings: &Settings) -> Vec<Result<Comparison, Unjudged>> {
    Judge::new(table.len(), settings).judge(table)
}

/// One who judges many tables of about one size, and simulates boots only once. Clones share
/// what was simulated.
#[derive(Clone)]
pub struct Judge {
    settings: Settings,
    simulated: Rc<RefCell<Simulated>>,
}

impl Judge {
    /// For tables of so many operations.
    pub fn new(operations: usize, settings: &Settings) -> Self {
        let simulated = Simulated::new(draws(operations, settings), settings.seed);
        Self {
            settings: *settings,
            simulated: Rc::new(RefCell::new(simulated)),
        }
    }

    /// What its verdicts keep.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// See [`judge`].
    pub fn judge(&self, table: &[Question]) -> Vec<Result<Comparison, Unjudged>> {
        self.judge_with(table, &self.settings)
    }

    /// The same with settings for this once; their seed has no meaning.
    pub fn judge_with(
        &self,
        table: &[Question],
        settings: &Settings,
    ) -> Vec<Result<Comparison, Unjudged>> {
        let mut simulated = self.simulated.borrow_mut();
        let weighed: Vec<_> = table
            .iter()
            .map(|question| Weighed::new(question, &mut simulated, settings))
            .collect();
        let levels = Levels::new(weighed.iter().flatten().collect(), settings);
        let mut indexes = 0..;
        let mut judged = |weighed| match weighed {
            Weighed::Exact { a, b } => exact(a, b, settings),
            Weighed::Noisy(noisy) => noisy.judged(&levels, indexes.next().unwrap_or(0), settings),
        };
        weighed
            .into_iter()
            .map(|weighed| weighed.map(&mut judged))
            .collect()
    }
}

fn draws(operations: usize, settings: &Settings) -> usize {
    let wanted = DRAWS_BEYOND * operations as f64 / settings.alpha;
    wanted.clamp(DRAWS.0, DRAWS.1) as usize
}

/// An operation before it is known what others say.
enum Weighed {
    /// The figures of an exact clock.
    Exact {
        a: (f64, usize),
        b: (f64, usize),
    },
    Noisy(Noisy),
}

struct Noisy {
    arranged: Arranged,
    evidence: Box<dyn Evidence>,
    /// Whether A and B were exchanged: see [`Noisy::new`].
    exchanged: bool,
    p: f64,
    p_equivalent: f64,
}

impl Weighed {
    fn new(
        question: &Question,
        simulated: &mut Simulated,
        settings: &Settings,
    ) -> Result<Self, Unjudged> {
        if question.clock.is_exact() {
            return Ok(Self::Exact {
                a: digits(&question.a, question.clock, Side::A)?,
                b: digits(&question.b, question.clock, Side::B)?,
            });
        }
        let noisy = Noisy::new(question, simulated, settings)?;
        Ok(Self::Noisy(noisy))
    }
}

/// The figure by an exact clock, and the number of boots that agree on it.
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

/// Whether two figures of an exact clock are the same.
pub fn same_digits(one: f64, other: f64) -> bool {
    (one - other).abs() <= SAME_DIGITS * one.abs().max(other.abs())
}

/// On an exact clock the effect is certain, and so is the side of the margin on which it
/// lies. Whoever wants to know of every digit looks at the effect: that of the same digits
/// is 1, and no other one is.
fn exact(a: (f64, usize), b: (f64, usize), settings: &Settings) -> Comparison {
    let is_same = same_digits(a.0, b.0);
    let effect = if is_same { 1.0 } else { b.0 / a.0 };
    Comparison {
        verdict: match is_within(effect, settings) {
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
        within_margin: is_within(effect, settings),
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
    /// So that neither side is special to the last digit, the side with the smaller figures
    /// is always taken for A, and the result turned round.
    fn new(
        question: &Question,
        simulated: &mut Simulated,
        settings: &Settings,
    ) -> Result<Self, Unjudged> {
        // Once in the order asked, so that what is refused is refused with its side.
        Arranged::new(&question.a, &question.b, question.design)?;
        let (mut a, mut b) = (&question.a, &question.b);
        let exchanged = middle(b) < middle(a);
        if exchanged {
            (a, b) = (b, a);
        }
        let arranged = Arranged::new(a, b, question.design)?;
        let evidence = weigh(&arranged, simulated);
        Ok(Self {
            p: evidence.p(0.0),
            p_equivalent: evidence.p_within(settings.margin.ln_1p()),
            evidence,
            arranged,
            exchanged,
        })
    }

    fn judged(&self, levels: &Levels, index: usize, settings: &Settings) -> Comparison {
        let (q, q_equivalent) = (levels.q[index], levels.q_equivalent[index]);
        let verdict = levels.verdict(index, settings);
        let turn = if self.exchanged { -1.0 } else { 1.0 };
        let effect = (turn * self.evidence.estimate()).exp();
        let turned = |(one, other)| {
            if self.exchanged {
                (other, one)
            } else {
                (one, other)
            }
        };
        Comparison {
            verdict,
            effect,
            interval: self.interval(1.0 - SHOWN),
            decisive: self.interval(match verdict {
                Verdict::Equivalent => 2.0 * levels.of_equivalent(settings),
                _ => levels.of_changed(q, settings),
            }),
            p: Some(self.p),
            q: Some(q),
            p_equivalent: Some(self.p_equivalent),
            q_equivalent: Some(q_equivalent),
            within_margin: is_within(effect, settings),
            method: self.evidence.method(),
            blocks: self.blocks(),
            boots: turned(self.arranged.boots),
            lone: turned(self.arranged.lone),
            spread: Some(self.evidence.spread().exp()),
            outlook: (verdict == Verdict::Unsure).then(|| self.outlook(levels, q, settings)),
        }
    }

    fn interval(&self, alpha: f64) -> Option<Interval> {
        let (low, high) = self.evidence.interval(alpha)?;
        let (low, high) = match self.exchanged {
            true => (-high, -low),
            false => (low, high),
        };
        Some(Interval {
            level: 1.0 - alpha,
            low: low.exp(),
            high: high.exp(),
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

    fn outlook(&self, levels: &Levels, q: f64, settings: &Settings) -> Outlook {
        let changed_level = levels.of_changed(q, settings);
        let needed = least_blocks(self.design(), changed_level);
        if self.blocks() < needed {
            return Outlook::TooFewBoots { needed };
        }
        let unsettled = Unsettled {
            design: self.design(),
            blocks: self.blocks(),
            estimate: self.evidence.estimate(),
            spread: self.evidence.spread(),
            margin: settings.margin.ln_1p(),
            changed_level: changed_level / 2.0,
            equivalent_level: levels.of_more_equivalent(settings),
        };
        unsettled.outlook(settings.most_blocks)
    }
}

fn middle(boots: &[BootValues]) -> Option<f64> {
    let medians = boots.iter().filter_map(BootValues::median);
    Sorted::new(medians.collect()).map(|sorted| sorted.median())
}

/// What the adjustment leaves to each operation.
struct Levels {
    q: Vec<f64>,
    q_equivalent: Vec<f64>,
    changed: usize,
    equivalent: usize,
    unsure: usize,
}

impl Levels {
    fn new(weighed: Vec<&Weighed>, settings: &Settings) -> Self {
        let noisy = weighed.into_iter().filter_map(|weighed| match weighed {
            Weighed::Noisy(noisy) => Some((noisy.p, noisy.p_equivalent)),
            Weighed::Exact { .. } => None,
        });
        let (p, p_equivalent): (Vec<f64>, Vec<f64>) = noisy.unzip();
        let mut levels = Self {
            q: q_values(&p),
            q_equivalent: q_values(&p_equivalent),
            changed: 0,
            equivalent: 0,
            unsure: 0,
        };
        let at_most = |values: &[f64], alpha| values.iter().filter(|q| **q <= alpha).count();
        levels.changed = at_most(&levels.q, settings.alpha);
        levels.equivalent = at_most(&levels.q_equivalent, settings.equivalence_alpha);
        let verdicts = (0..levels.q.len()).map(|index| levels.verdict(index, settings));
        levels.unsure = verdicts
            .filter(|verdict| *verdict == Verdict::Unsure)
            .count();
        levels
    }

    fn verdict(&self, index: usize, settings: &Settings) -> Verdict {
        if self.q_equivalent[index] <= settings.equivalence_alpha {
            Verdict::Equivalent
        } else if self.q[index] <= settings.alpha {
            Verdict::Changed
        } else {
            Verdict::Unsure
        }
    }

    /// The level at which an operation is, or would be the next to be, called changed.
    fn of_changed(&self, q: f64, settings: &Settings) -> f64 {
        let called = match q <= settings.alpha {
            true => self.changed,
            false => self.changed + 1,
        };
        settings.alpha * called as f64 / self.q.len() as f64
    }

    fn of_equivalent(&self, settings: &Settings) -> f64 {
        settings.equivalence_alpha * self.equivalent as f64 / self.q.len() as f64
    }

    /// The level if all that are unsure turned out to be equivalent, which is what most
    /// of them do.
    fn of_more_equivalent(&self, settings: &Settings) -> f64 {
        let called = self.equivalent + self.unsure;
        settings.equivalence_alpha * called as f64 / self.q.len() as f64
    }
}
