//! Command line: the definition for parsing, help, completions and the manual page.

mod block;
mod boot;
mod cache;
mod compare;
mod environment;
mod export;
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

pub use block::BlockArgs;
pub use boot::BootArgs;
pub use cache::{CacheArgs, CacheCommand};
pub use compare::{CompareArgs, Side};
pub use environment::EnvironmentOptions;
pub use export::ExportArgs;
pub use format::{Color, Format, PlainFormat, Preset, ProfileFormat, SymbolSource};
pub use gate::{BaselineArgs, BisectArgs, CheckArgs, GateFormat};
pub use history::{HistoryArgs, HistoryFormat};
pub use inspect::{ExplainArgs, InspectArgs, ShowArgs};
pub use irq::{Contradiction, IrqArgs};
pub use kernel_build::KernelBuildArgs;
pub use net::{path, NetArgs};
pub use plan::{PlanArgs, PlanCommand};
pub use populate::{populate_methods, PopulateArgs};
pub use report::ReportArgs;
pub use run::{ExactOptions, OutputOptions, RunArgs, RunOptions, SizeOptions, StoreOptions};

use clap::builder::PossibleValue;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use names::{config_parser, environment_parser, workload_parser};
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
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub color: Color,
}

impl Cli {
    /// Parses the command line of this process.
    ///
    /// # Errors
    /// It is invalid, or asks for help or the version.
    pub fn of_process() -> Result<Self, clap::Error> {
        Self::from_arg_matches(&with_short_help(Self::command()).try_get_matches()?)
    }
}

/// Lists the values of options by name only; manual pages explain them.
fn with_short_help(command: clap::Command) -> clap::Command {
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
        .mut_subcommands(with_short_help)
}

/// Parses `trapline NAME WORD...`.
#[cfg(test)]
pub(crate) fn command(name: &str, words: &[&str]) -> Result<Command, clap::Error> {
    let all = [&["trapline", name], words].concat();
    Ok(Cli::try_parse_from(all)?.command)
}

/// A command.
#[derive(Subcommand, Debug)]
#[expect(clippy::large_enum_variant, reason = "one value per process")]
pub enum Command {
    /// Check this host: what can be measured, what adds noise, and how to fix it
    Doctor(InspectArgs),
    /// List environments and workloads, and why any are unavailable
    List(InspectArgs),
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
    Floor(InspectArgs),
    /// List or prune cached kernels and snapshots
    Cache(CacheArgs),
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

    #[test]
    fn help_is_short_and_has_the_values_of_options() {
        let words = ["trapline", "irq", "--help"];
        let help = with_short_help(Cli::command()).try_get_matches_from(words);
        let help = help.unwrap_err().to_string();
        assert!(
            help.contains("Source of the interrupts: own, host, both"),
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
