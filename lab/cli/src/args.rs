//! The command line, defined once: parsing, help, completions and the man page
//! all come from here. Names of environments and operations are values that
//! clap knows, so that a mistyped one is answered with the nearest.

mod block;
mod boot;
mod cache;
mod compare;
mod export;
mod gate;
mod history;
mod irq;
mod kernel_build;
mod plan;
mod populate;
mod report;
mod scheduling;

pub use block::BlockArgs;
pub use boot::BootArgs;
pub use cache::{CacheArgs, CacheCommand, SnapshotArgs};
pub use compare::{CompareArgs, Rival};
pub use export::ExportArgs;
pub use gate::{BaselineArgs, BisectArgs, CheckArgs, GateFormat};
pub use history::HistoryArgs;
pub use irq::{Contradiction, IrqArgs};
pub use kernel_build::KernelBuildArgs;
pub use plan::{PlanArgs, PlanCommand};
pub use populate::{ways, PopulateArgs};
pub use report::ReportArgs;
pub use scheduling::SchedulingArgs;

use crate::seed;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::str::FromStr;
use trapline_abi::{Op, Workload};
use trapline_environments::CustomVmm;
use trapline_model::{cpus, names, EnvironmentId, Request};

/// What virtualization costs, to the instruction.
///
/// Runs the same code in every environment this machine offers - as a process,
/// in several virtual machines, and on a simulated machine whose clock counts
/// instructions - and shows side by side what each operation costs.
#[derive(Parser, Debug)]
#[command(name = "trapline", version, max_term_width = 80, after_help = EXIT_STATUS)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
    /// When to use colour; NO_COLOR is respected
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub color: Color,
}

const EXIT_STATUS: &str = "\
Exit status:
  0    done; what cannot be measured here was skipped, with its reason
  1    something that should have worked failed
  2    the command line was not understood
  3    two runs on the instruction clock gave different digits
  4    baseline, check, bisect, irq: what is wanted cannot be measured here
  5    irq: what --require asks for is not proven
  130  interrupted; finished boots are kept (143: ended by SIGTERM)";

/// What `trapline NAME WORD...` asks for.
#[cfg(test)]
pub(crate) fn command(name: &str, words: &[&str]) -> Result<Command, clap::Error> {
    let all = [&["trapline", name], words].concat();
    Ok(Cli::try_parse_from(all)?.command)
}

/// One command.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Examine this machine: what it offers, what disturbs figures, what mends it
    Doctor(DoctorArgs),
    /// List environments and workloads, and what keeps any from running here
    List(ListArgs),
    /// Measure, store, and show
    Run(RunArgs),
    /// Check a plan file, or print what one may hold
    Plan(PlanArgs),
    /// Measure how late interrupts are, at which stage, and judge it
    Irq(IrqArgs),
    /// Measure what it costs to give a guest memory
    Populate(PopulateArgs),
    /// Measure how long a disk takes for a request, and how many it serves
    Block(BlockArgs),
    /// Run a Linux in our VMM, with this terminal as its console
    Boot(BootArgs),
    /// Measure how long a kernel takes to build, by CPUs and where they are
    KernelBuild(KernelBuildArgs),
    /// Compare two contenders, operation by operation: changed, equivalent or unsure
    Compare(CompareArgs),
    /// Find where the figures of all runs shifted, and what changed there
    History(HistoryArgs),
    /// Show the tables of an earlier run again, from the store alone
    Show(ShowArgs),
    /// Make one page of HTML of an earlier run, from the store alone
    Report(ReportArgs),
    /// Write the raw samples of an earlier run to a file for other programs
    Export(ExportArgs),
    /// Write exact figures, to be checked against later
    Baseline(BaselineArgs),
    /// Measure again what a baseline holds, and tell what changed
    Check(CheckArgs),
    /// Find the commit that changed an exact figure
    Bisect(BisectArgs),
    /// Say where the instructions of one operation go, function by function
    Explain(ExplainArgs),
    /// Measure what the kernel itself charges for an exit, without any VMM
    Floor(FloorArgs),
    /// Look after what is kept between runs: kernels, snapshots of machines
    Cache(CacheArgs),
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
}

/// Of `trapline doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// How to print
    #[arg(long, value_enum, default_value_t = PlainFormat::Table)]
    pub format: PlainFormat,
    #[command(flatten)]
    pub simulated: SimulatedArgs,
}

/// Of `trapline list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// How to print
    #[arg(long, value_enum, default_value_t = PlainFormat::Table)]
    pub format: PlainFormat,
    #[command(flatten)]
    pub simulated: SimulatedArgs,
}

