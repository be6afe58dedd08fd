//! Two contenders side by side: from what was observed of both to a table of verdicts.
//!
//! An operation is judged only where both did the same work and its cost can be resolved;
//! everything else has its reason beside it, and no part in the table's adjustment.

use crate::cell::{self, Draft};
use crate::judge::{
    boots_of, judge, Comparison, Design, Judge, Question, Settings, Side, Unjudged, UntilSure,
};
use crate::value::{self, Work};
use crate::{Cell, Failure, Value};
use thiserror::Error;
use trapline_abi::Op;
use trapline_model::{Clock, Contender, EnvironmentId, Observation};

/// What was observed of two contenders.
#[derive(Clone, Copy, Debug)]
pub struct Contest<'a> {
    /// Boots of the one that is compared with.
    pub a: &'a [Observation],
    /// Boots of the one that is compared.
    pub b: &'a [Observation],
    /// How they belong together.
    pub design: Design,
}

/// What of `observations` is of this contender.
pub fn boots(observations: &[Observation], contender: &Contender) -> Vec<Observation> {
    let all = observations.iter();
    all.filter(|seen| seen.contender() == *contender)
        .cloned()
        .collect()
}

/// One operation of both.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    /// Which.
    pub op: Op,
    /// The one that is compared with, and the one that is compared.
    pub contenders: [Contender; 2],
    /// What was measured of the one that is compared with.
    pub a: Cell,
    /// What was measured of the one that is compared.
    pub b: Cell,
    /// What is to be said of it.
    pub outcome: Result<Comparison, Undecided>,
}

/// Why nothing is to be said of an operation.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Undecided {
    /// It cannot be measured there.
    #[error("{0} was not measured: {1}")]
    Skipped(Side, String),
    /// It should have been measured there.
    #[error("{0} failed: {reason}", reason = .1.reason)]
    Failed(Side, Failure),
    /// They did not do the same.
    #[error("unequal work: the checksum of the first is {0:#x}, that of the second {1:#x}")]
    UnequalWork(u64, u64),
    /// They did not do as much.
    #[error("unequal work: {} in the first, {} in the second", .0, .1)]
    OtherSize(Work, Work),
    /// Its cost is less than what it takes to tell.
    #[error("{0} is below resolution: a ratio of it means nothing")]
    BelowResolution(Side),
    /// It could not be judged when the boots were first looked at, so that no error rate was
    /// kept for it.
    #[error("it could not be compared at the first look, and is not judged later: run it again")]
    Late,
    /// The boots do not allow it.
    #[error(transparent)]
    Unjudged(#[from] Unjudged),
}

impl Match {
    /// By which clock.
    pub fn clock(&self) -> Clock {
        self.a.clock
    }
}

/// Judges every operation of all these together, those of each in table order.
pub fn judged(contests: &[Contest<'_>], settings: &Settings) -> Vec<Match> {
    let pairs = contests.iter().flat_map(|one| one.pairs());
    let pairs: Vec<Pair> = pairs.collect();
    let questions = pairs.iter().filter_map(|pair| pair.question.as_ref().ok());
    let questions: Vec<Question> = questions.cloned().collect();
    let mut verdicts = judge(&questions, settings).into_iter();
    let judged = pairs.into_iter().map(|pair| {
        let mut next = || verdicts.next().expect("each question has its verdict");
        pair.settled(|_| next().map_err(Undecided::from))
    });
    judged.collect()
}

/// A contest that is looked at again and again as boots are added: see [`UntilSure`].
pub struct Sequel {
    table: UntilSure,
    /// Those that could be judged at the first look: only they are judged later, too.
    operations: Option<Vec<Op>>,
}

impl Sequel {
    /// With the error rates of `settings` over all looks.
    pub fn new(settings: &Settings) -> Self {
        Self {
            table: UntilSure::new(Judge::new(settings)),
            operations: None,
        }
    }

    /// Looks at the boots of so many blocks; `is_last` if there will be no more.
    pub fn look(&mut self, contest: &Contest<'_>, blocks: usize, is_last: bool) -> Vec<Match> {
        let pairs = contest.pairs();
        let comparable = pairs.iter().filter(|pair| pair.question.is_ok());
        let first = || comparable.map(|pair| pair.a.op).collect();
        let operations = self.operations.get_or_insert_with(first);
        let questions: Vec<Question> = operations.iter().map(|op| contest.question(*op)).collect();
        let told = self.table.look(&questions, blocks, is_last);
        let judged = pairs.into_iter().map(|pair| {
            pair.settled(|op| {
                let place = operations.iter().position(|known| *known == op);
                let told = place.and_then(|place| told.get(place));
                let told = told.ok_or(Undecided::Late)?;
                told.clone().map_err(Undecided::from)
            })
        });
        judged.collect()
    }

    /// Whether all that can be judged is settled.
    pub fn is_sure(&self) -> bool {
        self.table.is_sure()
    }
}

impl Contest<'_> {
    fn pairs(&self) -> Vec<Pair> {
        let pairs = Op::ALL.into_iter().filter_map(|op| self.pair(op));
        pairs.collect()
    }

    fn pair(&self, op: Op) -> Option<Pair> {
        let (a, b) = (draft(self.a, op)?, draft(self.b, op)?);
        let question = comparable(&a, &b).map(|()| self.question(op));
        let contender = |boots: &[Observation]| boots.first().map(Observation::contender);
        Some(Pair {
            contenders: [contender(self.a)?, contender(self.b)?],
            a: a.cell,
            b: b.cell,
            question,
        })
    }

    fn question(&self, op: Op) -> Question {
        Question {
            clock: environment(self.a).map_or(Clock::Wall, EnvironmentId::clock),
            design: self.design,
            a: boots_of(self.a, op),
            b: boots_of(self.b, op),
        }
    }
}

