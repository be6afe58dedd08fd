//! Arguments of `export`.

use super::pages::after_help;
use super::StoreOptions;
use crate::store_path::run_numbers;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `trapline export`.
#[derive(Args, Debug)]
#[command(after_help = after_help("export"))]
pub struct ExportArgs {
    /// File to write; its extension selects Parquet, CSV, or JSON lines
    #[arg(value_name = "FILE.parquet|FILE.csv|FILE.json")]
    pub output: PathBuf,
    #[command(flatten)]
    pub store: StoreOptions,
    /// Number of the run [default: the latest]
    #[arg(long, value_name = "N", add = run_numbers())]
    pub run: Option<u32>,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
}