/// Of `trapline run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// A plan, which says what to measure in place of the options below; a run of it that
    /// was interrupted goes on where it stopped
    #[arg(value_name = "PLAN.toml", conflicts_with_all = ["environments", "workloads", "preset", "boots", "cpus", "seed"])]
    pub plan: Option<PathBuf>,
    /// Begin the plan anew even if a run of it was interrupted
    #[arg(long, requires = "plan")]
    pub anew: bool,
    /// Environments to measure in [default: all]
    #[arg(long = "env", value_name = "A,B", value_delimiter = ',', value_parser = environment_parser())]
    pub environments: Vec<EnvironmentId>,
    /// Workloads or single operations to measure, as `trapline list` names them [default: all
    /// but irq and populate]
    #[arg(long = "workload", value_name = "W,W/OP", value_delimiter = ',', value_parser = workload_parser(), hide_possible_values = true)]
    pub workloads: Vec<String>,
    #[command(flatten)]
    pub extent: ExtentArgs,
    /// Virtual CPUs of each guest; environments whose guests have one are skipped where
    /// it is to be another number
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(cpus::MOST)))]
    pub cpus: u32,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Draw the figures as bars below the tables, too
    #[arg(long, conflicts_with = "format")]
    pub plot: bool,
    #[command(flatten)]
    pub manner: MannerArgs,
}

/// How much is measured, and in which order.
#[derive(Args, Debug)]
pub struct ExtentArgs {
    /// How much to measure
    #[arg(long, value_enum, default_value_t = Preset::Quick)]
    pub preset: Preset,
    /// Boots of each wall-clock environment [default: the preset's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub boots: Option<u32>,
    /// Seed of the order of boots and of resampling [default: random, recorded with the run]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl ExtentArgs {
    /// A request for as much, of nobody yet.
    pub fn request(&self) -> Request {
        Request {
            preset: self.preset.into(),
            boots: self.boots,
            seed: self.seed.unwrap_or_else(seed::drawn),
            ..Request::default()
        }
    }
}

/// How a run is made, whatever it measures.
#[derive(Args, Debug)]
pub struct MannerArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub simulated: SimulatedArgs,
    /// Most time for one boot [default: many times what it usually takes]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: Option<u64>,
    /// What else is to be known of the run, for 'trapline history'; may be repeated
    #[arg(long = "fact", value_name = "NAME=VALUE", value_parser = fact)]
    pub facts: Vec<(String, String)>,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// Of `trapline show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    /// Number of the run [default: the latest]
    #[arg(long, value_name = "N")]
    pub run: Option<u32>,
    /// List the runs in the store instead
    #[arg(long, conflicts_with_all = ["run", "format", "plot"])]
    pub list: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Draw the figures as bars below the tables, too
    #[arg(long, conflicts_with = "format")]
    pub plot: bool,
}

/// Of `trapline explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// Environment on the instruction clock; a second one shows what differs there,
    /// the largest change first
    #[arg(value_name = "ENV", value_parser = environment_parser(), num_args = 1..=2, required = true)]
    pub environments: Vec<EnvironmentId>,
    /// Operation of basic, system, exits, boot or populate, or one of them whole
    #[arg(value_name = "WORKLOAD/OP", value_parser = workload_parser(), hide_possible_values = true)]
    pub operation: String,
    /// Draw the call stacks as a flame graph into this file, an SVG; of one operation
    /// in one environment
    #[arg(long, value_name = "FILE.svg")]
    pub flamegraph: Option<PathBuf>,
    /// Most time for one boot [default: 600 s]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: Option<u64>,
    /// How to print
    #[arg(long, value_enum, default_value_t = PlainFormat::Table)]
    pub format: PlainFormat,
    #[command(flatten)]
    pub simulated: SimulatedArgs,
}

/// Of `trapline floor`.
#[derive(Args, Debug)]
pub struct FloorArgs {
    /// How to print
    #[arg(long, value_enum, default_value_t = PlainFormat::Table)]
    pub format: PlainFormat,
    #[command(flatten)]
    pub simulated: SimulatedArgs,
}

