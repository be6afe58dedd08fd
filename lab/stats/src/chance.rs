//! What chance does on this host: a contender that was booted twice in each block, compared
//! with itself. Whatever differs is noise, and how much it is says what these boots could
//! have found.

use crate::contest::{boots, judged, Contest, Match};
use crate::judge::{Comparison, Design, FalseAlarms, Settings};
use trapline_abi::Op;
use trapline_model::{Contender, Observation};

/// What a contender that was compared with itself says.
#[derive(Clone, Debug, PartialEq)]
pub struct Chance {
    /// Who.
    pub contender: Contender,
    /// In how many blocks.
    pub blocks: usize,
    /// What comparisons said of what cannot have changed.
    pub alarms: FalseAlarms,
    /// At which level an alarm is one.
    pub level: f64,
    /// The smallest change of each operation that as many boots find with a probability of 80%, as a
    /// share, if it is the only one in the table: at a level of `alpha / m` of `m` operations.
    pub smallest: Vec<(Op, f64)>,
}

impl Chance {
    /// Of what was booted again in `observations`, if anything was.
    pub fn of(observations: &[Observation], settings: &Settings) -> Option<Self> {
        let again = observations.iter().find(|seen| seen.variant.again)?;
        let mut contender = again.contender();
        contender.variant.again = false;
        let contest = Contest {
            a: &boots(observations, &contender),
            b: &boots(observations, &contender.again()),
            design: Design::Blocks,
        };
        Self::told(contender, &judged(&[contest], settings), settings)
    }

    /// Of a table in which a contender was compared with itself; `None` if none of it is on
    /// the wall clock.
    pub fn told(contender: Contender, matches: &[Match], settings: &Settings) -> Option<Self> {
        let told: Vec<(Op, &Comparison)> = matches
            .iter()
            .filter_map(|one| Some((one.op, one.outcome.as_ref().ok()?)))
            .collect();
        let level = settings.alpha;
        let alarms = FalseAlarms::count(told.iter().map(|(_, told)| *told), level);
        let of_one = level / alarms.tests.max(1) as f64;
        let smallest = told
            .iter()
            .filter_map(|(op, told)| Some((*op, told.smallest_effect(of_one)?)));
        (alarms.tests > 0).then(|| Self {
            contender,
            blocks: told.iter().map(|(_, told)| told.blocks).max().unwrap_or(0),
            alarms,
            level,
            smallest: smallest.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_model::{EnvironmentId, Operation, Outcome, Sample};

    fn boot(block: u32, again: bool, ticks: u64) -> Observation {
        let sample = |number: u64| Sample {
            start: 0,
            end: ticks + number,
            count: 1,
            host_ns: None,
        };
        let mut contender = Contender::usual(EnvironmentId::Host);
        contender.variant.again = again;
        Observation {
            environment: contender.environment,
            variant: contender.variant,
            clock: EnvironmentId::Host.clock(),
            replicate: block,
            unit_per_tick: 1.0,
            operations: vec![Operation {
                op: Op::Getpid,
                outcome: Outcome::Measured {
                    clock_cost: 0,
                    loop_cost: 0,
                    samples: (0..5).map(sample).collect(),
                    interrupts: Vec::new(),
                    check: 1,
                    exits: None,
                    host_cpu_ns: None,
                    elapsed: None,
                },
            }],
            launches: Vec::new(),
            facts: Default::default(),
            log: String::new(),
            problems: Vec::new(),
        }
    }

    #[test]
    fn a_contender_against_itself_says_what_could_have_been_found() {
        let noise = [0, 7, 3, 9, 1, 4, 8, 2, 6, 5];
        let boots: Vec<_> = (0..10)
            .flat_map(|block| {
                let drift = 1_000 + 10 * u64::from(block);
                let of = |again, noise: u64| boot(block, again, drift + noise);
                let here = noise[block as usize];
                [of(false, here), of(true, 9 - here)]
            })
            .collect();
        let chance = Chance::of(&boots, &Settings::default()).unwrap();
        assert_eq!(chance.contender, Contender::usual(EnvironmentId::Host));
        assert_eq!((chance.blocks, chance.alarms.tests), (10, 1));
        assert_eq!(chance.alarms.changed, 0, "{chance:?}");
        let (op, smallest) = chance.smallest[0];
        assert_eq!(op, Op::Getpid);
        assert!((0.003..0.03).contains(&smallest), "{smallest}");
        let alone: Vec<_> = boots.into_iter().filter(|it| !it.variant.again).collect();
        assert_eq!(Chance::of(&alone, &Settings::default()), None);
    }
}
