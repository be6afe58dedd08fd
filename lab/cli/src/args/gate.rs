//! Arguments of `baseline`, `check` and `bisect`.

use super::pages::after_help;
use super::{
    environment_parser, exact_workload_parser, EnvironmentOptions, LayoutOptions, RunOptions,
};
use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trapline_gate::{tolerance, Tolerance, Tolerances};
use trapline_model::{EnvironmentId, Operations};

/// Arguments of `trapline baseline`.
#[derive(Args, Debug)]
#[command(after_help = after_help("baseline"))]
pub struct BaselineArgs {
    /// Environments to measure, on the instruction clock
    #[arg(long = "env", value_name = "A,B", value_delimiter = ',', value_parser = environment_parser(), hide_possible_values = true,
          default_values = ["sim", "sim/kvm"], hide_default_value = false)]
    pub environments: Vec<EnvironmentId>,
    /// Workloads or operations to measure [default: all but boot and exits/timer-wake]
    #[arg(long = "workload", value_name = "W,W/OP", value_delimiter = ',', value_parser = exact_workload_parser(), hide_possible_values = true)]
    pub workloads: Vec<String>,
    #[command(flatten)]
    pub layout_options: LayoutOptions,
    #[command(flatten)]
    pub environment_options: EnvironmentOptions,
    #[command(flatten)]
    pub run_options: RunOptions,
}

/// Arguments of `trapline check`.
#[derive(Args, Debug)]
#[command(after_help = after_help("check"))]
pub struct CheckArgs {
    /// Output of 'trapline baseline'
    #[arg(long, value_name = "FILE")]
    pub baseline: PathBuf,
    #[command(flatten)]
    pub tolerances: ToleranceArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = GateFormat::Table)]
    pub format: GateFormat,
    #[command(flatten)]
    pub environment_options: EnvironmentOptions,
    #[command(flatten)]
    pub run_options: RunOptions,
}

/// Arguments of `trapline bisect`.
#[derive(Args, Debug)]
#[command(after_help = after_help("bisect"), override_usage = BISECT_USAGE)]
pub struct BisectArgs {
    /// Commit before the change
    #[arg(long, value_name = "REV")]
    pub good: String,
    /// Later commit, with the change
    #[arg(long, value_name = "REV")]
    pub bad: String,
    /// Shell command that builds the measured programs, run in the top directory
    #[arg(long, value_name = "CMD")]
    pub build: String,
    /// Workloads or operations to compare [default: exits without timer-wake]
    #[arg(long = "workload", value_name = "W,W/OP", value_delimiter = ',', value_parser = exact_workload_parser(), hide_possible_values = true)]
    pub workloads: Vec<String>,
    /// Environments to compare, on the instruction clock [default: sim/kvm; with --vmm sim/custom]
    #[arg(long = "env", value_name = "A,B", value_delimiter = ',', value_parser = environment_parser(), hide_possible_values = true)]
    pub environments: Vec<EnvironmentId>,
    /// Repository; commits are checked out into a temporary worktree
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub repo: PathBuf,
    /// Directory of the built parts, relative to the top directory [default: target/dist; for custom VMMs
    /// the parts of this program]
    #[arg(long, value_name = "DIR")]
    pub parts: Option<PathBuf>,
    #[command(flatten)]
    pub tolerances: ToleranceArgs,
    #[command(flatten)]
    pub environment_options: EnvironmentOptions,
    #[command(flatten)]
    pub run_options: RunOptions,
}

/// Usage with the required options only.
const BISECT_USAGE: &str = "trapline bisect [OPTIONS] --good <REV> --bad <REV> --build <CMD>";

/// Tolerances of figures.
#[derive(Args, Debug)]
pub struct ToleranceArgs {
    /// Tolerance of operations or workloads, in their unit or percent, like exits/port-out=2; the last
    /// match applies [default: boot=2%, others 0]
    #[arg(long = "tolerance", value_name = "OP=N|N%", value_parser = tolerance_parser())]
    pub chosen: Vec<(Operations, Tolerance)>,
}

impl ToleranceArgs {
    /// Returns the defaults with these changes.
    pub fn tolerances(&self) -> Tolerances {
        let mut tolerances = Tolerances::default();
        for (operations, tolerance) in &self.chosen {
            tolerances.add(operations.clone(), *tolerance);
        }
        tolerances
    }
}

fn tolerance_parser() -> impl TypedValueParser<Value = (Operations, Tolerance)> {
    clap::builder::StringValueParser::new().try_map(|words| tolerance::parse(&words))
}

/// Output format what changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GateFormat {
    /// Text for a terminal
    Table,
    /// Comment for a pull request
    Markdown,
    /// JUnit XML
    Junit,
    /// Bencher Metric Format: every measured figure
    Bencher,
    /// One JSON object
    Json,
}
