//! `trapline explain`: prints the instructions of operations by function, in one configuration or as
//! differences between two.

mod flame;
mod page;
mod show;
mod stacks;

use crate::args::{ExplainArgs, ProfileFormat, SymbolSource};
use crate::failure::{Failure, Status};
use crate::output_file::OutputFile;
use crate::session::Session;
use crate::terminal;
use clap::ValueEnum;
use page::{Explained, Page};
use std::collections::BTreeSet;
use trapline_abi::arch::NATIVE;
use trapline_abi::{Op, OpSet, Workload};
use trapline_environments::debug_files::DebugFiles;
use trapline_environments::Settings;
use trapline_model::{names, Config, EnvironmentId, Feature, Outcome, EXACT_BOOTS};
use trapline_profile::{text, Function, Profile};
use trapline_runner::profiles::{has_profile, ProfiledRun, Profiler};

/// Prints the profiles of operations, or the differences of two profiles each.
///
/// # Errors
/// They cannot be measured, or two runs disagree.
pub fn explain(args: &ExplainArgs) -> Result<Status, Failure> {
    let operations = explainable(args)?;
    check_stacks(args, &operations)?;
    check_lines(args)?;
    let flamegraph = args.flamegraph.as_deref();
    let open = |path| OutputFile::open("--flamegraph", path);
    let flamegraph = flamegraph.map(open).transpose()?;
    let options = args.environment_options();
    let inventory = options.inventory_with(|settings| with_debug_files(settings, args))?;
    let inventory = inventory.with_overrides(&args.configs)?;
    let session = Session::without_store(inventory, args.timeout, false)?;
    let profiler = Profiler {
        context: session.context(),
        stacks: stack_option(args).is_some(),
        lines: args.lines,
        boots: args.exact_options.exact_boots.unwrap_or(EXACT_BOOTS),
    };
    let mut counted = profiler.profile(&args.configs, OpSet::of(&operations))?;
    if args.lines {
        let shown = |profile: &Profile| shown(profile, args.format);
        profiler.add_source_lines(&mut counted.profiles, shown)?;
    }
    let page = |op: &Op| page(&counted, *op, &args.configs);
    let pages: Vec<Page<'_>> = match operations.as_slice() {
        [op] => vec![page(op)?],
        // Operations of a workload that cannot be measured are skipped.
        all => all.iter().filter_map(|op| or_note(page(op))).collect(),
    };
    if let (Some(file), [page]) = (flamegraph, pages.as_slice()) {
        flame::draw(file, page)?;
    }
    if args.symbols == SymbolSource::Installed {
        pages.iter().for_each(note_nameless);
        pages.iter().for_each(note_without_lines);
    }
    show::print(&pages, operations.len() == 1, args.format)?;
    Ok(Status::Done)
}

/// Returns the functions of a profile that are printed.
fn shown(profile: &Profile, format: ProfileFormat) -> BTreeSet<Function> {
    let listed = match format {
        ProfileFormat::Table => text::MAX_FUNCTIONS,
        _ => usize::MAX,
    };
    let items = profile.items.iter().take(listed).map(|item| &item.function);
    let frames = profile.stacks.iter().flat_map(|stack| &stack.frames);
    items.chain(frames).cloned().collect()
}

fn with_debug_files(mut settings: Settings, args: &ExplainArgs) -> Settings {
    let named = args.debug_dir.clone();
    let defaults = DebugFiles::default();
    settings.debug = DebugFiles {
        directories: if named.is_empty() {
            defaults.directories
        } else {
            named
        },
        fetch: args.symbols == SymbolSource::Fetch,
    };
    settings
}

/// Smallest share of instructions without a function's name that is reported.
const NAMELESS: f64 = 0.01;

fn note_nameless(page: &Page<'_>) {
    for Explained { config, profile } in page.explained() {
        let nameless = profile
            .items
            .iter()
            .filter(|item| item.function.is_nameless());
        let share = nameless.map(|item| item.insn).sum::<f64>() / profile.total;
        if share >= NAMELESS {
            terminal::print_error(&format!(
                "note: {:.1}% of {} in {config} are functions without a name: --symbols fetch \
                 downloads debug symbols, --debug-dir names a directory with them",
                share * 100.0,
                names::path(page.op),
            ));
        }
    }
}

/// Reports a profile without a single source line.
fn note_without_lines(page: &Page<'_>) {
    for explained in page.explained() {
        let sources = explained.profile.sources.as_ref();
        if sources.is_some_and(|sources| sources.functions.is_empty()) {
            terminal::print_error(&format!(
                "note: there is no debug information of {}: --symbols fetch downloads it, --debug-dir names \
                 a directory with it",
                page.title(explained),
            ));
        }
    }
}

/// Returns the option that asks for call stacks, if one does.
fn stack_option(args: &ExplainArgs) -> Option<String> {
    let format = args.format.to_possible_value();
    let format = format.filter(|_| args.format.has_stacks());
    match args.flamegraph {
        Some(_) => Some("--flamegraph".to_owned()),
        None => format.map(|format| format!("--format {}", format.get_name())),
    }
}

