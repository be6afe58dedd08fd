//! Boot stages of environments, and the time between stages without a timestamp.
//!
//! A stage without a timestamp leaves a gap. The time across gaps is reported as unexplained.

use crate::boots_of;
use crate::order::{median_interval, Interval};
use crate::sorted::Sorted;
use std::collections::{BTreeMap, BTreeSet};
use trapline_abi::{Counter, Stage};
use trapline_model::{Clock, Config, Launch, Observation, Timeline};

/// The stages of a configuration's boot: medians over launches, on an exact clock means.
#[derive(Clone, Debug, PartialEq)]
pub struct BootTimeline {
    /// The configuration.
    pub config: Config,
    /// Clock of the figures.
    pub clock: Clock,
    /// Number of launches.
    pub launches: usize,
    /// Stages with a timestamp, in order.
    pub stages: Vec<StageTime>,
    /// Time from exec to the last stage, in nanoseconds or instructions.
    pub total: f64,
    /// Time across gaps, in the same unit.
    pub unexplained: f64,
    /// Number of launches whose timestamps are not in order, because their clocks could not be reconciled.
    pub disordered: usize,
    /// Memory of the VMM beyond the guest's, in bytes, at its peak if the VMM reports it: the least of a boot's
    /// launches, since others may have another device; the largest of all boots.
    pub own_memory: Option<u64>,
}

/// Time of a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageTime {
    /// The stage.
    pub stage: Stage,
    /// Time since exec, in nanoseconds or instructions: median over launches, on an exact
    /// clock their mean.
    pub reached: f64,
    /// The smallest of all launches.
    pub min: f64,
    /// Time since the stage with a timestamp before it, in the same unit: median over launches of each launch's own,
    /// on an exact clock their mean.
    pub step: f64,
    /// Interval of the step over launches, on the wall clock.
    pub step_interval: Option<Interval>,
}

/// Returns the timelines of all configurations with an observed launch.
pub fn timelines(observations: &[Observation]) -> Vec<BootTimeline> {
    let configs: BTreeSet<&Config> = observations.iter().map(|boot| &boot.config).collect();
    let timelines = configs.into_iter();
    timelines
        .filter_map(|config| timeline(observations, config))
        .collect()
}

fn timeline(observations: &[Observation], config: &Config) -> Option<BootTimeline> {
    let clock = config.clock();
    let boots: Vec<_> = boots_of(observations, config)
        // On an exact clock the other boots repeat the first.
        .filter(|boot| !clock.is_exact() || boot.replicate == 0)
        .collect();
    let launches: Vec<&Launch> = boots.iter().flat_map(|boot| &boot.launches).collect();
    let timelines = of_booting(&launches);
    let memory_of = |launch: &Launch| launch.counters.get(&Counter::OwnMemory).copied();
    let memory = boots
        .iter()
        .filter_map(|boot| boot.launches.iter().filter_map(memory_of).min());
    Some(BootTimeline {
        config: config.clone(),
        clock,
        launches: timelines.len(),
        stages: stages(&timelines, clock),
        total: figure(timelines.iter().map(total), clock)?,
        unexplained: figure(timelines.iter().map(unexplained), clock)?,
        disordered: timelines
            .iter()
            .filter(|timeline| is_out_of_order(timeline))
            .count(),
        own_memory: memory.max(),
    })
}

/// Returns the timelines of launches that only boot, which have a timestamp of their first sample. If there
/// are none, returns all launches up to the start of the guest's main function.
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
    let mut launches: BTreeMap<Stage, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for (from, to) in timelines.iter().flat_map(steps) {
        let (reached, step) = launches.entry(to.0).or_default();
        reached.push(to.1 as f64);
        step.push(to.1 as f64 - from.1 as f64);
    }
    let stages = launches.into_iter().filter_map(|(stage, (reached, step))| {
        Some(StageTime {
            stage,
            reached: figure(reached.iter().copied(), clock)?,
            min: Sorted::new(reached)?.min(),
            step: figure(step.iter().copied(), clock)?,
            step_interval: if clock.is_exact() {
                None
            } else {
                median_interval(&step)
            },
        })
    });
    stages.collect()
}

fn total(timeline: &Timeline) -> f64 {
    timeline.values().max().map_or(0.0, |last| *last as f64)
}

/// Returns the time of all steps between stages that are not consecutive.
fn unexplained(timeline: &Timeline) -> f64 {
    steps(timeline)
        .filter(|(from, to)| to.0 as u8 != from.0 as u8 + 1)
        .map(|(from, to)| to.1 as f64 - from.1 as f64)
        // The sum of none is -0.
        .fold(0.0, |sum, step| sum + step)
}

fn is_out_of_order(timeline: &Timeline) -> bool {
    steps(timeline).any(|(from, to)| to.1 < from.1)
}

