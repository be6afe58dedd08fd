//! How an environment boots: when which stage is reached, and how much of the
//! time nobody accounts for.
//!
//! A stage that nobody stamped leaves a gap: of the time across it we know that
//! it passed, not on what. What is inside gaps is shown as unexplained.

use crate::spread::Sorted;
use std::collections::BTreeMap;
use trapline_abi::{Counter, Stage};
use trapline_model::{Clock, EnvironmentId, Launch, Observation, Timeline};

/// The stages of an environment's boot: medians over launches, on an exact clock means.
#[derive(Clone, Debug, PartialEq)]
pub struct BootTimeline {
    /// Where.
    pub environment: EnvironmentId,
    /// By which clock.
    pub clock: Clock,
    /// Launches that the figures are of.
    pub launches: usize,
    /// The stages that were stamped, in order.
    pub stages: Vec<StageTime>,
    /// From exec to the last stage that was stamped, in nanoseconds or instructions.
    pub total: f64,
    /// How much of that lies in gaps, in the same unit.
    pub unexplained: f64,
    /// Launches in which a stage seems to precede the one before it: the clocks
    /// that stamped them could not be reconciled.
    pub disordered: usize,
    /// Peak memory of the VMM beyond the guest's, in bytes, the largest of all
    /// launches.
    pub own_memory: Option<u64>,
}

/// When a stage was reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageTime {
    /// Which.
    pub stage: Stage,
    /// Time since exec, in nanoseconds or instructions: median over launches, on an exact
    /// clock their mean.
    pub reached: f64,
    /// The soonest.
    pub min: f64,
}

/// The timelines of all environments of which a launch was observed.
pub fn timelines(observations: &[Observation]) -> Vec<BootTimeline> {
    EnvironmentId::ALL
        .into_iter()
        .filter_map(|environment| timeline(observations, environment))
        .collect()
}

fn timeline(observations: &[Observation], environment: EnvironmentId) -> Option<BootTimeline> {
    let clock = environment.clock();
    let launches: Vec<&Launch> = observations
        .iter()
        .filter(|seen| seen.environment == environment)
        // On the instruction clock the others only repeat the first.
        .filter(|seen| clock == Clock::Wall || seen.replicate == 0)
        .flat_map(|seen| &seen.launches)
        .collect();
    let timelines = of_booting(&launches);
    let memory = launches
        .iter()
        .filter_map(|launch| launch.counters.get(&Counter::OwnMemory));
    Some(BootTimeline {
        environment,
        clock,
        launches: timelines.len(),
        stages: stages(&timelines, clock),
        total: figure(timelines.iter().map(total), clock)?,
        unexplained: figure(timelines.iter().map(unexplained), clock)?,
        disordered: timelines
            .iter()
            .filter(|timeline| is_disordered(timeline))
            .count(),
        own_memory: memory.max().copied(),
    })
}

/// The timelines of launches that had nothing to do but boot. These are the ones
/// that stamp their first sample; where none does, every launch will do until its
/// guest began to work.
fn of_booting(launches: &[&Launch]) -> Vec<Timeline> {
    let all = || launches.iter().map(|launch| &launch.timeline);
    let booting = all().filter(|timeline| timeline.contains_key(&Stage::FirstSample));
    let booting: Vec<Timeline> = booting.cloned().collect();
    if !booting.is_empty() {
        return booting;
    }
    let until_main = all().map(|timeline| {
        let stages = timeline.range(..=Stage::GuestMain);
        stages.map(|(stage, at)| (*stage, *at)).collect()
    });
    until_main
        .filter(|timeline: &Timeline| timeline.keys().any(|stage| *stage != Stage::Exec))
        .collect()
}

fn stages(timelines: &[Timeline], clock: Clock) -> Vec<StageTime> {
    let mut reached: BTreeMap<Stage, Vec<f64>> = BTreeMap::new();
    for timeline in timelines {
        for (stage, at) in timeline {
            reached.entry(*stage).or_default().push(*at as f64);
        }
    }
    let stages = reached
        .into_iter()
        .filter(|(stage, _)| *stage != Stage::Exec);
    stages
        .filter_map(|(stage, at)| {
            Some(StageTime {
                stage,
                reached: figure(at.iter().copied(), clock)?,
                min: Sorted::new(at)?.min(),
            })
        })
        .collect()
}

fn total(timeline: &Timeline) -> f64 {
    timeline.values().max().map_or(0.0, |last| *last as f64)
}

