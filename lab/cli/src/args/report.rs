//! Arguments of `report`.

use super::pages::after_help;
use super::StoreOptions;
use crate::store_path::run_numbers;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `trapline report`.
#[derive(Args, Debug)]
#[command(after_help = after_help("report"))]
pub struct ReportArgs {
    #[command(flatten)]
    pub store: StoreOptions,
    /// Number of the run [default: the latest]
    #[arg(long, value_name = "N", add = run_numbers())]
    pub run: Option<u32>,
    /// Only the boots of this host, of a run that several hosts measured
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub host: Option<String>,
    /// File to write, or - for standard output [default: trapline-run-N.html]
    #[arg(long, short, value_name = "FILE.html")]
    pub output: Option<PathBuf>,
    /// Add flame graphs of these profiles: output of `trapline explain --format json --flamegraph`, or
    /// folded stacks
    #[arg(long = "profile", alias = "ledger", value_name = "FILE", num_args = 1..)]
    pub profiles: Vec<PathBuf>,
    /// Open the page in a browser
    #[arg(long)]
    pub open: bool,
}
