//! `trapline baseline` and `trapline check`: writes exact figures, and compares with them. Both store
//! their observations.

use crate::args::{BaselineArgs, CheckArgs, EnvironmentOptions, GateFormat, RunOptions};
use crate::layouts::in_layouts;
use crate::session::{open_store, Session};
use crate::terminal;
use std::path::Path;
use trapline_abi::{Op, OpSet, Workload};
use trapline_gate::{compare, Baseline, BaselineError, Comparison, Outcome};
use trapline_host::files::{read_text, TEXT_LIMIT};
use trapline_model::{request, Aim, Config, EnvironmentId, Operations, Scheduling, EXACT_BOOTS};
use trapline_report::check as formats;
use trapline_runner::counters::Counters;
use trapline_runner::exact::{explain_changes, measure, require_exact, require_figures};
use trapline_runner::profiles::Profiler;
use trapline_runner::{Failure, Status};
use trapline_store::Store;

/// Measures and writes a baseline to standard output.
///
/// # Errors
/// An environment has no exact figures or cannot be measured, or an operation failed: a baseline is
/// complete.
pub fn baseline(args: &BaselineArgs) -> Result<(), Failure> {
    let operations = match args.workloads.as_slice() {
        [] => default_operations(&args.environments).into(),
        chosen => operations(chosen),
    };
    require_exact(&args.environments, &operations)?;
    let (mut store, session) = open(&args.run_options, &args.environment_options)?;
    let context = session.context();
    let configs = operations.configs(&args.environments);
    let configs = in_layouts(&configs, args.layout_options.layouts, &context)?;
    let counters = Counters::find(context.inventory, &configs, false);
    let counters = counters
        .inspect_err(|error| context.note(&format!("the baseline has no profiles: {error}")))
        .ok();
    let run = measure(
        &mut store,
        Aim::Baseline,
        &configs,
        &operations,
        counters.as_ref(),
        &context,
    )?;
    let summary = trapline_stats::summarise(&run.observations);
    require_figures(&summary, &configs)?;
    let mut baseline = Baseline::new(&summary, &operations, env!("CARGO_PKG_VERSION"));
    let complete = baseline.require_figures();
    complete.map_err(|error| Failure::new(format!("no baseline: {error}")))?;
    for (environment, kept) in &baseline.environments {
        if !kept.skipped.is_empty() {
            let operations: Vec<_> = kept.skipped.keys().map(String::as_str).collect();
            let operations = operations.join(", ");
            context.note(&format!("skipped in {environment}: {operations}"));
        }
    }
    if let Some(counters) = &counters {
        let profiler = Profiler {
            context,
            stacks: false,
            lines: false,
            boots: EXACT_BOOTS,
        };
        baseline.add_profiles(&profiler.profiles(&run.observations, counters)?);
    }
    terminal::print_text(&baseline.text())
}

fn open(
    options: &RunOptions,
    environments: &EnvironmentOptions,
) -> Result<(Store, Session), Failure> {
    let store = open_store(options)?;
    let inventory = environments.inventory()?;
    Ok((store, Session::open(options, inventory)?))
}

/// Measures the figures of a baseline and prints the changes.
///
/// # Errors
/// The baseline cannot be used, or one of its environments cannot be measured.
pub fn check(args: &CheckArgs) -> Result<Status, Failure> {
    let baseline = read(&args.baseline)?;
    let configs = baseline.configs();
    let configs = configs.map_err(|error| unusable(&args.baseline, &error))?;
    let configs: Vec<Config> = configs.into_iter().collect();
    let (mut store, session) = open(&args.run_options, &args.environment_options)?;
    let context = session.context();
    require_same_scheduling(&baseline, context.inventory.scheduling())?;
    let operations = baseline.operations();
    let aim = Aim::Check(args.baseline.display().to_string());
    let run = measure(&mut store, aim, &configs, &operations, None, &context)?;
    let summary = trapline_stats::summarise(&run.observations);
    let mut comparison = compare(&baseline, &summary, &args.tolerances.tolerances());
    let explained = explain_changes(&mut comparison, &baseline, &context);
    if let Err(failure) = &explained {
        let note = "the functions that gained or lost are unknown";
        comparison
            .notes
            .push(format!("{note}: {}", failure.one_line()));
    }
    print(&comparison, args.format)?;
    let is_undetermined = |failure: Failure| failure.status == Status::Undetermined;
    Ok(match comparison.outcome() {
        _ if explained.is_err_and(is_undetermined) => Status::Undetermined,
        Outcome::Same => Status::Done,
        Outcome::Changed => Status::Failed,
        Outcome::Undetermined => Status::Undetermined,
    })
}

/// # Errors
/// The baseline was measured with other scheduling options.
fn require_same_scheduling(baseline: &Baseline, now: Scheduling) -> Result<(), Failure> {
    let differs = |(name, then)| (then != now).then_some((name, then));
    let Some((name, then)) = baseline.scheduling().find_map(differs) else {
        return Ok(());
    };
    let options = |scheduling| match scheduling {
        Scheduling::DEFAULT => "without --sched, --cap and --weight".to_owned(),
        scheduling => format!("with {scheduling}"),
    };
    Err(Failure::usage(
        format!(
            "the baseline of {name} was measured {}, not {}",
            options(then),
            options(now)
        ),
        "check it with the same options, or make another with 'trapline baseline'",
    ))
}

/// Returns the union of these workloads and operations. The parser accepts known names only.
pub fn operations(names: &[String]) -> Operations {
    let named = names
        .iter()
        .filter_map(|name| name.parse::<Operations>().ok());
    named.collect()
}

/// Returns the operations of a search in which none is named.
pub fn default_exits(environments: &[EnvironmentId]) -> OpSet {
    Workload::Exits.set() & default_operations(environments)
}

/// Returns the operations of the processors of some environments whose figures depend only on the code they execute. Those of
/// boot depend on every byte of an initramfs, and that of timer-wake on the ticks of the machine's own kernel.
fn default_operations(environments: &[EnvironmentId]) -> OpSet {
    let sets = environments.iter();
    let sets = sets.map(|id| id.stack().machine.instruction_set());
    let all = request::usual_operations() - Workload::Boot.set() - Op::TimerWake;
    let exists = |op: &Op| sets.clone().any(|set| op.exists_on(set));
    all.iter().filter(exists).collect()
}

fn read(file: &Path) -> Result<Baseline, Failure> {
    let text = read_text(file, TEXT_LIMIT).map_err(|error| {
        Failure::usage(
            format!("cannot read the baseline {}: {error}", file.display()),
            "make one with 'trapline baseline > FILE'",
        )
    })?;
    Baseline::parse(&text).map_err(|error| unusable(file, &error))
}

fn unusable(file: &Path, error: &BaselineError) -> Failure {
    let message = format!(
        "the baseline {} cannot be used: {}",
        file.display(),
        terminal::one_line(error.to_string())
    );
    Failure::usage(message, error.remedy())
}

fn print(comparison: &Comparison, format: GateFormat) -> Result<(), Failure> {
    let text = match format {
        GateFormat::Table => formats::table(comparison),
        GateFormat::Markdown => formats::markdown(comparison),
        GateFormat::Junit => {
            formats::junit(comparison).map_err(|error| Failure::from_error(&error))?
        }
        GateFormat::Bencher => formats::bencher(comparison),
        GateFormat::Json => formats::json(comparison),
    };
    terminal::print_text(&text)
}
