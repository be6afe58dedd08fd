//! Profiles of starts: the instructions of all launches of an operation, by stage.

use crate::failure::Failure;
use std::collections::BTreeMap;
use trapline_abi::{Op, Stage, Workload};
use trapline_environments::last_stage;
use trapline_model::{names, Launch, Observation, Outcome};
use trapline_profile::stages::{self, group_by_launch, StageError, StagedLaunch};
use trapline_profile::{AddressLayout, Profile, Symbols, Window};

/// The symbols of a machine, and its kind.
pub type Names<'a> = (&'a Symbols, AddressLayout);

/// Returns the profiles of all operations of `boot` in a run. `windows` are those of stages.
///
/// # Errors
/// The numbers of markers and of reported launches differ.
pub fn profiles(
    run: &Observation,
    windows: &[Window],
    names: Names<'_>,
) -> Result<BTreeMap<Op, Profile>, Failure> {
    let mut profiles = BTreeMap::new();
    for operation in &run.operations {
        let op = operation
            .op
            .guest()
            .filter(|op| op.workload() == Workload::Boot);
        if let (Some(op), Outcome::Measured { samples, .. }) = (op, &operation.outcome) {
            let profile = profile(op, samples.len(), run, windows, names)?;
            profiles.insert(op, profile);
        }
    }
    Ok(profiles)
}

/// Returns the profile of the launches of `op`: the last ones of the run, one per sample.
fn profile(
    op: Op,
    samples: usize,
    run: &Observation,
    windows: &[Window],
    names: Names<'_>,
) -> Result<Profile, Failure> {
    let starts = group_by_launch(windows);
    if starts.len() != run.launches.len() {
        return Err(Failure::new(format!(
            "{}: guest reported {} starts; plugin saw markers of {}",
            run.config.environment,
            run.launches.len(),
            starts.len()
        ))
        .help("make build: image, agent and plugin must be of one version"));
    }
    let end = last_stage(op).ok_or_else(|| no_last_stage(op))?;
    let first = run.launches.len().saturating_sub(samples);
    let pairs = run.launches.iter().zip(&starts).skip(first);
    let reached: Vec<_> = pairs
        .map(|(launch, windows)| (windows, reached(launch, windows, names)))
        .collect();
    let starts = reached
        .iter()
        .map(|(windows, reached)| StagedLaunch { windows, reached });
    let starts: Vec<_> = starts.collect();
    if starts.is_empty() {
        return Err(no_last_stage(op));
    }
    let profile = stages::profile(&starts, end, names.0, names.1);
    profile.map_err(|error| Failure::new(error).help(StageError::REMEDY))
}

/// Returns when a launch reached its stages: as stamped, or as counted under Xen, where a domain's
/// stamps cannot be mapped to the host's clock.
fn reached(launch: &Launch, windows: &[Window], names: Names<'_>) -> BTreeMap<Stage, u64> {
    match (names.1, launch.timeline.get(&Stage::Reaped)) {
        (AddressLayout::Xen, Some(took)) => {
            stages::estimate_timestamps(windows, *took, names.0, names.1)
        }
        _ => launch.timeline.clone(),
    }
}

fn no_last_stage(op: Op) -> Failure {
    let op = names::path(op);
    Failure::new(format!("{op}: no launch reported its last stage"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use trapline_model::{testing, EnvironmentId, Sample};
    use trapline_profile::format::{InsnCount, WindowKind};

    /// Returns the window of a launch whose VMM executed `count` instructions until its main function.
    fn window(count: u64) -> Window {
        let line = InsnCount {
            address: 0x1000,
            count,
            ..InsnCount::default()
        };
        Window {
            kind: WindowKind::Stage(Stage::Exec, Stage::GuestMain),
            insns: vec![line],
            ..Window::default()
        }
    }

    fn launch(took: u64) -> Launch {
        Launch {
            timeline: [(Stage::Exec, 0), (Stage::GuestMain, took)].into(),
            ..Launch::default()
        }
    }

    fn sample(took: u64) -> Sample {
        Sample {
            start: 10,
            end: 10 + took,
            count: 1,
            host_ns: None,
            excluded: 0,
        }
    }

    /// Returns a run whose first launch has no sample.
    fn run(launches: &[u64]) -> Observation {
        let samples = launches[1..].iter().copied().map(sample).collect();
        let measured = (Op::BootMain, testing::measured(samples));
        Observation {
            launches: launches.iter().copied().map(launch).collect(),
            ..testing::boot(EnvironmentId::SIM_LINUX, 0, [measured])
        }
    }

    fn explained(launches: &[u64], counted: &[u64]) -> Result<BTreeMap<Op, Profile>, Failure> {
        let windows: Vec<_> = counted.iter().copied().map(window).collect();
        let names = (&Symbols::default(), AddressLayout::Linux);
        profiles(&run(launches), &windows, names)
    }

    #[test]
    fn profiles_cover_all_requested_launches() {
        let profiles = explained(&[7, 9, 7, 2], &[99, 9, 7, 2]).unwrap();
        let profile = &profiles[&Op::BootMain];
        assert_eq!((profile.total, profile.residual), (6.0, 0));
        assert_eq!((profile.operations, profile.counted), (3, 18));
        assert_eq!(profile.stages[0].to, Stage::GuestMain);
    }

    #[test]
    fn starts_without_markers_are_rejected() {
        let failure = explained(&[7, 9, 7, 5], &[9, 7, 5]).unwrap_err();
        expect!["sim/linux: guest reported 4 starts; plugin saw markers of 3"]
            .assert_eq(&failure.to_string());
    }
}