type Reached = (Stage, u64);

/// Returns each stage with the next one that has a timestamp, from exec on.
fn steps(timeline: &Timeline) -> impl Iterator<Item = (Reached, Reached)> + '_ {
    let reached = timeline
        .iter()
        .map(|(stage, at)| (*stage, *at))
        .filter(|(stage, _)| *stage != Stage::Exec);
    let before = std::iter::once((Stage::Exec, 0)).chain(reached.clone());
    before.zip(reached)
}

/// Returns the median of several launches on the wall clock, their mean on an exact one.
fn figure(values: impl Iterator<Item = f64>, clock: Clock) -> Option<f64> {
    let sorted = Sorted::new(values.collect())?;
    Some(if clock.is_exact() {
        sorted.mean()
    } else {
        sorted.median()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_model::EnvironmentId;

    fn boot(environment: EnvironmentId, launches: &[&[(Stage, u64)]]) -> Observation {
        let launches = launches.iter().map(|stages| Launch {
            timeline: stages.iter().copied().collect(),
            counters: BTreeMap::from([(Counter::OwnMemory, 4096)]),
        });
        Observation {
            launches: launches.collect(),
            ..trapline_model::testing::boot(environment, 0, [])
        }
    }

    #[test]
    fn only_gaps_are_unexplained() {
        use Stage::{Exec, FirstSample, GuestEntry, GuestMain, Reaped, VmmMain};
        let launch: &[_] = &[
            (Exec, 0),
            (VmmMain, 10),
            (GuestEntry, 50),
            (GuestMain, 55),
            (FirstSample, 60),
            (Reaped, 100),
        ];
        let found = &timelines(&[boot(EnvironmentId::KVM, &[launch, launch])])[0];
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
    fn launches_that_measure_are_cut_at_main() {
        use Stage::{FirstSample, GuestMain, Reaped};
        let measuring: &[_] = &[(GuestMain, 30), (Reaped, 9_000)];
        let booting: &[_] = &[(GuestMain, 40), (FirstSample, 44), (Reaped, 60)];
        let both = boot(EnvironmentId::QEMU_KVM, &[measuring, booting]);
        assert_eq!(timelines(&[both])[0].total, 60.0);
        let one = boot(EnvironmentId::QEMU_KVM, &[measuring]);
        assert_eq!(timelines(&[one])[0].total, 30.0);
        assert_eq!(timelines(&[boot(EnvironmentId::SIM, &[])]), []);
    }

    #[test]
    fn launches_have_a_median_on_the_wall_clock_and_a_mean_on_an_exact_one() {
        let launches = [10, 10, 40].map(|at| [(Stage::GuestMain, at), (Stage::FirstSample, at)]);
        let launches = launches.each_ref().map(|launch| &launch[..]);
        for (environment, expected) in [(EnvironmentId::KVM, 10.0), (EnvironmentId::SIM_KVM, 20.0)]
        {
            let found = &timelines(&[boot(environment, &launches)])[0];
            assert_eq!(found.stages[0].reached, expected, "{environment}");
            assert_eq!((found.stages[0].min, found.total), (10.0, expected));
        }
    }

    /// One launch of five stalls at another stage each time, so no stage is late at the median launch: a difference of the
    /// medians of two stages would be the length of neither.
    #[test]
    fn a_step_is_the_median_of_the_launches_own() {
        use Stage::{FirstSample, GuestMain, Reaped};
        let launches = [(10, 0), (30, 0), (50, 0), (10, 500), (30, 500)].map(|(main, stall)| {
            let sample = main + 4 + stall;
            [
                (GuestMain, main),
                (FirstSample, sample),
                (Reaped, sample + 2),
            ]
        });
        let launches = launches.each_ref().map(|launch| &launch[..]);
        let found = &timelines(&[boot(EnvironmentId::KVM, &launches)])[0];
        let steps: Vec<_> = found.stages.iter().map(|at| at.step).collect();
        assert_eq!(steps, [30.0, 4.0, 2.0]);
        assert_eq!(found.stages[1].reached, 54.0, "24 after the median of main");
        let interval = found.stages[1].step_interval.unwrap();
        assert_eq!((interval.low, interval.high), (4.0, 504.0));
        let exact = &timelines(&[boot(EnvironmentId::SIM_KVM, &launches)])[0];
        assert_eq!(exact.stages[1].step, 204.0);
        assert_eq!(exact.stages[1].step_interval, None);
    }

    #[test]
    fn unordered_stages_are_counted() {
        use Stage::{GuestEntry, VmmEntry};
        let launch: &[_] = &[(VmmEntry, 50), (GuestEntry, 49)];
        let found = timelines(&[boot(EnvironmentId::SIM_KVM, &[launch])]);
        assert_eq!(found[0].disordered, 1);
    }
}
