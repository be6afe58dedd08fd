//! Excludes from figures what finds the length of intercepted instructions on QEMU's simulated processor, in every boot
//! of an environment whose hypervisor does that: a plugin counts nothing but these instructions
//! ([`trapline_profile::counter::Lengths`]), in the windows of batches and of stages.

use crate::counters::{self, CountedEnvironment};
use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::windows;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use trapline_abi::{Op, Stage, Workload};
use trapline_environments::{last_stage, EnvError, Plugin};
use trapline_model::{Observation, Outcome, PlannedBoot};
use trapline_profile::stages::group_by_launch;
use trapline_profile::{format, Window};

/// Fact: whether figures are without what finds the length of instructions, or why not.
pub const LENGTHS: &str = "instruction-lengths";

const EXCLUDED: &str = "excluded";

/// The plugins of all QEMUs of a run.
#[derive(Default)]
pub struct LengthCounters {
    loaded: Mutex<BTreeMap<Option<PathBuf>, Result<Plugin, String>>>,
}

/// How the lengths of a boot are treated.
pub enum Attached {
    /// There is nothing to exclude.
    Nothing,
    /// They are counted in this environment.
    Counted(CountedEnvironment),
    /// They cannot be counted, for this reason.
    Included(String),
}

impl LengthCounters {
    /// Returns the environment of a boot with a counter of lengths, if it needs one.
    ///
    /// # Errors
    /// Memory for the counts cannot be allocated.
    pub fn attach(&self, inventory: &Inventory, boot: &PlannedBoot) -> Result<Attached, EnvError> {
        let id = boot.config.environment;
        if !id.stack().finds_lengths() {
            return Ok(Attached::Nothing);
        }
        // The windows of guests that run at the same time would be mixed.
        if inventory.guest(&boot.config).guests > 1 {
            return Ok(Attached::Included("several guests at a time".to_owned()));
        }
        let settings = inventory.settings();
        let plugin = {
            let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
            let loaded = loaded.entry(settings.qemu.clone()).or_insert_with(|| {
                let plugin = settings.load_plugin(&format::ready());
                plugin.map_err(|error| error.to_string())
            });
            match loaded {
                Ok(plugin) => plugin.another()?,
                Err(reason) => return Ok(Attached::Included(reason.clone())),
            }
        };
        let plugin = plugin.with_arguments(counters::arguments(id, format::LENGTHS_ALONE));
        Ok(Attached::Counted(CountedEnvironment::with_plugin(
            id, settings, plugin,
        )))
    }
}

/// Records that nothing is excluded, for this reason.
pub fn include(observation: &mut Observation, reason: &str) {
    let fact = (LENGTHS.to_owned(), format!("included: {reason}"));
    observation.facts.extend([fact]);
}

/// Excludes what `windows` counted from the batches and stages of a start. Operations whose windows cannot be told have failed.
pub fn exclude(observation: &mut Observation, windows: &Result<Vec<Window>, Failure>) {
    let windows = match windows {
        Ok(windows) => windows,
        Err(failure) => return include(observation, &failure.to_string()),
    };
    if windows.iter().any(|window| window.lengths.is_none()) {
        return include(observation, "the kernel does not tell where it finds them");
    }
    let (batches, stages) = windows::split(windows.clone());
    exclude_from_batches(observation, &batches);
    let fact = match exclude_from_starts(observation, &stages) {
        Ok(()) => EXCLUDED.to_owned(),
        Err(reason) => format!("{EXCLUDED}, but not from starts: {reason}"),
    };
    observation.facts.extend([(LENGTHS.to_owned(), fact)]);
}

fn lengths(window: &Window) -> u64 {
    window.lengths.unwrap_or(0)
}

/// Number of windows of a marked operation; `None` if it failed, so that they are unknown.
fn number_of_windows(outcome: &Outcome) -> Option<usize> {
    match outcome {
        Outcome::Measured { samples, .. } => Some(samples.len()),
        Outcome::Skipped(_) => Some(0),
        Outcome::Failed(_) => None,
    }
}

fn exclude_from_batches(observation: &mut Observation, windows: &[Window]) {
    // A VMM that starts its guest again is ended late: those batches are not reported.
    let is_open_end = observation.facts.contains_key("custom-vmm-end");
    let marked = observation.operations.iter_mut();
    let mut marked: Vec<&mut Outcome> = marked
        .filter(|it| it.op.guest().is_some_and(Op::has_markers))
        .map(|it| &mut it.outcome)
        .collect();
    let counts: Vec<_> = marked.iter().map(|it| number_of_windows(it)).collect();
    let places = places(&counts, windows.len(), is_open_end);
    for (outcome, place) in marked.iter_mut().zip(places) {
        let Outcome::Measured { samples, .. } = &mut **outcome else {
            continue;
        };
        match place {
            Some(first) => {
                for (sample, window) in samples.iter_mut().zip(&windows[first..]) {
                    sample.excluded = lengths(window);
                }
            }
            None => {
                **outcome = Outcome::Failed(format!(
                    "which of {} counted batches are its own cannot be told",
                    windows.len()
                ));
            }
        }
    }
}

