//! Measures exact figures, for baselines and their checks. Observations are stored; the profiles of a
//! baseline are from the same boots.

use crate::context::RunContext;
use crate::counters::Counters;
use crate::failure::{Failure, Status};
use crate::options::BootOptions;
use crate::profiles::Profiler;
use crate::run;
use trapline_gate::{baseline, Baseline, Comparison, Row, Verdict};
use trapline_model::{
    Aim, Config, EnvironmentId, Feature, Operation, Operations, Request, EXACT_BOOTS,
};
use trapline_stats::{FailureKind, Summary, Value};
use trapline_store::{Run, Store};

/// Checks that all of `environments` have exact figures of operations.
///
/// # Errors
/// One has none.
pub fn require_exact(
    environments: &[EnvironmentId],
    operations: &Operations,
) -> Result<(), Failure> {
    let refused = |feature: Feature| {
        let refused = |id: &EnvironmentId| Some((*id, id.why_not(feature)?));
        let (id, why) = environments.iter().find_map(refused)?;
        Some(Failure::usage(
            format!("baselines are not supported by {id}: {why}"),
            format!(
                "environments with exact figures of this kind: {}",
                EnvironmentId::names_of(|id| id.has(feature))
            ),
        ))
    };
    let of_guests = (!operations.guest.is_empty()).then_some(Feature::DetailedProfiles);
    let of_builds = (!operations.builds.is_empty()).then_some(Feature::ExactBuild);
    let mut needed = of_guests.into_iter().chain(of_builds);
    needed.find_map(refused).map_or(Ok(()), Err)
}

/// Measures `operations` in `configs`, completely, for this purpose.
///
/// # Errors
/// A configuration cannot be measured ([`Status::Unmeasured`]), the store cannot be written, or the run
/// is cancelled.
pub fn measure(
    store: &mut Store,
    aim: Aim,
    configs: &[Config],
    operations: &Operations,
    counters: Option<&Counters>,
    context: &RunContext<'_>,
) -> Result<Run, Failure> {
    let long = operations.long();
    for config in configs {
        if let Some(unavailable) = context.inventory.unavailable_config(config, &long) {
            return Err(unmeasured(config, &unavailable.to_string()));
        }
    }
    let options = BootOptions {
        counters,
        ..BootOptions::default()
    };
    let request = Request {
        aim,
        ..run::exact_request(configs, operations, context.inventory)
    };
    let run = run::perform(store, &request, context, &options)?;
    context.interrupt.check()?;
    match run.skips.first() {
        Some((config, reason)) => Err(unmeasured(config, reason)),
        None => Ok(run),
    }
}

fn unmeasured(config: &Config, reason: &str) -> Failure {
    Failure::new(format!("{config} cannot be measured: {reason}"))
        .help("'trapline list' lists the environments that can")
        .status(Status::Unmeasured)
}

/// Checks that no operation failed, and that each of `configs` has a figure.
///
/// # Errors
/// An operation failed; [`Status::Undetermined`] if two runs disagree, [`Status::Unmeasured`] if a configuration skips all
/// operations.
pub fn require_figures(summary: &Summary, configs: &[Config]) -> Result<(), Failure> {
    let disagree = summary.has_failure(FailureKind::NotDeterministic);
    let mut failures = baseline::failures(summary)
        .filter(|(_, failure)| !disagree || failure.kind == FailureKind::NotDeterministic);
    let Some((cell, failure)) = failures.next() else {
        let mut configs = configs.iter();
        return configs.try_for_each(|config| require_any(summary, config));
    };
    let (path, config) = (cell.op.path(), &cell.config);
    let failure = Failure::new(format!("{path} in {config}: {}", failure.reason));
    Err(if disagree {
        failure.status(Status::Undetermined)
    } else {
        failure
    })
}

/// # Errors
/// `config` has no figure.
fn require_any(summary: &Summary, config: &Config) -> Result<(), Failure> {
    let cells = summary.cells.iter();
    let mut cells = cells.filter(|cell| cell.config == *config);
    let first = cells.clone().next();
    if cells.any(|cell| cell.value.figure().is_some()) {
        return Ok(());
    }
    let reason = match first.map(|cell| (cell.op.path(), &cell.value)) {
        Some((path, Value::Skip(reason))) => format!("{path} is skipped: {reason}"),
        _ => "nothing was measured".to_owned(),
    };
    Err(Failure::new(format!("no figures of {config}: {reason}"))
        .help("name operations that this environment has; 'trapline run' shows what it skips")
        .status(Status::Unmeasured))
}

/// Returns whether the operation of a row has profiles: builds have none.
pub(crate) fn has_profile(row: &Row) -> bool {
    let operation = Operation::from_path(&row.operation);
    operation.is_some_and(|it| it.guest().is_some())
}

/// Adds to `comparison` the functions that gained or lost instructions. Measures all operations of the
/// baseline again.
///
/// # Errors
/// The baseline has no profiles, or they cannot be made.
pub fn explain_changes(
    comparison: &mut Comparison,
    baseline: &Baseline,
    context: &RunContext<'_>,
) -> Result<(), Failure> {
    let mut changed = comparison
        .rows
        .iter()
        .filter(|row| row.verdict == Verdict::Changed);
    if !changed.any(has_profile) {
        return Ok(());
    }
    if !baseline.has_profiles() {
        return Err(Failure::new("the baseline has no profiles")
            .help("'trapline baseline' makes one that has"));
    }
    let configs = comparison.to_explain(baseline);
    if configs.is_empty() {
        return Ok(());
    }
    let profiler = Profiler {
        context: *context,
        stacks: false,
        lines: false,
        boots: EXACT_BOOTS,
    };
    let counted = profiler.profile(&configs, baseline.operations().guest)?;
    comparison.explain(baseline, &counted.profiles);
    Ok(())
}
