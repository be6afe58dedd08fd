//! The arguments of `plan`: studies that are written down.

use super::{PlainFormat, SimulatedArgs};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Of `trapline plan`.
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// What to do
    #[command(subcommand)]
    pub command: PlanCommand,
}

/// One command about plans.
#[derive(Subcommand, Debug)]
pub enum PlanCommand {
    /// Say what a plan comes to on this host, without measuring anything
    Check(PlanCheckArgs),
    /// Print the JSON schema of plan files
    Schema,
}

/// Of `trapline plan check`.
#[derive(Args, Debug)]
pub struct PlanCheckArgs {
    /// The plan, a TOML file
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
    /// How to print
    #[arg(long, value_enum, default_value_t = PlainFormat::Table)]
    pub format: PlainFormat,
    #[command(flatten)]
    pub simulated: SimulatedArgs,
}