/// Returns the place of the first window of each operation: counted from the first operation up to one that failed, and from
/// the last one down to one that failed. `None` where it cannot be told.
fn places(counts: &[Option<usize>], windows: usize, is_open_end: bool) -> Vec<Option<usize>> {
    let mut places = vec![None; counts.len()];
    let mut end = 0;
    let mut has_failed = false;
    for (place, count) in places.iter_mut().zip(counts) {
        let Some(count) = count else {
            has_failed = true;
            break;
        };
        *place = (end + count <= windows).then_some(end);
        end += count;
    }
    if !has_failed {
        let is_whole = end == windows || is_open_end && end < windows;
        return if is_whole {
            places
        } else {
            vec![None; counts.len()]
        };
    }
    if is_open_end {
        return places;
    }
    let mut begin = Some(windows);
    for (place, count) in places.iter_mut().zip(counts).rev() {
        let Some(count) = count else { break };
        begin = begin.and_then(|begin| begin.checked_sub(*count));
        *place = begin.filter(|begin| *begin >= end);
    }
    places
}

/// Excludes from the stages of starts, and from the operations that are starts.
fn exclude_from_starts(observation: &mut Observation, windows: &[Window]) -> Result<(), String> {
    let starts = group_by_launch(windows);
    let launches = observation.launches.len();
    if launches == 0 {
        return Ok(());
    }
    if starts.len() != launches {
        return Err(format!("{} of {launches} were counted", starts.len()));
    }
    let excluded: Vec<_> = starts.iter().map(|start| until_stages(start)).collect();
    for (launch, excluded) in observation.launches.iter_mut().zip(&excluded) {
        for (stage, reached) in &mut launch.timeline {
            *reached = reached.saturating_sub(until(excluded, *stage));
        }
    }
    for operation in &mut observation.operations {
        let op = operation.op.guest();
        let end = op
            .filter(|op| op.workload() == Workload::Boot)
            .and_then(last_stage);
        if let (Some(end), Outcome::Measured { samples, .. }) = (end, &mut operation.outcome) {
            // A start is a sample; earlier ones only measured other operations.
            let first = launches.saturating_sub(samples.len());
            for (sample, excluded) in samples.iter_mut().zip(&excluded[first..]) {
                sample.excluded = until(excluded, end);
            }
        }
    }
    Ok(())
}

/// Returns what is excluded from the begin of a start to each of its stages.
fn until_stages(windows: &[Window]) -> BTreeMap<Stage, u64> {
    let mut sum = 0;
    let mut until = BTreeMap::new();
    for window in windows {
        sum += lengths(window);
        if let format::WindowKind::Stage(_, to) = window.kind {
            until.insert(to, sum);
        }
    }
    until
}

