//! Comparison of two configurations: boots of both -> a table of verdicts.
//!
//! Only operations that did equal work and are above resolution are tested. Every other row states its
//! reason and does not count in the table's adjustment.

use crate::cell::ComparableCell;
use crate::value::{self, Work};
use crate::verdict::{
    boot_values, test_table, Assessment, BootValues, Design, InterimTests, Settings, Side,
    TableTest, TestError, TestInput, LEAST_RUNS,
};
use crate::{hosts, operations_of, Cell, Failure, Value};
use statrs::statistics::Statistics;
use thiserror::Error;
use trapline_abi::Op;
use trapline_model::{Clock, Config, Observation, Operation};

/// The boots of two configurations, by run. Boots of a run that has both are one run of each.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// Runs of the baseline.
    pub a: &'a [Vec<Observation>],
    /// Runs of the candidate.
    pub b: &'a [Vec<Observation>],
    /// Pairing of the boots.
    pub design: Design,
    /// Runs that repeat one of the baseline, from which its noise between runs is estimated.
    pub repeated: &'a [Vec<Observation>],
}

/// Standard deviation of an operation's figure between runs that repeat each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunNoise {
    /// Number of runs, at least [`LEAST_RUNS`].
    pub runs: usize,
    /// The deviation as a share of the figure: that of its logarithm.
    pub deviation: f64,
}

impl RunNoise {
    /// Returns the noise of `op` on the wall clock; `None` for fewer than [`LEAST_RUNS`] runs with a figure.
    pub fn of(repeated: &[Vec<Observation>], op: Operation) -> Option<Self> {
        if config(repeated)?.clock().is_exact() {
            return None;
        }
        let figure = |run: &Vec<_>| BootValues::of_run(0, &boot_values(run, op))?.median();
        let figures = repeated.iter().filter_map(figure);
        let logarithms: Vec<f64> = figures.filter(|it| *it > 0.0).map(f64::ln).collect();
        let runs = logarithms.len();
        (runs >= LEAST_RUNS).then(|| Self {
            runs,
            deviation: logarithms.std_dev(),
        })
    }
}

/// Returns the boots of one configuration.
pub fn boots_of(observations: &[Observation], config: &Config) -> Vec<Observation> {
    crate::boots_of(observations, config).cloned().collect()
}

/// One operation of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The operation.
    pub op: Operation,
    /// Cell of the baseline, in its configuration.
    pub a: Cell,
    /// Cell of the candidate, in its configuration.
    pub b: Cell,
    /// The verdict with its tests, or the reason for its absence.
    pub outcome: Result<Assessment, NotComparable>,
    /// Noise between runs of the baseline, if it is known.
    pub noise: Option<RunNoise>,
}

/// Reason why an operation is not compared.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum NotComparable {
    /// The operation cannot be measured on this side.
    #[error("{0} was not measured: {1}")]
    Skipped(Side, String),
    /// The measurement of this side failed.
    #[error("{0} failed: {reason}", reason = .1.reason)]
    Failed(Side, Failure),
    /// The checksums of the same amount of work differ.
    #[error("unequal work: the checksum of A is {0:#x}, that of B {1:#x}")]
    UnequalWork(u64, u64),
    /// The amounts of work differ.
    #[error("unequal work: {} in A, {} in B", .0, .1)]
    OtherSize(Work, Work),
    /// Records leave the guests by other devices.
    #[error("its records leave by another device on either side, which this stage includes")]
    OtherChannel,
    /// The cost is below the resolution of the measurement.
    #[error("{0} is below resolution, so there is no ratio")]
    BelowResolution(Side),
    /// The operation was not testable at the first look, so its error rate was not reserved.
    #[error("not testable at the first look, so not tested later; run it again")]
    Late,
    /// The boots do not allow a test.
    #[error(transparent)]
    Untestable(#[from] TestError),
}

impl Row {
    /// Returns the clock of both figures.
    pub fn clock(&self) -> Clock {
        self.a.clock
    }
}

