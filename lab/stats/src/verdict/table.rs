//! The comparison of a whole table of operations.

use super::bootstrap::NullDistributions;
use super::choose::choose_test;
use super::data::{figures, BootValues, Data, Design, Side, TestData, TestError};
use super::levels::{Levels, PValues};
use super::mean::TTest;
use super::required::{RequiredBoots, Unsettled};
use super::test::Test;
use super::{Assessment, Method, Settings, Tail, Verdict};
use crate::order::Interval;
use crate::sorted::Sorted;
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
pub struct TestInput {
    /// Clock of all figures.
    pub clock: Clock,
    /// Pairing of the boots; ignored on an exact clock.
    pub design: Design,
    /// Boots of the baseline.
    pub a: Vec<BootValues>,
    /// Boots of the candidate.
    pub b: Vec<BootValues>,
}

/// Tests all operations of a table together and returns the results in its order. An operation that
/// cannot be tested has the reason in its place and is not counted among the tests.
pub fn test_table(table: &[TestInput], settings: &Settings) -> Vec<Result<Assessment, TestError>> {
    TableTest::new(settings).test(table)
}

/// Tests of tables with the same settings. Clones share the simulated null distributions.
#[derive(Clone)]
pub struct TableTest {
    settings: Settings,
    simulated: Rc<RefCell<NullDistributions>>,
}

impl TableTest {
    /// Creates a test without simulating anything yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            settings: *settings,
            simulated: Rc::new(RefCell::new(NullDistributions::new(settings.seed))),
        }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Tests a table: see [`test_table`].
    pub fn test(&self, table: &[TestInput]) -> Vec<Result<Assessment, TestError>> {
        self.test_at_look(table, &self.settings, &[])
    }

    /// Tests a table at one of several looks, with the error rates of that look in `settings` (whose seed
    /// is ignored) and the verdicts that earlier looks settled, in the order of the table.
    pub fn test_at_look(
        &self,
        table: &[TestInput],
        settings: &Settings,
        settled: &[Option<Verdict>],
    ) -> Vec<Result<Assessment, TestError>> {
        let mut simulated = self.simulated.borrow_mut();
        simulated.require(draws(table.len(), settings));
        let prepared: Vec<_> = table
            .iter()
            .enumerate()
            .map(|(index, input)| {
                let settled = settled.get(index).copied().flatten();
                Prepared::new(input, settled, &mut simulated, settings)
            })
            .collect();
        let noisy = prepared.iter().flatten().filter_map(Prepared::p_values);
        let levels = Levels::new(&noisy.collect::<Vec<_>>(), settings);
        let mut indexes = 0..;
        let mut assess = |prepared| match prepared {
            Prepared::Exact(assessment) => *assessment,
            Prepared::Noisy(noisy) => noisy.assess(&levels, indexes.next().unwrap_or(0), settings),
        };
        prepared
            .into_iter()
            .map(|prepared| prepared.map(&mut assess))
            .collect()
    }
}

fn draws(operations: usize, settings: &Settings) -> usize {
    let wanted = DRAWS_BEYOND * operations as f64 / settings.alpha;
    wanted.clamp(DRAWS.0, DRAWS.1) as usize
}

/// An operation before the levels of its table are known.
enum Prepared {
    Exact(Box<Assessment>),
    Noisy(Box<Noisy>),
}

struct Noisy {
    design: Design,
    data: TestData,
    method: Method,
    test: Box<dyn Test>,
    mean: TTest,
    /// True if A and B were exchanged: see [`Noisy::new`].
    exchanged: bool,
    p_values: PValues,
}

impl Prepared {
    fn new(
        input: &TestInput,
        settled: Option<Verdict>,
        simulated: &mut NullDistributions,
        settings: &Settings,
    ) -> Result<Self, TestError> {
        if input.clock.is_exact() {
            let a = digits(&input.a, input.clock, Side::A)?;
            let b = digits(&input.b, input.clock, Side::B)?;
            return Ok(Self::Exact(Box::new(exact(a, b, settings))));
        }
        let noisy = Noisy::new(input, settled, simulated, settings)?;
        Ok(Self::Noisy(Box::new(noisy)))
    }

    fn p_values(&self) -> Option<PValues> {
        match self {
            Self::Exact(_) => None,
            Self::Noisy(noisy) => Some(noisy.p_values),
        }
    }
}