/// Returns what is excluded until a stage, or until the last one before it that was counted.
fn until(excluded: &BTreeMap<Stage, u64>, stage: Stage) -> u64 {
    let last = excluded.range(..=stage).next_back();
    last.map_or(0, |(_, sum)| *sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_model::testing::{batch, boot, measured};
    use trapline_model::{EnvironmentId, Launch};
    use trapline_profile::format::WindowKind;

    fn window(kind: WindowKind, lengths: u64) -> Window {
        Window {
            kind,
            lengths: Some(lengths),
            ..Window::default()
        }
    }

    fn windows(lengths: &[u64]) -> Vec<Window> {
        let batch = |lengths: &u64| window(WindowKind::Batch, *lengths);
        lengths.iter().map(batch).collect()
    }

    /// Returns what is excluded from each batch, or why an operation failed.
    fn excluded(observation: &Observation) -> Vec<Result<Vec<u64>, String>> {
        let outcomes = observation.operations.iter().map(|it| &it.outcome);
        let of = |outcome: &Outcome| match outcome {
            Outcome::Measured { samples, .. } => {
                Ok(samples.iter().map(|sample| sample.excluded).collect())
            }
            Outcome::Skipped(reason) | Outcome::Failed(reason) => Err(reason.clone()),
        };
        outcomes.map(of).collect()
    }

    fn observed(outcomes: Vec<(Op, Outcome)>) -> Observation {
        boot(EnvironmentId::SIM_KVM, 0, outcomes)
    }

    fn of_batches(count: usize) -> Outcome {
        measured(vec![batch(1_000, 10); count])
    }

    #[test]
    fn batches_lose_what_was_counted_in_their_windows() {
        let mut seen = observed(vec![
            (Op::PortOut, of_batches(2)),
            (Op::TimerWake, of_batches(1)),
            (Op::Hypercall, Outcome::Skipped("none".to_owned())),
            (Op::Cpuid, of_batches(1)),
        ]);
        exclude(&mut seen, &Ok(windows(&[0, 1, 700])));
        let expected = [
            Ok(vec![0, 1]),
            Ok(vec![0]),
            Err("none".to_owned()),
            Ok(vec![700]),
        ];
        assert_eq!(excluded(&seen), expected);
        assert_eq!(seen.facts[LENGTHS], "excluded");
        let figure = seen.operations[3].outcome.batches()[0].ticks();
        assert_eq!(figure, 300);
    }

    #[test]
    fn windows_are_told_from_both_ends_if_an_operation_failed() {
        let failed = || Outcome::Failed("it broke".to_owned());
        let mut seen = observed(vec![
            (Op::PortOut, of_batches(2)),
            (Op::Getpid, failed()),
            (Op::Cpuid, of_batches(1)),
        ]);
        exclude(&mut seen, &Ok(windows(&[1, 2, 9, 9, 3])));
        let expected = [Ok(vec![1, 2]), Err("it broke".to_owned()), Ok(vec![3])];
        assert_eq!(excluded(&seen), expected);
        let between = [
            (Op::Getpid, failed()),
            (Op::PortOut, of_batches(1)),
            (Op::Cpuid, failed()),
        ];
        let mut seen = observed(between.to_vec());
        exclude(&mut seen, &Ok(windows(&[1, 2, 3])));
        let reason = "which of 3 counted batches are its own cannot be told";
        assert_eq!(excluded(&seen)[1], Err(reason.to_owned()));
    }

    #[test]
    fn another_number_of_windows_is_a_failure() {
        let mut seen = observed(vec![(Op::PortOut, of_batches(2))]);
        exclude(&mut seen, &Ok(windows(&[1])));
        assert!(excluded(&seen)[0].is_err());
        let mut again = observed(vec![(Op::PortOut, of_batches(2))]);
        let ended = ("custom-vmm-end".to_owned(), "killed".to_owned());
        again.facts.extend([ended]);
        exclude(&mut again, &Ok(windows(&[1, 2, 3])));
        assert_eq!(excluded(&again), [Ok(vec![1, 2])]);
    }

    #[test]
    fn unknown_lengths_are_included_with_the_reason() {
        let mut seen = observed(vec![(Op::PortOut, of_batches(1))]);
        exclude(&mut seen, &Ok(vec![Window::default()]));
        assert_eq!(excluded(&seen), [Ok(vec![0])]);
        let fact = "included: the kernel does not tell where it finds them";
        assert_eq!(seen.facts[LENGTHS], fact);
    }

    #[test]
    fn stages_lose_what_was_counted_before_them() {
        let stage = |from, to, lengths| window(WindowKind::Stage(from, to), lengths);
        let start = [
            stage(Stage::Exec, Stage::VmmMain, 5),
            stage(Stage::VmmMain, Stage::GuestMain, 20),
        ];
        let timeline = [
            (Stage::Exec, 0),
            (Stage::VmmMain, 100),
            (Stage::GuestMain, 1_000),
        ];
        let launch = Launch {
            timeline: timeline.into(),
            ..Launch::default()
        };
        let mut seen = observed(vec![(Op::BootMain, measured(vec![batch(1_000, 1)]))]);
        seen.launches = vec![launch.clone(), launch];
        exclude(&mut seen, &Ok([start.clone(), start].concat()));
        let expected = [
            (Stage::Exec, 0),
            (Stage::VmmMain, 95),
            (Stage::GuestMain, 975),
        ];
        assert_eq!(seen.launches[1].timeline, expected.into());
        assert_eq!(excluded(&seen), [Ok(vec![25])]);
        let mut one = observed(vec![(Op::BootMain, measured(vec![batch(1_000, 1)]))]);
        one.launches = vec![Launch::default()];
        exclude(&mut one, &Ok(Vec::new()));
        let fact = "excluded, but not from starts: 0 of 1 were counted";
        assert_eq!(one.facts[LENGTHS], fact);
    }
}