impl Pair {
    fn settled(self, judge: impl FnOnce(Op) -> Result<Comparison, Undecided>) -> Match {
        Match {
            op: self.a.op,
            contenders: self.contenders,
            outcome: self.question.and_then(|_| judge(self.a.op)),
            a: self.a,
            b: self.b,
        }
    }
}

/// An operation of both before it is judged.
struct Pair {
    contenders: [Contender; 2],
    a: Cell,
    b: Cell,
    question: Result<Question, Undecided>,
}

/// All boots of a contender are of one environment.
fn environment(boots: &[Observation]) -> Option<EnvironmentId> {
    boots.first().map(|seen| seen.environment)
}

fn draft(boots: &[Observation], op: Op) -> Option<Draft> {
    cell::draft(boots, environment(boots)?, op)
}

/// That a ratio of the two means something.
fn comparable(a: &Draft, b: &Draft) -> Result<(), Undecided> {
    let (of_a, of_b) = (measured(a, Side::A)?, measured(b, Side::B)?);
    let ((work_a, check_a), (work_b, check_b)) = (of_a, of_b);
    if work_a != work_b {
        return Err(Undecided::OtherSize(work_a, work_b));
    }
    match value::is_checked(a.cell.op) && check_a != check_b {
        true => Err(Undecided::UnequalWork(check_a, check_b)),
        false => Ok(()),
    }
}

