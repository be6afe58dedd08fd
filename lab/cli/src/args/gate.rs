//! The arguments of the exact gate: `baseline`, `check` and `bisect`.

use super::{environment_parser, workload_parser, MannerArgs};
use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trapline_abi::OpSet;
use trapline_gate::{tolerance, Tolerance, Tolerances};
use trapline_model::EnvironmentId;

/// Of `trapline baseline`.
#[derive(Args, Debug)]
#[command(after_help = BASELINE_STATUS)]
pub struct BaselineArgs {
    /// Environments to keep figures of; only those of the instruction clock have
    /// figures that are the same twice
    #[arg(long = "env", value_name = "A,B", value_delimiter = ',', value_parser = environment_parser(),
          default_values = ["sim", "sim/kvm"], hide_default_value = false)]
    pub environments: Vec<EnvironmentId>,
    /// Workloads or single operations to keep [default: all but boot and exits/timer-wake]
    #[arg(long = "workload", value_name = "W,W/OP", value_delimiter = ',', value_parser = workload_parser(), hide_possible_values = true)]
    pub workloads: Vec<String>,
    #[command(flatten)]
    pub manner: MannerArgs,
}

const BASELINE_STATUS: &str = "\
The baseline goes to standard output. Beside the figures it holds their ledgers,
by which 'trapline check' names functions; where QEMU cannot load the plugin that
counts, a note says so and figures alone are kept.

Exit status:
  0  done
  1  an operation that should have been measured failed
  2  the command line was not understood
  3  two runs gave different digits
  4  an environment cannot be measured here";

/// Of `trapline check`.
#[derive(Args, Debug)]
#[command(after_help = CHECK_STATUS)]
pub struct CheckArgs {
    /// What 'trapline baseline' wrote
    #[arg(long, value_name = "FILE")]
    pub baseline: PathBuf,
    #[command(flatten)]
    pub tolerances: ToleranceArgs,
    /// How to print
    #[arg(long, value_enum, default_value_t = GateFormat::Table)]
    pub format: GateFormat,
    #[command(flatten)]
    pub manner: MannerArgs,
}

const CHECK_STATUS: &str = "\
Where a figure changed and the baseline has ledgers, the environment is run again
to name the functions that gained or lost.

Exit status:
  0  every figure is the same, or within its tolerance
  1  a figure changed, vanished or appeared
  2  the command line was not understood, or the baseline cannot be used
  3  two runs gave different digits
  4  an environment of the baseline cannot be measured here";

/// Of `trapline bisect`.
#[derive(Args, Debug)]
#[command(after_help = BISECT_STATUS, override_usage = BISECT_USAGE)]
pub struct BisectArgs {
    /// A commit before the change
    #[arg(long, value_name = "REV")]
    pub good: String,
    /// A later commit, with the change
    #[arg(long, value_name = "REV")]
    pub bad: String,
    /// What builds the parts, for a shell in the top directory of a commit
    #[arg(long, value_name = "CMD")]
    pub build: String,
    /// Workloads or single operations to compare
    #[arg(long = "workload", value_name = "W,W/OP", value_delimiter = ',', value_parser = workload_parser(), hide_possible_values = true, required = true)]
    pub workloads: Vec<String>,
    /// Environments of the instruction clock to compare in
    #[arg(long = "env", value_name = "A,B", value_delimiter = ',', value_parser = environment_parser(),
          default_values = ["sim/kvm"])]
    pub environments: Vec<EnvironmentId>,
    /// The repository; nothing in it is touched, commits are checked out elsewhere
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub repo: PathBuf,
    /// Where a build leaves the parts, within a commit's directory
    #[arg(long, value_name = "DIR", default_value = "target/dist")]
    pub parts: PathBuf,
    #[command(flatten)]
    pub tolerances: ToleranceArgs,
    #[command(flatten)]
    pub manner: MannerArgs,
}

/// Clap would write it in one line, wider than a terminal.
const BISECT_USAGE: &str = "trapline bisect [OPTIONS] --good <REV> --bad <REV>
                       --build <CMD> --workload <W,W/OP>";

const BISECT_STATUS: &str = "\
A commit that does not build, or cannot be measured, is skipped. The search
follows first parents.

Exit status:
  0  the commit is found
  1  only a range is found, or there is nothing to find
  2  the command line was not understood
  3  two runs of the good or the bad commit gave different digits
  4  the good or the bad commit cannot be built or measured here";

/// How much figures may move.
#[derive(Args, Debug)]
pub struct ToleranceArgs {
    /// Let operations or workloads move by N (in their unit) or N%, like
    /// exits/port-out=2; the last that fits decides [default: boot=2%, others 0]
    #[arg(long = "tolerance", value_name = "OP=N|N%", value_parser = tolerance_parser())]
    pub chosen: Vec<(OpSet, Tolerance)>,
}

impl ToleranceArgs {
    /// The defaults, and what was chosen over them.
    pub fn tolerances(&self) -> Tolerances {
        let mut tolerances = Tolerances::default();
        for (operations, tolerance) in &self.chosen {
            tolerances.add(*operations, *tolerance);
        }
        tolerances
    }
}

fn tolerance_parser() -> impl TypedValueParser<Value = (OpSet, Tolerance)> {
    clap::builder::StringValueParser::new().try_map(|words| tolerance::parse(&words))
}

/// How to print what changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GateFormat {
    /// Text for a terminal
    Table,
    /// A comment for a pull request
    Markdown,
    /// JUnit XML
    Junit,
    /// Bencher Metric Format: every figure of now
    Bencher,
    /// One JSON object
    Json,
}
