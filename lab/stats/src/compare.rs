//! Comparison of two configurations: boots of both -> a table of verdicts.
//!
//! Only operations that did equal work and are above resolution are tested. Every other row states its
//! reason and does not count in the table's adjustment.

use crate::cell::ComparableCell;
use crate::value::{self, Work};
use crate::verdict::{
    boot_values, test_table, Assessment, Design, InterimTests, Settings, Side, TableTest,
    TestError, TestInput,
};
use crate::{operations_of, Cell, Failure, Value};
use thiserror::Error;
use trapline_model::{Clock, Config, Observation, Operation};

/// The boots of two configurations.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// Boots of the baseline.
    pub a: &'a [Observation],
    /// Boots of the candidate.
    pub b: &'a [Observation],
    /// Pairing of the boots.
    pub design: Design,
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
        let operations = operations_of(self.a.iter().chain(self.b));
        let pairs = operations.into_iter().filter_map(|op| self.pair(op));
        pairs.collect()
    }

    fn pair(&self, op: Operation) -> Option<Pair> {
        let cell = |boots: &[_]| ComparableCell::new(boots, config(boots)?, op);
        let (a, b) = (cell(self.a)?, cell(self.b)?);
        Some(Pair {
            input: require_comparable(&a, &b).map(|()| self.input(op)),
            a: a.cell,
            b: b.cell,
        })
    }

    fn input(&self, op: Operation) -> TestInput {
        TestInput {
            clock: config(self.a).map_or(Clock::Wall, Config::clock),
            design: self.design,
            a: boot_values(self.a, op),
            b: boot_values(self.b, op),
        }
    }
}

/// A row before its test.
struct Pair {
    a: Cell,
    b: Cell,
    input: Result<TestInput, NotComparable>,
}

impl Pair {
    fn into_row(self, test: impl FnOnce(Operation) -> Result<Assessment, NotComparable>) -> Row {
        Row {
            op: self.a.op,
            outcome: self.input.and_then(|_| test(self.a.op)),
            a: self.a,
            b: self.b,
        }
    }
}

/// Returns the configuration of boots of one.
fn config(boots: &[Observation]) -> Option<&Config> {
    boots.first().map(|boot| &boot.config)
}

/// Checks that both sides did equal work above resolution.
fn require_comparable(a: &ComparableCell, b: &ComparableCell) -> Result<(), NotComparable> {
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
    use crate::verdict::Verdict;
    use trapline_abi::Op;
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

    fn blocks<'a>(a: &'a [Observation], b: &'a [Observation]) -> Comparison<'a> {
        Comparison {
            a,
            b,
            design: Design::Blocked,
        }
    }

    fn compared(a: &[Outcome], b: &[Outcome]) -> Row {
        let a = boots(EnvironmentId::KVM, Op::PortOut, a);
        let b = boots(EnvironmentId::QEMU_KVM, Op::PortOut, b);
        let mut rows = compare_all(&[blocks(&a, &b)], &Settings::default());
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
        assert_eq!(compare_all(&[blocks(&[], &[])], &Settings::default()), []);
    }

    #[test]
    fn work_of_another_size_is_not_compared() {
        let sized = |pages: u64| measured(vec![batch(1_000_000, pages); 3]);
        let of = |id, pages| boots(id, Op::FirstTouch4k, &vec![sized(pages); 8]);
        let (a, b) = (of(EnvironmentId::KVM, 4), of(EnvironmentId::QEMU_TCG, 2));
        let row = compare_all(&[blocks(&a, &b)], &Settings::default()).remove(0);
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
        let first_blocks = |count: usize| blocks(&a[..count], &b[..count]);
        let settings = Settings {
            most_blocks: 40,
            ..Settings::default()
        };
        let mut test = SequentialTest::new(&settings);
        let first = test.look(&first_blocks(10), 10, false).remove(0);
        assert_eq!(first.outcome.as_ref().unwrap().verdict, Verdict::Changed);
        assert!(test.is_settled());
        let second = test.look(&first_blocks(12), 12, true).remove(0);
        assert_eq!(second.outcome, first.outcome);
        let mut late = SequentialTest::new(&settings);
        let skipped = Outcome::Skipped("not yet".to_owned());
        let skipped = boots(EnvironmentId::QEMU_KVM, Op::PortOut, &[skipped]);
        let row = late.look(&blocks(&a[..8], &skipped), 8, false).remove(0);
        assert!(matches!(row.outcome, Err(NotComparable::Skipped(..))));
        let row = late.look(&first_blocks(12), 12, false).remove(0);
        assert_eq!(row.outcome, Err(NotComparable::Late));
    }
}
