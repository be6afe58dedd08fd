//! The arguments of `history`: which series of the store.

use super::{environment_parser, workload_parser, PlainFormat, StoreArgs};
use clap::Args;
use trapline_model::EnvironmentId;

/// Of `trapline history`.
#[derive(Args, Debug)]
pub struct HistoryArgs {
    /// Environments [default: all]
    #[arg(long = "env", value_name = "A,B", value_delimiter = ',', value_parser = environment_parser())]
    pub environments: Vec<EnvironmentId>,
    /// Workloads or single operations [default: all]
    #[arg(long = "workload", value_name = "W,W/OP", value_delimiter = ',', value_parser = workload_parser(), hide_possible_values = true)]
    pub workloads: Vec<String>,
    /// Changes of less than this, in percent, are not told; on exact clocks all are
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = super::compare::percent)]
    pub margin: f64,
    /// How to print
    #[arg(long, value_enum, default_value_t = PlainFormat::Table)]
    pub format: PlainFormat,
    #[command(flatten)]
    pub store: StoreArgs,
}
