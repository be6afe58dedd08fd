//! Arguments of `history`.

use super::pages::after_help;
use super::{stored_environment_parser, stored_workload_parser, StoreOptions};
use clap::{Args, ValueEnum};
use trapline_model::EnvironmentId;

/// Output format of shifts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HistoryFormat {
    /// Text for a terminal
    Table,
    /// One JSON object
    Json,
    /// A page with a plot of each series
    Html,
}

/// Arguments of `trapline history`.
#[derive(Args, Debug)]
#[command(after_help = after_help("history"))]
pub struct HistoryArgs {
    /// Environments [default: all]
    #[arg(long = "env", value_name = "A,B", value_delimiter = ',', value_parser = stored_environment_parser(), hide_possible_values = true)]
    pub environments: Vec<EnvironmentId>,
    /// Workloads or operations [default: all]
    #[arg(long = "workload", value_name = "W,W/OP", value_delimiter = ',', value_parser = stored_workload_parser(), hide_possible_values = true)]
    pub workloads: Vec<String>,
    /// Smallest change to report on the wall clock; exact clocks have no limit
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = super::compare::percent)]
    pub margin: f64,
    /// Output format
    #[arg(long, value_enum, default_value_t = HistoryFormat::Table)]
    pub format: HistoryFormat,
    #[command(flatten)]
    pub store: StoreOptions,
}
