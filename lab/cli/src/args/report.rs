//! The arguments of `report`: a stored run as one page of HTML.

use super::StoreArgs;
use clap::Args;
use std::path::PathBuf;

/// Of `trapline report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    /// Number of the run [default: the latest]
    #[arg(long, value_name = "N")]
    pub run: Option<u32>,
    /// File to write [default: trapline-run-N.html]; - is standard output
    #[arg(long, short, value_name = "FILE.html")]
    pub output: Option<PathBuf>,
    /// Draw these ledgers, too: what `trapline explain --format json --flamegraph` printed,
    /// or folded stacks
    #[arg(long = "ledger", value_name = "FILE", num_args = 1..)]
    pub ledgers: Vec<PathBuf>,
    /// Show it in a browser
    #[arg(long)]
    pub open: bool,
}