/// # Errors
/// An option asks for call stacks of more than one operation, or of code that has none.
fn check_stacks(args: &ExplainArgs, operations: &[Op]) -> Result<(), Failure> {
    let Some(option) = stack_option(args) else {
        return Ok(());
    };
    let [op] = operations else {
        return Err(Failure::usage(
            format!("{option} draws one operation"),
            format!("name one, such as: trapline explain sim/kvm exits/port-out {option}"),
        ));
    };
    if op.workload() == Workload::Boot {
        return Err(Failure::usage(
            format!("{option} is not supported by workload boot"),
            "leave it out to see a start by stage, component and function",
        ));
    }
    let refused = |id: EnvironmentId| Some((id, id.why_not(Feature::Stacks)?));
    match args.environments().find_map(refused) {
        None => Ok(()),
        Some((environment, why)) => Err(Failure::usage(
            format!("{option} is not supported by {environment}: {why}"),
            "leave it out to see component and function",
        )),
    }
}

/// # Errors
/// Source lines are requested in a format that has no place for them.
fn check_lines(args: &ExplainArgs) -> Result<(), Failure> {
    let format = match args.format {
        ProfileFormat::Folded | ProfileFormat::PerfScript => args.format.to_possible_value(),
        _ => None,
    };
    match format.filter(|_| args.lines) {
        None => Ok(()),
        Some(format) => Err(Failure::usage(
            format!("--lines is not supported by --format {}", format.get_name()),
            "use --format table, json or speedscope",
        )),
    }
}

/// Remedy for environments without profiles.
const COUNTED: &str = "instructions are counted in sim, sim-vmx, sim/ and sim-vmx/, except \
                       with a Linux guest";

/// Returns the operations that have profiles.
///
/// # Errors
/// There is none, or an environment does not support profiles.
fn explainable(args: &ExplainArgs) -> Result<Vec<Op>, Failure> {
    let refused = |id: EnvironmentId| Some((id, id.why_not(Feature::Profiles)?));
    if let Some((environment, why)) = args.environments().find_map(refused) {
        let message = format!("explain is not supported by {environment}: {why}");
        return Err(Failure::usage(message, COUNTED));
    }
    let clocks = args.environments().map(|id| id.clock());
    if clocks
        .clone()
        .any(|clock| Some(clock) != clocks.clone().next())
    {
        return Err(Failure::usage(
            "instructions of different machines cannot be compared",
            "explain each by itself, and compare ratios to their bare rows",
        ));
    }
    // The parser accepts known names only.
    let chosen = names::operations(&args.operation).unwrap_or_default();
    let mut sets = args
        .environments()
        .map(|id| id.stack().machine.instruction_set());
    let set = sets.next().unwrap_or(NATIVE);
    let exists = |op: &Op| chosen.len() == 1 || op.exists_on(set);
    let operations = chosen.iter().filter(|op| has_profile(*op));
    let operations: Vec<_> = operations.filter(exists).collect();
    check_stages(args, &operations)?;
    if operations.is_empty() {
        return Err(Failure::usage(
            format!("explain is not supported by {}", args.operation),
            "name an operation of basic, system, exits, boot, populate, block, files or net, such as \
             exits/port-out, or one of these workloads; timer-wake has no batches, concurrent \
             requests to a disk have no instructions of their own, and a rate is no number of \
             instructions",
        ));
    }
    Ok(operations)
}

/// # Errors
/// The operations have stages, which an environment without detailed profiles does not have.
fn check_stages(args: &ExplainArgs, operations: &[Op]) -> Result<(), Failure> {
    let have_stages = operations.iter().any(|op| op.workload() == Workload::Boot);
    let refused = |id: EnvironmentId| Some((id, id.why_not(Feature::DetailedProfiles)?));
    match args.environments().find_map(refused) {
        Some((environment, why)) if have_stages => Err(Failure::usage(
            format!("explain boot is not supported by {environment}: {why}"),
            "use sim/linux, sim/kvm or sim/qemu-kvm",
        )),
        _ => Ok(()),
    }
}

/// Returns the profiles of `op` in one configuration or two.
fn page<'a>(counted: &'a ProfiledRun, op: Op, configs: &[Config]) -> Result<Page<'a>, Failure> {
    let explained = |config: &Config| -> Result<Explained<'a>, Failure> {
        let profile = counted.profiles.get(&(config.clone(), op));
        Ok(Explained {
            config: config.clone(),
            profile: profile.ok_or_else(|| unmeasured(counted, op, config))?,
        })
    };
    Ok(Page {
        op,
        first: explained(&configs[0])?,
        second: configs.get(1).map(explained).transpose()?,
    })
}

fn unmeasured(counted: &ProfiledRun, op: Op, config: &Config) -> Failure {
    let mut runs = counted.observations.iter();
    let run = runs.find(|run| run.config == *config);
    let mut operations = run.iter().flat_map(|run| &run.operations);
    let outcome = operations.find(|o| o.op == op).map(|o| &o.outcome);
    let reason = match outcome {
        Some(Outcome::Skipped(reason) | Outcome::Failed(reason)) => reason,
        _ => "the guest reported no result",
    };
    Failure::new(format!(
        "{} is not measured in {config}: {reason}",
        names::path(op)
    ))
}

fn or_note(page: Result<Page<'_>, Failure>) -> Option<Page<'_>> {
    page.inspect_err(|failure| terminal::print_error(&format!("note: {failure}")))
        .ok()
}