/// The time of all steps between stages that do not follow each other directly.
fn unexplained(timeline: &Timeline) -> f64 {
    steps(timeline)
        .filter(|(from, to)| to.0 as u8 != from.0 as u8 + 1)
        .map(|(from, to)| to.1 as f64 - from.1 as f64)
        .sum()
}

fn is_disordered(timeline: &Timeline) -> bool {
    steps(timeline).any(|(from, to)| to.1 < from.1)
}

type Reached = (Stage, u64);

/// Each stage with the next one that was stamped, from exec on.
fn steps(timeline: &Timeline) -> impl Iterator<Item = (Reached, Reached)> + '_ {
    let reached = timeline
        .iter()
        .map(|(stage, at)| (*stage, *at))
        .filter(|(stage, _)| *stage != Stage::Exec);
    let before = std::iter::once((Stage::Exec, 0)).chain(reached.clone());
    before.zip(reached)
}

/// The figure of several launches: their median on the wall clock, their mean on an exact one.
fn figure(values: impl Iterator<Item = f64>, clock: Clock) -> Option<f64> {
    let sorted = Sorted::new(values.collect())?;
    Some(match clock {
        Clock::Wall => sorted.median(),
        Clock::Insn | Clock::InsnVmx => sorted.iter().sum::<f64>() / sorted.count() as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(environment: EnvironmentId, launches: &[&[(Stage, u64)]]) -> Observation {
        Observation {
            environment,
            variant: Default::default(),
            clock: environment.clock(),
            replicate: 0,
            unit_per_tick: 1.0,
            operations: vec![],
            launches: launches
                .iter()
                .map(|stages| Launch {
                    timeline: stages.iter().copied().collect(),
                    counters: BTreeMap::from([(Counter::OwnMemory, 4096)]),
                })
                .collect(),
            facts: BTreeMap::new(),
            log: String::new(),
            problems: vec![],
        }
    }

    #[test]
    fn gaps_are_unexplained_and_steps_are_not() {
        use Stage::{Exec, FirstSample, GuestEntry, GuestMain, Reaped, VmmMain};
        let launch: &[_] = &[
            (Exec, 0),
            (VmmMain, 10),
            (GuestEntry, 50),
            (GuestMain, 55),
            (FirstSample, 60),
            (Reaped, 100),
        ];
        let found = &timelines(&[seen(EnvironmentId::Kvm, &[launch, launch])])[0];
        assert_eq!((found.launches, found.total), (2, 100.0));
        assert_eq!(found.unexplained, 80.0, "10 to 50, and 60 to 100");
        assert_eq!(found.disordered, 0);
        assert_eq!(found.own_memory, Some(4096));
        let stages: Vec<_> = found
            .stages
            .iter()
            .map(|at| (at.stage, at.reached))
            .collect();
        assert_eq!(stages[0], (VmmMain, 10.0));
        assert_eq!(stages.len(), 5);
    }

    #[test]
    fn a_launch_that_measures_is_no_boot() {
        use Stage::{FirstSample, GuestMain, Reaped};
        let measuring: &[_] = &[(GuestMain, 30), (Reaped, 9_000)];
        let booting: &[_] = &[(GuestMain, 40), (FirstSample, 44), (Reaped, 60)];
        let both = seen(EnvironmentId::QemuKvm, &[measuring, booting]);
        assert_eq!(timelines(&[both])[0].total, 60.0);
        let one = seen(EnvironmentId::QemuKvm, &[measuring]);
        assert_eq!(timelines(&[one])[0].total, 30.0);
        assert_eq!(timelines(&[seen(EnvironmentId::Sim, &[])]), []);
    }

    #[test]
    fn launches_have_a_median_on_the_wall_clock_and_a_mean_on_an_exact_one() {
        let launches = [10, 10, 40].map(|at| [(Stage::GuestMain, at), (Stage::FirstSample, at)]);
        let launches = launches.each_ref().map(|launch| &launch[..]);
        for (environment, expected) in [(EnvironmentId::Kvm, 10.0), (EnvironmentId::SimKvm, 20.0)] {
            let found = &timelines(&[seen(environment, &launches)])[0];
            assert_eq!(found.stages[0].reached, expected, "{environment}");
            assert_eq!((found.stages[0].min, found.total), (10.0, expected));
        }
    }

    #[test]
    fn stages_in_the_wrong_order_are_noticed() {
        use Stage::{GuestEntry, VmmEntry};
        let launch: &[_] = &[(VmmEntry, 50), (GuestEntry, 49)];
        let found = timelines(&[seen(EnvironmentId::SimKvm, &[launch])]);
        assert_eq!(found[0].disordered, 1);
    }
}