/// Returns the figure of an exact clock and the number of boots that agree on it.
fn digits(boots: &[BootValues], clock: Clock, side: Side) -> Result<(f64, usize), TestError> {
    let figures = figures(boots, clock, side)?;
    let first = figures[0].1;
    let other = figures
        .iter()
        .find(|(_, figure)| !same_digits(first, *figure));
    match other {
        None => Ok((first, figures.len())),
        Some((_, other)) => Err(TestError::NotDeterministic {
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
fn exact(a: (f64, usize), b: (f64, usize), settings: &Settings) -> Assessment {
    let is_same = same_digits(a.0, b.0);
    let effect = if is_same { 1.0 } else { b.0 / a.0 };
    let within_margin = is_within(effect, settings);
    Assessment::of_digits(effect, within_margin, (a.1, b.1))
}

fn is_within(effect: f64, settings: &Settings) -> bool {
    effect > 0.0 && effect.ln().abs() <= settings.margin.ln_1p()
}

impl Noisy {
    /// The side with the smaller figures is taken as A and the result mirrored, so that exchanging the
    /// sides changes no digit.
    fn new(
        input: &TestInput,
        settled: Option<Verdict>,
        simulated: &mut NullDistributions,
        settings: &Settings,
    ) -> Result<Self, TestError> {
        // In the given order first, so that an error names the right side.
        TestData::new(&input.a, &input.b, input.design)?;
        let (mut a, mut b) = (&input.a, &input.b);
        let exchanged = middle(b) < middle(a);
        if exchanged {
            (a, b) = (b, a);
        }
        let data = TestData::new(a, b, input.design)?;
        let (method, test) = choose_test(&data.data, simulated);
        let mean = TTest::of(&data.data);
        let margin = settings.margin.ln_1p();
        Ok(Self {
            p_values: PValues {
                p: test.p(0.0),
                p_equivalent: test.p_within(margin).max(mean.p_within(margin)),
                settled,
            },
            design: input.design,
            method,
            test,
            mean,
            data,
            exchanged,
        })
    }

    fn assess(&self, levels: &Levels<'_>, index: usize, settings: &Settings) -> Assessment {
        let verdict = levels.verdict(index);
        let effect = self.ratio(self.test.estimate());
        let is_of_few_runs = self.design == Design::Boots;
        Assessment {
            verdict: match verdict {
                Verdict::Changed if is_of_few_runs => Verdict::RunsDiffer,
                Verdict::Equivalent if is_of_few_runs => Verdict::RunsAgree,
                _ => verdict,
            },
            effect,
            interval: self.interval(1.0 - LEVEL),
            decisive: self.interval(levels.of_verdict(index)),
            p: Some(self.p_values.p),
            q: levels.q(index),
            p_equivalent: Some(self.p_values.p_equivalent),
            q_equivalent: levels.q_equivalent(index),
            within_margin: is_within(effect, settings),
            tail: self.tail(levels, verdict, settings),
            method: self.method,
            design: Some(self.design),
            blocks: self.blocks(),
            boots: self.in_order(self.data.boots),
            unmatched: self.in_order(self.data.unmatched),
            spread: Some(self.test.spread().exp()),
            // Boots of further runs are other boots.
            required: (verdict == Verdict::Unsure && !is_of_few_runs)
                .then(|| self.required_boots(levels, index, settings)),
        }
    }

    /// Returns the ratio of B to A for a difference of logarithms.
    fn ratio(&self, difference: f64) -> f64 {
        if self.exchanged {
            (-difference).exp()
        } else {
            difference.exp()
        }
    }

    /// Returns values of both sides in the given order.
    fn in_order<T>(&self, (one, other): (T, T)) -> (T, T) {
        if self.exchanged {
            (other, one)
        } else {
            (one, other)
        }
    }

    fn interval(&self, alpha: f64) -> Option<Interval> {
        let (low, high) = self.test.interval(alpha)?;
        let (low, high) = self.in_order((low, high));
        Some(Interval {
            level: 1.0 - alpha,
            low: self.ratio(low),
            high: self.ratio(high),
        })
    }

    /// Returns the blocks outside the margin if they alone prevent *equivalent*.
    fn tail(&self, levels: &Levels<'_>, verdict: Verdict, settings: &Settings) -> Option<Tail> {
        let Data::Differences(differences) = &self.data.data else {
            return None;
        };
        let margin = settings.margin.ln_1p();
        let typical = self.test.p_within(margin) <= levels.of_more_equivalent();
        let outside = || differences.iter().filter(|one| one.abs() > margin);
        let farthest = outside().max_by(|a, b| a.abs().total_cmp(&b.abs()))?;
        (verdict == Verdict::Unsure && typical).then(|| Tail {
            blocks: outside().count(),
            farthest: self.ratio(*farthest),
        })
    }

    fn blocks(&self) -> usize {
        match &self.data.data {
            Data::Differences(differences) => differences.len(),
            Data::Independent { a, b } => a.len().min(b.len()),
        }
    }

    fn required_boots(
        &self,
        levels: &Levels<'_>,
        index: usize,
        settings: &Settings,
    ) -> RequiredBoots {
        let unsettled = Unsettled {
            design: self.design,
            blocks: self.blocks(),
            estimate: self.test.estimate(),
            spread: self.test.spread(),
            mean: self.mean.estimate(),
            mean_spread: self.mean.spread(),
            margin: settings.margin.ln_1p(),
            changed_level: levels.of_changed(index) / 2.0,
            equivalent_level: levels.of_more_equivalent(),
        };
        unsettled.required_boots(settings.most_blocks)
    }
}

fn middle(boots: &[BootValues]) -> Option<f64> {
    let medians = boots.iter().filter_map(BootValues::median);
    Sorted::new(medians.collect()).map(|sorted| sorted.median())
}
