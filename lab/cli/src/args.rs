//! Command line: the definition for parsing, help, completions and the manual page.

mod block;
mod boot;
mod cache;
mod compare;
mod engine;
mod environment;
mod export;
mod fleet;
mod format;
mod gate;
mod history;
mod inspect;
mod irq;
mod kernel_build;
mod names;
mod net;
pub mod pages;
mod plan;
mod populate;
mod report;
mod run;
mod settings;
mod store;

pub use block::BlockArgs;
pub use boot::BootArgs;
pub use cache::{CacheArgs, CacheCommand};
pub use compare::{CompareArgs, FailOn, Side};
pub use engine::{Engine, EngineOptions};
pub use environment::EnvironmentOptions;
pub use export::ExportArgs;
pub use fleet::{FleetArgs, FleetCommand};
pub use format::{Color, Format, PlainFormat, Preset, ProfileFormat, SymbolSource};
pub use gate::{BaselineArgs, BisectArgs, CheckArgs, GateFormat};
pub use history::{HistoryArgs, HistoryFormat};
pub use inspect::{DoctorArgs, ExplainArgs, FloorArgs, ListArgs, ShowArgs};
pub use irq::{Contradiction, IrqArgs};
pub use kernel_build::KernelBuildArgs;
pub use names::selected;
pub use net::NetArgs;
pub use plan::{PlanArgs, PlanCommand};
pub use populate::{populate_methods, PopulateArgs};
pub use report::ReportArgs;
pub use run::{
    ExactOptions, LayoutOptions, OutputOptions, RunArgs, RunOptions, SizeOptions, StoreOptions,
};
pub use store::{RunOfFile, StoreArgs, StoreCommand};

use clap::builder::PossibleValue;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use names::{
    config_parser, environment_parser, exact_workload_parser, stored_environment_parser,
    stored_workload_parser, value_parser, workload_parser,
};
use pages::after_help;

/// Measures the cost of virtualization, to the instruction.
///
/// Runs the same code in every environment of this host - as a process, in virtual machines, and on
/// simulated machines whose clock counts instructions - and compares the cost of each operation.
#[derive(Parser, Debug)]
#[command(name = "trapline", version, max_term_width = 80, after_help = after_help("trapline"))]
pub struct Cli {
    /// Command
    #[command(subcommand)]
    pub command: Command,
    /// Use colour; NO_COLOR is respected
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN", hide_short_help = true)]
    pub color: Color,
}

impl Cli {
    /// Parses the command line of this process.
    ///
    /// # Errors
    /// It is invalid, or asks for help or the version.
    pub fn of_process() -> Result<Self, clap::Error> {
        let asks_for_all = std::env::args_os().any(|word| word == "--help");
        let command = with_help(with_short_values(Self::command()), asks_for_all);
        Self::from_arg_matches(&command.try_get_matches()?)
    }
}

/// Has help list all options, or without `all` the basic ones, those without `hide_short_help`. Both have the same layout,
/// unlike the long form of clap, which needs three lines for an option.
fn with_help(command: clap::Command, all: bool) -> clap::Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|option| {
        let is_further = option.is_hide_short_help_set();
        option.hide_short_help(false).hide(is_further && !all)
    });
    let command = if all {
        command
    } else {
        command.after_help(pages::after_short_help(&name))
    };
    command.mut_subcommands(|command| with_help(command, all))
}

/// Lists the values of options by name only; manual pages explain them.
fn with_short_values(command: clap::Command) -> clap::Command {
    command
        .mut_args(|option| {
            let values = option.get_possible_values();
            if option.is_hide_possible_values_set()
                || values.iter().all(|it| it.get_help().is_none())
            {
                return option;
            }
            let names: Vec<&str> = values.iter().map(PossibleValue::get_name).collect();
            let help = option.get_help().cloned().unwrap_or_default().to_string();
            let (text, default) = help.split_at(help.find(" [default").unwrap_or(help.len()));
            let help = format!("{text}: {}{default}", names.join(", "));
            option.help(help).hide_possible_values(true)
        })
        .mut_subcommands(with_short_values)
}

/// Parses `trapline NAME WORD...`.
#[cfg(test)]
pub(crate) fn command(name: &str, words: &[&str]) -> Result<Command, clap::Error> {
    let all = [&["trapline", name], words].concat();
    Ok(Cli::try_parse_from(all)?.command)
}