/// What a side did, and the checksum that proves it.
fn measured(draft: &Draft, side: Side) -> Result<(Work, u64), Undecided> {
    match &draft.cell.value {
        Value::Skip(reason) => Err(Undecided::Skipped(side, reason.clone())),
        Value::Failed(failure) => Err(Undecided::Failed(side, failure.clone())),
        Value::Measured(figure) if figure.resolution().is_some() => {
            Err(Undecided::BelowResolution(side))
        }
        Value::Measured(_) => draft
            .proof
            .ok_or(Undecided::Unjudged(Unjudged::NoBoots(side))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Verdict;
    use trapline_model::{Operation, Outcome, Sample};

    fn outcome(ticks: u64, check: u64) -> Outcome {
        let sample = |number: u64| Sample {
            start: 0,
            end: 1_000 * ticks + number,
            count: 1_000,
            host_ns: None,
        };
        Outcome::Measured {
            clock_cost: 0,
            loop_cost: 0,
            samples: (0..5).map(sample).collect(),
            interrupts: Vec::new(),
            check,
            exits: None,
            host_cpu_ns: None,
            elapsed: None,
        }
    }

    fn boots(environment: EnvironmentId, op: Op, outcomes: &[Outcome]) -> Vec<Observation> {
        let boot = |(replicate, outcome): (usize, &Outcome)| Observation {
            environment,
            variant: Default::default(),
            clock: environment.clock(),
            replicate: replicate as u32,
            unit_per_tick: 1.0,
            operations: vec![Operation {
                op,
                outcome: outcome.clone(),
            }],
            launches: Vec::new(),
            facts: Default::default(),
            log: String::new(),
            problems: Vec::new(),
        };
        outcomes.iter().enumerate().map(boot).collect()
    }

    fn judged(a: &[Outcome], b: &[Outcome]) -> Match {
        let (a, b) = (
            boots(EnvironmentId::Kvm, Op::PortOut, a),
            boots(EnvironmentId::QemuKvm, Op::PortOut, b),
        );
        let contest = Contest {
            a: &a,
            b: &b,
            design: Design::Blocks,
        };
        let mut all = super::judged(&[contest], &Settings::default());
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    #[test]
    fn what_differs_in_every_block_has_changed() {
        let block = |number: u64, extra: u64| outcome(1_000 + 3 * number + extra, 7);
        let a: Vec<_> = (0..10).map(|number| block(number, 0)).collect();
        let b: Vec<_> = (0..10)
            .map(|number| block(number, 50 + number % 2))
            .collect();
        let told = judged(&a, &b).outcome.unwrap();
        assert_eq!(told.verdict, Verdict::Changed);
        assert!((1.04..1.06).contains(&told.effect), "{told:?}");
        assert_eq!(told.blocks, 10);
        let same = judged(&a, &a).outcome.unwrap();
        assert_eq!(same.verdict, Verdict::Equivalent);
    }

    #[test]
    fn what_cannot_be_compared_has_its_reason() {
        let good = vec![outcome(1_000, 7); 8];
        let why = |b: &[Outcome]| judged(&good, b).outcome.unwrap_err();
        let skipped = Outcome::Skipped("no KVM".to_owned());
        let told = why(&[skipped]).to_string();
        assert_eq!(told, "the second contender was not measured: no KVM");
        let failed = Outcome::Failed("lost".to_owned());
        assert!(why(&[failed]).to_string().contains("failed: lost"));
        let other = vec![outcome(1_000, 8); 8];
        assert_eq!(why(&other), Undecided::UnequalWork(7, 8));
        let nothing = Contest {
            a: &[],
            b: &[],
            design: Design::Blocks,
        };
        assert_eq!(super::judged(&[nothing], &Settings::default()), []);
    }

    #[test]
    fn work_of_another_size_is_not_compared() {
        let sized = |pages: u64| Outcome::Measured {
            clock_cost: 0,
            loop_cost: 0,
            samples: vec![
                Sample {
                    start: 0,
                    end: 1_000_000,
                    count: pages,
                    host_ns: None,
                };
                3
            ],
            interrupts: Vec::new(),
            check: 1,
            exits: None,
            host_cpu_ns: None,
            elapsed: None,
        };
        let of = |id, pages| boots(id, Op::FirstTouch4k, &vec![sized(pages); 8]);
        let (a, b) = (of(EnvironmentId::Kvm, 4), of(EnvironmentId::QemuTcg, 2));
        let contest = Contest {
            a: &a,
            b: &b,
            design: Design::Blocks,
        };
        let told = super::judged(&[contest], &Settings::default()).remove(0);
        assert!(
            matches!(told.outcome, Err(Undecided::OtherSize(..))),
            "{told:?}"
        );
    }

    #[test]
    fn a_sequel_keeps_what_is_settled_and_judges_nothing_that_came_late() {
        let block = |number: u64, extra: u64| outcome(1_000 + 3 * number + extra, 7);
        let of = |environment, count, extra| {
            let outcomes: Vec<_> = (0..count).map(|number| block(number, extra)).collect();
            boots(environment, Op::PortOut, &outcomes)
        };
        let (a, b) = (
            of(EnvironmentId::Kvm, 12, 0),
            of(EnvironmentId::QemuKvm, 12, 200),
        );
        let contest = |count: usize| Contest {
            a: &a[..count],
            b: &b[..count],
            design: Design::Blocks,
        };
        let settings = Settings {
            most_blocks: 40,
            ..Settings::default()
        };
        let mut sequel = Sequel::new(&settings);
        let first = sequel.look(&contest(10), 10, false).remove(0);
        assert_eq!(first.outcome.as_ref().unwrap().verdict, Verdict::Changed);
        assert!(sequel.is_sure());
        let second = sequel.look(&contest(12), 12, true).remove(0);
        assert_eq!(second.outcome, first.outcome, "it was settled then");
        let mut late = Sequel::new(&settings);
        let skipped = boots(
            EnvironmentId::QemuKvm,
            Op::PortOut,
            &[Outcome::Skipped("not yet".to_owned())],
        );
        let before = Contest {
            b: &skipped,
            ..contest(8)
        };
        assert!(matches!(
            late.look(&before, 8, false)[0].outcome,
            Err(Undecided::Skipped(..))
        ));
        assert_eq!(
            late.look(&contest(12), 12, false)[0].outcome,
            Err(Undecided::Late)
        );
    }
}
