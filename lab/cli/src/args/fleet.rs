//! Arguments of `fleet`.

use super::pages::after_help;
use super::{EngineOptions, OutputOptions, PlainFormat, StoreOptions};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Arguments of `trapline fleet`.
#[derive(Args, Debug)]
#[command(after_help = after_help("fleet"))]
pub struct FleetArgs {
    /// Command
    #[command(subcommand)]
    pub command: FleetCommand,
}

/// A command about a fleet.
#[derive(Subcommand, Debug)]
pub enum FleetCommand {
    /// Make a directory with a plan and the programs, for machines that see it
    Create {
        /// Directory to make
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Plan file
        #[arg(value_name = "PLAN.toml")]
        plan: PathBuf,
        /// Slices of the plan: tasks, which should take minutes
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(trapline_model::slice::MOST)))]
        slices: u32,
    },
    /// Execute a slice on this machine; an engine calls this once for each slice
    Work {
        /// Directory of the fleet
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Number of the slice
        #[arg(value_name = "N")]
        slice: u32,
    },
    /// Have the slices that are not done executed, and wait for them
    Submit {
        /// Directory of the fleet
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        #[command(flatten)]
        engine: EngineOptions,
        /// Do not wait
        #[arg(long)]
        detach: bool,
    },
    /// Print what is done, and what failed
    Status {
        /// Directory of the fleet
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Output format
        #[arg(long, value_enum, default_value_t = PlainFormat::Table)]
        format: PlainFormat,
    },
    /// Unite the slices to one run of the store, and print it
    Collect {
        /// Directory of the fleet
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Do so even if slices are missing
        #[arg(long)]
        partial: bool,
        #[command(flatten)]
        store: StoreOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Cancel the tasks of a fleet in Slurm's queue
    Cancel {
        /// Directory of the fleet
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}
