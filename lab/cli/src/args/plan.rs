//! Arguments of `plan`.

use super::{EnvironmentOptions, PlainFormat};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Arguments of `trapline plan`.
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// Command
    #[command(subcommand)]
    pub command: PlanCommand,
}

/// A command about plan files.
#[derive(Subcommand, Debug)]
#[expect(clippy::large_enum_variant, reason = "one value per process")]
pub enum PlanCommand {
    /// Print the boots of a plan on this host without measuring
    Check(PlanCheckArgs),
    /// Print the JSON schema of plan files
    Schema,
}

/// Arguments of `trapline plan check`.
#[derive(Args, Debug)]
pub struct PlanCheckArgs {
    /// Plan file
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = PlainFormat::Table)]
    pub format: PlainFormat,
    #[command(flatten)]
    pub environment_options: EnvironmentOptions,
}
