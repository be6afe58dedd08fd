//! Arguments of `doctor`, `list`, `floor`, `show` and `explain`.

use super::environment::{FileOptions, SnapshotOptions};
use super::names::selection_parser;
use super::pages::after_help;
use super::settings::{MachineOptions, MeasuringOptions};
use super::{
    config_parser, workload_parser, EnvironmentOptions, ExactOptions, OutputOptions, PlainFormat,
    ProfileFormat, StoreOptions, SymbolSource,
};
use crate::store_path::run_numbers;
use clap::Args;
use std::path::PathBuf;
use trapline_model::names::Selection;
use trapline_model::{Config, EnvironmentId};

/// Arguments of `trapline doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t = PlainFormat::Table)]
    pub format: PlainFormat,
}

/// Arguments of `trapline list`.
#[derive(Args, Debug)]
#[command(after_help = after_help("list"))]
pub struct ListArgs {
    /// Environments, workloads or operations [default: the environments that are measured by default, and the names of
    /// workloads]
    #[arg(value_name = "NAME", value_parser = selection_parser(), value_delimiter = ',', hide_possible_values = true)]
    pub names: Vec<Selection>,
    /// List all environments and operations
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = PlainFormat::Table)]
    pub format: PlainFormat,
    #[command(flatten)]
    pub files: FileOptions,
}

/// Arguments of `trapline floor`.
#[derive(Args, Debug)]
pub struct FloorArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t = PlainFormat::Table)]
    pub format: PlainFormat,
    #[command(flatten)]
    pub machine: MachineOptions,
    #[command(flatten)]
    pub snapshots: SnapshotOptions,
}

/// Arguments of `trapline show`.
#[derive(Args, Debug)]
#[command(after_help = after_help("show"))]
pub struct ShowArgs {
    #[command(flatten)]
    pub store: StoreOptions,
    /// Number of the run [default: the latest]
    #[arg(long, value_name = "N", add = run_numbers())]
    pub run: Option<u32>,
    /// Only the boots of this host, of a run that several hosts measured
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub host: Option<String>,
    /// List the stored runs instead
    #[arg(long, conflicts_with_all = ["run", "host", "format", "all", "plot"])]
    pub list: bool,
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Arguments of `trapline explain`.
#[derive(Args, Debug)]
#[command(after_help = after_help("explain"))]
pub struct ExplainArgs {
    /// Environment on the instruction clock, ENV[:SETTING=VALUE,...]; with a second one the differences are listed, largest
    /// first
    #[arg(value_name = "ENV", value_parser = config_parser(), hide_possible_values = true, num_args = 1..=2, required = true)]
    pub configs: Vec<Config>,
    /// Operation of basic, system, exits, boot, populate, block or net, or one of these workloads
    #[arg(value_name = "WORKLOAD/OP", value_parser = workload_parser(), hide_possible_values = true)]
    pub operation: String,
    /// Write a flame graph of the call stacks, for one operation; with a second ENV a differential
    /// one
    #[arg(long, value_name = "FILE.svg")]
    pub flamegraph: Option<PathBuf>,
    #[command(flatten)]
    pub exact_options: ExactOptions,
    /// Time limit for one boot [default: 600 s]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400), hide_short_help = true)]
    pub timeout: Option<u64>,
    /// Output format
    #[arg(long, value_enum, default_value_t = ProfileFormat::Table)]
    pub format: ProfileFormat,
    /// Directories with debug symbols in .build-id [default: /usr/lib/debug]
    #[arg(
        long,
        value_name = "DIR",
        value_delimiter = ',',
        hide_short_help = true
    )]
    pub debug_dir: Vec<PathBuf>,
    /// Debug symbols of the programs of this host: those that are installed, or also those that the
    /// distribution's package sources have
    #[arg(long, value_enum, default_value_t = SymbolSource::Installed, hide_short_help = true)]
    pub symbols: SymbolSource,
    /// Show the source line of each function, and the lines with the most instructions, from debug symbols
    #[arg(long)]
    pub lines: bool,
    #[command(flatten)]
    pub settings: MeasuringOptions,
    #[command(flatten)]
    pub files: FileOptions,
    #[command(flatten)]
    pub snapshots: SnapshotOptions,
}

impl ListArgs {
    /// Returns the options of environments.
    pub fn environment_options(&self) -> EnvironmentOptions {
        EnvironmentOptions {
            files: self.files.clone(),
            ..EnvironmentOptions::default()
        }
    }
}

impl FloorArgs {
    /// Returns the options of environments.
    pub fn environment_options(&self) -> EnvironmentOptions {
        EnvironmentOptions {
            files: FileOptions {
                machine: self.machine.clone(),
                ..FileOptions::default()
            },
            snapshots: self.snapshots.clone(),
            ..EnvironmentOptions::default()
        }
    }
}

impl ExplainArgs {
    /// Returns the options of environments.
    pub fn environment_options(&self) -> EnvironmentOptions {
        EnvironmentOptions {
            settings: self.settings.clone(),
            files: self.files.clone(),
            snapshots: self.snapshots.clone(),
            ..EnvironmentOptions::default()
        }
    }

    /// Returns the environments of the configurations.
    pub fn environments(&self) -> impl Iterator<Item = EnvironmentId> + Clone + '_ {
        self.configs.iter().map(|config| config.environment)
    }
}