/// Tests the operations of all comparisons together and returns their rows, each comparison's in table
/// order.
pub fn compare_all(comparisons: &[Comparison<'_>], settings: &Settings) -> Vec<Row> {
    let pairs: Vec<Pair> = comparisons.iter().flat_map(Comparison::pairs).collect();
    let inputs = pairs.iter().filter_map(|pair| pair.input.as_ref().ok());
    let inputs: Vec<TestInput> = inputs.cloned().collect();
    let mut results = test_table(&inputs, settings).into_iter();
    let rows = pairs.into_iter().map(|pair| {
        let mut next = || results.next().expect("each input has a result");
        pair.into_row(|_| next().map_err(NotComparable::from))
    });
    rows.collect()
}

/// A comparison that is repeated as boots are added: see [`InterimTests`].
pub struct SequentialTest {
    tests: InterimTests,
    /// Operations that were testable at the first look; later looks test only these.
    operations: Option<Vec<Operation>>,
}

impl SequentialTest {
    /// Creates a test that keeps the error rates of `settings` over all looks.
    pub fn new(settings: &Settings) -> Self {
        Self {
            tests: InterimTests::new(TableTest::new(settings)),
            operations: None,
        }
    }

    /// Tests the boots of `blocks` blocks. `is_last` spends the rest of the error rate.
    pub fn look(&mut self, comparison: &Comparison<'_>, blocks: usize, is_last: bool) -> Vec<Row> {
        let pairs = comparison.pairs();
        let testable = pairs.iter().filter(|pair| pair.input.is_ok());
        let first = || testable.map(|pair| pair.a.op).collect();
        let operations = self.operations.get_or_insert_with(first);
        let inputs: Vec<TestInput> = operations.iter().map(|op| comparison.input(*op)).collect();
        let results = self.tests.look(&inputs, blocks, is_last);
        let rows = pairs.into_iter().map(|pair| {
            pair.into_row(|op| {
                let index = operations.iter().position(|known| *known == op);
                let result = index.and_then(|index| results.get(index));
                let result = result.ok_or(NotComparable::Late)?;
                result.clone().map_err(NotComparable::from)
            })
        });
        rows.collect()
    }

    /// Returns true if all testable operations have a verdict other than *unsure*.
    pub fn is_settled(&self) -> bool {
        self.tests.is_settled()
    }
}

impl Comparison<'_> {
    fn pairs(&self) -> Vec<Pair> {
        let operations = operations_of(self.a.iter().chain(self.b).flatten());
        let pairs = operations.into_iter().filter_map(|op| self.pair(op));
        pairs.collect()
    }

    fn pair(&self, op: Operation) -> Option<Pair> {
        let cell = |runs: &[Vec<_>]| ComparableCell::new(runs.iter().flatten(), config(runs)?, op);
        let (a, b) = (cell(self.a)?, cell(self.b)?);
        Some(Pair {
            input: require_comparable(&a, &b).map(|()| self.input(op)),
            noise: RunNoise::of(self.repeated, op),
            a: a.cell,
            b: b.cell,
        })
    }

    fn input(&self, op: Operation) -> TestInput {
        let clock = config(self.a).map_or(Clock::Wall, Config::clock);
        let [a, b] = match self.design {
            Design::Hosts { in_blocks } if !clock.is_exact() => {
                let [a, b] = [self.a, self.b].map(|runs| runs.iter().flatten().collect::<Vec<_>>());
                hosts::values(&a, &b, op, in_blocks)
            }
            _ => [self.a, self.b].map(|runs| self.values(runs, op)),
        };
        TestInput {
            clock,
            design: self.design,
            a,
            b,
        }
    }

    /// Returns the values that are tested: of boots, or of runs.
    fn values(&self, runs: &[Vec<Observation>], op: Operation) -> Vec<BootValues> {
        let of_boots = |run: &Vec<Observation>| boot_values(run, op);
        if self.design == Design::Runs && !config(runs).is_some_and(|it| it.clock().is_exact()) {
            let runs = (0..).zip(runs.iter().map(of_boots));
            let figures = runs.filter_map(|(run, boots)| BootValues::of_run(run, &boots));
            figures.collect()
        } else {
            runs.iter().flat_map(of_boots).collect()
        }
    }
}

/// A row before its test.
struct Pair {
    a: Cell,
    b: Cell,
    input: Result<TestInput, NotComparable>,
    noise: Option<RunNoise>,
}

impl Pair {
    fn into_row(self, test: impl FnOnce(Operation) -> Result<Assessment, NotComparable>) -> Row {
        Row {
            op: self.a.op,
            outcome: self.input.and_then(|_| test(self.a.op)),
            a: self.a,
            b: self.b,
            noise: self.noise,
        }
    }
}

/// Returns the configuration of runs of one.
fn config(runs: &[Vec<Observation>]) -> Option<&Config> {
    runs.iter().flatten().next().map(|boot| &boot.config)
}

/// Stages of a boot that include the sending of records. A VMM of the user's has another device for them than ours, and the
/// same VMM in both rows differs by a fifth there.
const STAGES_WITH_RECORDS: [Op; 2] = [Op::BootSample, Op::BootExit];