/// A command.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Check this host: what can be measured, what adds noise, and how to fix it
    Doctor(DoctorArgs),
    /// List environments, workloads and operations, and why any are unavailable
    List(ListArgs),
    /// Measure operations in environments, and print the results
    Run(RunArgs),
    /// Check a plan file, or print the schema of plan files
    Plan(PlanArgs),
    /// Measure interrupt lateness by stage, and check a requirement
    Irq(IrqArgs),
    /// Measure the cost of giving memory to a guest
    Populate(PopulateArgs),
    /// Measure latency and throughput of a disk
    Block(BlockArgs),
    /// Boot Linux in trapline-vmm, with this terminal as its console
    Boot(BootArgs),
    /// Measure the time to build a kernel, by number and placement of CPUs
    KernelBuild(KernelBuildArgs),
    /// Measure the rate of packets through a switch or a network of this host, and loss and latency
    Net(NetArgs),
    /// Compare two configurations: each operation is changed, equivalent or unsure
    Compare(CompareArgs),
    /// Find shifts in the figures of all stored runs, and what changed with them
    History(HistoryArgs),
    /// Print the tables of a stored run
    Show(ShowArgs),
    /// Write a stored run as an HTML page
    Report(ReportArgs),
    /// Write the raw samples of a stored run as Parquet, CSV or JSON
    Export(ExportArgs),
    /// Write exact figures, for later checks
    Baseline(BaselineArgs),
    /// Measure the figures of a baseline again, and print the changes
    Check(CheckArgs),
    /// Find the commit that changed an exact figure
    Bisect(BisectArgs),
    /// Print the instructions of an operation by function
    Explain(ExplainArgs),
    /// Measure the cost of an exit in the kernel, without a VMM
    Floor(FloorArgs),
    /// List or prune cached kernels and snapshots
    Cache(CacheArgs),
    /// Unite runs of several stores
    Store(StoreArgs),
    /// Execute a plan on many machines
    Fleet(FleetArgs),
    /// Print completions for a shell: of commands, options, environments, operations and run numbers
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of a command
    Man {
        /// Command [default: the program itself]
        command: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_model::EnvironmentId;

    fn help(words: &[&str], all: bool) -> String {
        let command = with_help(with_short_values(Cli::command()), all);
        let shown = command.try_get_matches_from(words);
        shown.unwrap_err().to_string()
    }

    /// Every command at 80x24; `run` and its relatives, the largest ones, on two such screens.
    #[test]
    fn short_help_has_the_basic_options() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let short = help(&["trapline", name, "-h"], false);
            assert!(short.lines().count() <= 46, "{short}");
            assert!(!short.contains("--weight"), "{short}");
        }
        let [short, long] = [false, true].map(|all| help(&["trapline", "run", "-h"], all));
        for (option, is_basic) in [("--env", true), ("--peer", false), ("--quiet", true)] {
            assert_eq!(short.contains(option), is_basic, "{short}");
            assert!(long.contains(option), "{long}");
        }
        assert!(short.contains("'trapline run --help'"), "{short}");
    }

    #[test]
    fn commands_have_the_options_that_concern_them() {
        let has = |name: &str, option: &str| {
            let long = help(&["trapline", name, "--help"], true);
            long.contains(&format!("--{option}"))
        };
        for (option, commands) in [
            ("weight", &["run", "check"][..]),
            ("peer", &["run", "check", "explain"]),
            ("kernel", &["run", "check", "explain", "list", "floor"]),
            ("vmm", &["run", "check", "explain", "list"]),
        ] {
            for name in ["run", "check", "explain", "list", "floor", "doctor"] {
                assert_eq!(
                    has(name, option),
                    commands.contains(&name),
                    "{name} {option}"
                );
            }
        }
    }

    #[test]
    fn help_is_short_and_has_the_values_of_options() {
        let words = ["trapline", "irq", "--help"];
        let help = help(&words, true);
        assert!(
            help.contains("Source of the interrupts: own, count, periodic"),
            "{help}"
        );
        assert!(help.lines().count() < 110, "{help}");
    }

    #[test]
    fn the_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn lists_of_names_are_split_and_checked() {
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
            [EnvironmentId::SIM, EnvironmentId::SIM_KVM]
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
