//! Profiles of launches, stage by stage.
//!
//! Between the timestamps of two stages the clock counts exactly the instructions from the
//! marker of the first to that of the second (`trapline_abi::stamp!`). So each stage has a
//! profile, and together they are the profile of the launch. Several launches have one profile:
//! their mean.

use crate::address_space::AddressLayout;
use crate::breakdown::{Batch, Profile, StageProfile};
use crate::format::{FormatError, Window, WindowKind};
use crate::insn::Event;
use crate::symbols::Symbols;
use std::collections::BTreeMap;
use trapline_abi::Stage;

/// Windows and timestamps of one launch.
#[derive(Clone, Copy, Debug)]
pub struct StagedLaunch<'a> {
    /// Windows of the stages, from exec on.
    pub windows: &'a [Window],
    /// Timestamp of each stage, in instructions since exec.
    pub reached: &'a BTreeMap<Stage, u64>,
}

/// Mismatches between the markers and the timestamps of a launch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageError {
    /// The plugin saw a marker, and no program reported a timestamp.
    #[error("stage {0}: marker without timestamp")]
    NoTimestamp(&'static str),
    /// A program reported a timestamp, and the plugin saw no marker.
    #[error("stage {0}: plugin saw no marker")]
    NoMarker(&'static str),
}

impl StageError {
    /// The remedy for all of these errors.
    pub const REMEDY: &'static str = FormatError::REMEDY;
}

/// Groups the windows of stages by launch, in order of time; ignores windows of batches.
pub fn group_by_launch(windows: &[Window]) -> Vec<Vec<Window>> {
    let mut launches: Vec<Vec<Window>> = Vec::new();
    for window in windows {
        match (window.kind, launches.last_mut()) {
            (WindowKind::Batch, _) => {}
            (WindowKind::Stage(Stage::Exec, _), _) | (_, None) => {
                launches.push(vec![window.clone()]);
            }
            (_, Some(launch)) => launch.push(window.clone()),
        }
    }
    launches
}

/// Estimates the timestamps of a launch from its counts, where the guest's clock cannot be
/// related to the machine's, as on Xen. `took` is the time from exec to reaped on the machine's
/// clock. Ticks that were not counted are attributed to the last stage that halted the CPU, or
/// to the last stage, where they appear as residual.
pub fn estimate_timestamps(
    windows: &[Window],
    took: u64,
    symbols: &Symbols,
    layout: AddressLayout,
) -> BTreeMap<Stage, u64> {
    let profile = |window: &Window| Profile::new(&batch(0, 1), window, symbols, layout, 0);
    let profiles: Vec<_> = windows.iter().map(profile).collect();
    let retired = |profile: &Profile| profile.residual.unsigned_abs();
    let halted = took.saturating_sub(profiles.iter().map(retired).sum());
    let last_halt = profiles
        .iter()
        .rposition(|profile| profile.count(Event::Halt) != 0);
    let last_halt = last_halt.unwrap_or(profiles.len().saturating_sub(1));
    let mut reached = BTreeMap::from([(Stage::Exec, 0)]);
    let mut now = 0;
    for (index, (window, profile)) in windows.iter().zip(&profiles).enumerate() {
        now += retired(profile) + if index == last_halt { halted } else { 0 };
        if let WindowKind::Stage(_, to) = window.kind {
            reached.insert(to, now);
        }
    }
    reached.insert(Stage::Reaped, took);
    reached
}

/// Creates the profile of `launches` from exec to `end`, with its stages.
///
/// # Errors
/// Markers and timestamps are of different stages.
pub fn profile(
    launches: &[StagedLaunch<'_>],
    end: Stage,
    symbols: &Symbols,
    layout: AddressLayout,
) -> Result<Profile, StageError> {
    let mut ticks = 0;
    let mut stages: BTreeMap<(Stage, Stage), (u64, Window)> = BTreeMap::new();
    for launch in launches {
        for (from, to, window) in launch.windows_until(end)? {
            let (ticks, merged) = stages.entry((from, to)).or_default();
            *ticks += launch.timestamp(to)? - launch.timestamp(from)?;
            merged.add(window);
        }
        ticks += launch.timestamp(end)?;
    }
    let profile = |ticks, window: &Window| {
        let batch = batch(ticks, launches.len() as u64);
        Profile::new(&batch, window, symbols, layout, 0)
    };
    let merged = Window::merge(stages.values().map(|(_, window)| window));
    let stages = stages
        .iter()
        .map(|((from, to), (ticks, window))| StageProfile {
            from: *from,
            to: *to,
            profile: profile(*ticks, window),
        });
    Ok(Profile {
        stages: stages.collect(),
        ..profile(ticks, &merged)
    })
}

impl<'a> StagedLaunch<'a> {
    fn windows_until(&self, end: Stage) -> Result<Vec<(Stage, Stage, &'a Window)>, StageError> {
        let mut windows = Vec::new();
        for window in self.windows {
            if let WindowKind::Stage(from, to) = window.kind {
                windows.push((from, to, window));
                if to == end {
                    return Ok(windows);
                }
            }
        }
        Err(StageError::NoMarker(end.name()))
    }

    fn timestamp(&self, stage: Stage) -> Result<u64, StageError> {
        let timestamp = self.reached.get(&stage).copied();
        timestamp.ok_or(StageError::NoTimestamp(stage.name()))
    }
}

/// Returns the batch of `count` launches, which need no correction for clock and loop.
fn batch(ticks: u64, count: u64) -> Batch {
    Batch {
        ticks,
        count,
        clock_cost: 0,
        loop_cost: 0,
    }
}

#[cfg(test)]
mod tests;