/// Where raw samples are kept.
#[derive(Args, Debug)]
pub struct StoreArgs {
    /// File to keep raw samples in [default: trapline/trapline.db in $XDG_DATA_HOME]
    #[arg(long = "store", value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// What environments are made of where it is the user's to say: the Linux of the
/// simulated machine and how it gets there, a VMM, and how guests are scheduled.
#[derive(Args, Debug, Clone, Default)]
pub struct SimulatedArgs {
    /// Linux for the simulated machine [default: the distribution's, fetched once]
    #[arg(long, value_name = "FILE", requires = "modules")]
    pub kernel: Option<PathBuf>,
    /// Directory of its modules (lib/modules/VERSION)
    #[arg(long, value_name = "DIR", requires = "kernel")]
    pub modules: Option<PathBuf>,
    /// VMM for the environments custom and sim/custom: a command with {image},
    /// {memory} (MiB), {cpus} and {cmdline} where it has to name them
    #[arg(long, value_name = "COMMAND", value_parser = CustomVmm::from_str)]
    pub vmm: Option<CustomVmm>,
    #[command(flatten)]
    pub scheduling: SchedulingArgs,
    #[command(flatten)]
    pub snapshots: SnapshotArgs,
}

/// How to print a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for a terminal
    Table,
    /// One stable JSON object
    Json,
    /// One line a cell
    Csv,
    /// Tables for a page
    Markdown,
    /// JUnit XML: what was skipped, failed, or changed for the worse
    Junit,
    /// Bencher Metric Format: every figure with its interval
    Bencher,
}

/// How to print a list of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlainFormat {
    /// Text for a terminal
    Table,
    /// One JSON object
    Json,
}

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// About a minute
    Quick,
    /// More boots and samples, for figures to be quoted
    Full,
}

impl From<Preset> for trapline_model::Preset {
    fn from(preset: Preset) -> Self {
        match preset {
            Preset::Quick => Self::Quick,
            Preset::Full => Self::Full,
        }
    }
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal only
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

fn fact(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let pair = pair.map(|(name, value)| (name.to_owned(), value.to_owned()));
    pair.ok_or_else(|| "a name, '=' and a value are expected".to_owned())
}

fn environment_parser() -> impl TypedValueParser<Value = EnvironmentId> {
    let known = EnvironmentId::ALL.map(|id| PossibleValue::new(id.name()).help(id.what()));
    let names = Names {
        known: known.to_vec(),
        check: |name| names::environments(name).map(drop),
    };
    names.map(|name| EnvironmentId::from_name(&name).expect("the name was checked"))
}

fn workload_parser() -> impl TypedValueParser<Value = String> {
    let workloads = Workload::ALL.map(|w| PossibleValue::new(w.name()).help(w.question()));
    let operations = Op::ALL.map(|op| PossibleValue::new(names::path(op)).help(op.what()));
    Names {
        known: workloads.into_iter().chain(operations).collect(),
        check: |name| names::operations(name).map(drop),
    }
}

/// Takes names that completions know and the plan checks, and says which was
/// meant where one is mistyped.
#[derive(Clone)]
struct Names {
    known: Vec<PossibleValue>,
    check: fn(&str) -> Result<(), names::UnknownName>,
}

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        let name = value.to_string_lossy();
        match (self.check)(&name) {
            Ok(()) => Ok(name.into_owned()),
            Err(unknown) => Err(unknown_value(command, argument, unknown)),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.known.iter().cloned()))
    }
}

fn unknown_value(
    command: &clap::Command,
    argument: Option<&clap::Arg>,
    unknown: names::UnknownName,
) -> clap::Error {
    let mut error = clap::Error::new(ErrorKind::InvalidValue).with_cmd(command);
    let argument = argument.map(ToString::to_string).unwrap_or_default();
    error.insert(ContextKind::InvalidArg, ContextValue::String(argument));
    error.insert(
        ContextKind::InvalidValue,
        ContextValue::String(unknown.name),
    );
    match unknown.hint {
        names::Hint::Nearest(name) => {
            error.insert(ContextKind::SuggestedValue, ContextValue::String(name))
        }
        names::Hint::Known(all) => {
            error.insert(ContextKind::ValidValue, ContextValue::Strings(all))
        }
    };
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn lists_of_names_are_taken_apart_and_checked() {
        let cli = Cli::try_parse_from([
            "trapline",
            "run",
            "--env",
            "sim,sim/kvm",
            "--workload",
            "basic,exits/port-out",
        ])
        .unwrap();
        let Command::Run(run) = cli.command else {
            panic!("run was parsed as another command");
        };
        assert_eq!(
            run.environments,
            [EnvironmentId::Sim, EnvironmentId::SimKvm]
        );
        assert_eq!(run.workloads, ["basic", "exits/port-out"]);
        for bad in [
            ["--env", "sim,kmv"],
            ["--workload", "exits/port-oot"],
            ["--boots", "0"],
            ["--sched", "fair"],
            ["--cap", "0"],
            ["--cap", "101"],
            ["--fact", "commit"],
        ] {
            let words = ["trapline", "run"].into_iter().chain(bad);
            assert!(Cli::try_parse_from(words).is_err(), "{bad:?} was accepted");
        }
    }
}