/// Checks that both sides did equal work above resolution.
fn require_comparable(a: &ComparableCell, b: &ComparableCell) -> Result<(), NotComparable> {
    let sends_records = a
        .cell
        .op
        .guest()
        .is_some_and(|op| STAGES_WITH_RECORDS.contains(&op));
    let [is_custom, is_other_custom] = [a, b].map(|one| one.cell.config.environment.is_custom());
    if sends_records && is_custom != is_other_custom {
        return Err(NotComparable::OtherChannel);
    }
    let (work_a, check_a) = proof(a, Side::A)?;
    let (work_b, check_b) = proof(b, Side::B)?;
    if work_a != work_b {
        return Err(NotComparable::OtherSize(work_a, work_b));
    }
    if value::is_checked(a.cell.op) && check_a != check_b {
        Err(NotComparable::UnequalWork(check_a, check_b))
    } else {
        Ok(())
    }
}

/// Returns the work of a side and its checksum.
fn proof(one: &ComparableCell, side: Side) -> Result<(Work, u64), NotComparable> {
    match &one.cell.value {
        Value::Skip(reason) => Err(NotComparable::Skipped(side, reason.clone())),
        Value::Failed(failure) => Err(NotComparable::Failed(side, failure.clone())),
        Value::Measured(figure) if figure.resolution().is_some() => {
            Err(NotComparable::BelowResolution(side))
        }
        Value::Measured(_) => one
            .proof
            .ok_or(NotComparable::Untestable(TestError::NoBoots(side))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{RequiredBoots, Verdict};
    use trapline_model::testing::{batch, batches, boot, measured, CHECKSUM};
    use trapline_model::{EnvironmentId, Outcome};

    /// Returns five batches of 1,000 operations of about so many ticks.
    fn outcome(ticks: u64) -> Outcome {
        let ticks: Vec<u64> = (0..5).map(|number| 1_000 * ticks + number).collect();
        measured(batches(&ticks, 1_000))
    }

    fn boots(environment: EnvironmentId, op: Op, outcomes: &[Outcome]) -> Vec<Observation> {
        let boots = outcomes.iter().zip(0..);
        boots
            .map(|(outcome, replicate)| boot(environment, replicate, [(op, outcome.clone())]))
            .collect()
    }

    /// Compares boots of one run.
    fn blocks(a: &[Observation], b: &[Observation]) -> Vec<Row> {
        let comparison = Comparison {
            a: &[a.to_vec()],
            b: &[b.to_vec()],
            design: Design::Blocked,
            repeated: &[],
        };
        compare_all(&[comparison], &Settings::default())
    }

    fn compared(a: &[Outcome], b: &[Outcome]) -> Row {
        let a = boots(EnvironmentId::KVM, Op::PortOut, a);
        let b = boots(EnvironmentId::QEMU_KVM, Op::PortOut, b);
        let mut rows = blocks(&a, &b);
        assert_eq!(rows.len(), 1);
        rows.remove(0)
    }

    #[test]
    fn a_difference_in_every_block_is_a_change() {
        let block = |number: u64, extra: u64| outcome(1_000 + 3 * number + extra);
        let a: Vec<_> = (0..10).map(|number| block(number, 0)).collect();
        let b: Vec<_> = (0..10)
            .map(|number| block(number, 50 + number % 2))
            .collect();
        let found = compared(&a, &b).outcome.unwrap();
        assert_eq!(found.verdict, Verdict::Changed);
        assert!((1.04..1.06).contains(&found.effect), "{found:?}");
        assert_eq!(found.blocks, 10);
        let same = compared(&a, &a).outcome.unwrap();
        assert_eq!(same.verdict, Verdict::Equivalent);
    }

    #[test]
    fn incomparable_sides_have_a_reason() {
        let good = vec![outcome(1_000); 8];
        let reason = |b: &[Outcome]| compared(&good, b).outcome.unwrap_err();
        let skipped = reason(&[Outcome::Skipped("no KVM".to_owned())]);
        assert_eq!(skipped.to_string(), "B was not measured: no KVM");
        let failed = reason(&[Outcome::Failed("lost".to_owned())]);
        assert_eq!(failed.to_string(), "B failed: lost");
        let mut other = outcome(1_000);
        if let Outcome::Measured { check, .. } = &mut other {
            *check = 8;
        }
        let expected = NotComparable::UnequalWork(CHECKSUM, 8);
        assert_eq!(reason(&vec![other; 8]), expected);
        assert_eq!(blocks(&[], &[]), []);
    }

    #[test]
    fn stages_with_records_by_another_device_are_not_compared() {
        let of = |id, op| boots(id, op, &vec![measured(vec![batch(5_000_000, 1); 3]); 2]);
        for (op, is_compared) in [
            (Op::BootMain, true),
            (Op::BootSample, false),
            (Op::BootExit, false),
        ] {
            let (a, b) = (
                of(EnvironmentId::SIM_KVM, op),
                of(EnvironmentId::SIM_CUSTOM, op),
            );
            let row = blocks(&a, &b).remove(0);
            assert_eq!(row.outcome.is_ok(), is_compared, "{row:?}");
            assert!(blocks(&a, &a).remove(0).outcome.is_ok());
        }
    }

    #[test]
    fn work_of_another_size_is_not_compared() {
        let sized = |pages: u64| measured(vec![batch(1_000_000, pages); 3]);
        let of = |id, pages| boots(id, Op::FirstTouch4k, &vec![sized(pages); 8]);
        let (a, b) = (of(EnvironmentId::KVM, 4), of(EnvironmentId::QEMU_TCG, 2));
        let row = blocks(&a, &b).remove(0);
        assert!(
            matches!(row.outcome, Err(NotComparable::OtherSize(..))),
            "{row:?}"
        );
    }

    #[test]
    fn a_sequential_test_keeps_settled_verdicts_and_ignores_late_operations() {
        let of = |environment, extra| {
            let outcomes: Vec<_> = (0..12_u64)
                .map(|n| outcome(1_000 + 3 * n + extra))
                .collect();
            boots(environment, Op::PortOut, &outcomes)
        };
        let (a, b) = (of(EnvironmentId::KVM, 0), of(EnvironmentId::QEMU_KVM, 200));
        let (a, b) = (
            |count: usize| [a[..count].to_vec()],
            |count: usize| [b[..count].to_vec()],
        );
        let settings = Settings {
            most_blocks: 40,
            ..Settings::default()
        };
        let look = |test: &mut SequentialTest, a: &[Vec<_>], b: &[Vec<_>], is_last| {
            let comparison = Comparison {
                a,
                b,
                design: Design::Blocked,
                repeated: &[],
            };
            test.look(&comparison, a[0].len(), is_last).remove(0)
        };
        let mut test = SequentialTest::new(&settings);
        let first = look(&mut test, &a(10), &b(10), false);
        assert_eq!(first.outcome.as_ref().unwrap().verdict, Verdict::Changed);
        assert!(test.is_settled());
        let second = look(&mut test, &a(12), &b(12), true);
        assert_eq!(second.outcome, first.outcome);
        let mut late = SequentialTest::new(&settings);
        let skipped = Outcome::Skipped("not yet".to_owned());
        let skipped = boots(EnvironmentId::QEMU_KVM, Op::PortOut, &[skipped]);
        let row = look(&mut late, &a(8), &[skipped], false);
        assert!(matches!(row.outcome, Err(NotComparable::Skipped(..))));
        let row = look(&mut late, &a(12), &b(12), false);
        assert_eq!(row.outcome, Err(NotComparable::Late));
    }

    /// Runs of one side differ by 2%, boots of a run by 0.1%.
    #[test]
    fn boots_of_few_runs_differ_and_only_more_runs_tell_whether_the_sides_do() {
        let run = |extra: u64| {
            let outcomes: Vec<_> = (0..10_u64)
                .map(|n| outcome(1_000 + n % 3 + extra))
                .collect();
            boots(EnvironmentId::KVM, Op::PortOut, &outcomes)
        };
        let verdict = |a: &[u64], b: &[u64]| {
            let of = |side: &[u64]| side.iter().map(|extra| run(*extra)).collect::<Vec<_>>();
            let (a, b) = (of(a), of(b));
            let comparison = Comparison {
                a: &a,
                b: &b,
                design: Design::of_runs(a.len(), b.len()),
                repeated: &a,
            };
            let row = compare_all(&[comparison], &Settings::default()).remove(0);
            assert_eq!(
                row.noise.map(|noise| noise.runs),
                (a.len() > 2).then_some(a.len())
            );
            row.outcome.unwrap()
        };
        let two = verdict(&[0], &[30]);
        assert_eq!((two.verdict, two.required), (Verdict::RunsDiffer, None));
        assert_eq!(verdict(&[0], &[1]).verdict, Verdict::RunsAgree);
        let noise = [0, 20, 5, 30, 12, 25, 8, 17];
        let same = verdict(&noise, &noise.map(|one| 32 - one));
        assert_eq!((same.verdict, same.blocks), (Verdict::Equivalent, 8));
        let changed = verdict(&noise, &noise.map(|one| one + 100));
        assert_eq!((changed.verdict, changed.boots), (Verdict::Changed, (8, 8)));
        let few = verdict(&noise[..3], &noise.map(|one| one + 100)[..3]);
        let needed = RequiredBoots::TooFewBoots { needed: 5 };
        assert_eq!((few.verdict, few.required), (Verdict::Unsure, Some(needed)));
    }
}
