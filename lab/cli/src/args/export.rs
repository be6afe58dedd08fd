//! The arguments of `export`: raw samples as a file.

use super::StoreArgs;
use clap::Args;
use std::path::PathBuf;

/// Of `trapline export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// File to write: Parquet, CSV, or JSON with an object a line, as its name ends
    #[arg(value_name = "FILE.parquet|FILE.csv|FILE.json")]
    pub output: PathBuf,
    #[command(flatten)]
    pub store: StoreArgs,
    /// Number of the run [default: the latest]
    #[arg(long, value_name = "N")]
    pub run: Option<u32>,
    /// Replace the file if it is there
    #[arg(long)]
    pub force: bool,
}
