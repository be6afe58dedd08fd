//! Arguments of `kernel-build`.

use super::pages::after_help;
use super::{environment_parser, value_parser, EnvironmentOptions, OutputOptions, RunOptions};
use clap::Args;
use trapline_model::cpus::MOST;
use trapline_model::kernel_build::{self, Place, Size};
use trapline_model::{EnvironmentId, Operation, Request, EXACT_BOOTS};

/// Arguments of `trapline kernel-build`.
#[derive(Args, Debug)]
#[command(after_help = after_help("kernel-build"))]
pub struct KernelBuildArgs {
    /// Environments to build in [default: host,uml,qemu-tcg/linux,kvm/linux,qemu-kvm/linux]
    #[arg(long = "env", value_name = "A,B", value_delimiter = ',', value_parser = environment_parser(), hide_possible_values = true)]
    pub environments: Vec<EnvironmentId>,
    /// Configuration to build
    #[arg(long, default_value = Size::Mini.name(), value_parser = value_parser::<Size>(SIZES))]
    pub size: Size,
    /// Numbers of virtual CPUs, and of make's jobs
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = kernel_build::CPUS,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST)))]
    pub cpus: Vec<u32>,
    /// Placement of virtual CPUs relative to the VMM's other threads
    #[arg(long, value_name = "P,P", value_delimiter = ',', default_values = Place::NAMES,
          value_parser = value_parser::<Place>(PLACES))]
    pub place: Vec<Place>,
    /// Builds per cell, one per round [default: 3; 2 on exact clocks]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub boots: Option<u32>,
    /// Seed for the order of builds [default: random, recorded]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub seed: Option<u64>,
    /// Download compiler and source without a question
    #[arg(long, short)]
    pub yes: bool,
    #[command(flatten)]
    pub output: OutputOptions,
    #[command(flatten)]
    pub environment_options: EnvironmentOptions,
    #[command(flatten)]
    pub run_options: RunOptions,
}

/// Descriptions of kernel configurations.
const SIZES: &[&str] = &[
    "30 files: seconds on hardware, and the only one supported on exact clocks",
    "The smallest kernel (tinyconfig): a minute or two on hardware",
    "A common kernel (defconfig): an hour of one CPU",
];

/// Descriptions of placements of virtual CPUs.
const PLACES: &[&str] = &[
    "Virtual CPU i on CPU i, and the VMM's other threads on CPU 0",
    "Virtual CPU i on CPU i + 1",
];

impl KernelBuildArgs {
    /// Returns the request, in which no configuration is ready.
    pub fn request(&self) -> Request {
        let environments = match self.environments.as_slice() {
            [] => &kernel_build::ENVIRONMENTS[..],
            named => named,
        };
        Request {
            configs: kernel_build::configs(environments, &self.cpus, &self.place),
            long: vec![Operation::Build(self.size)],
            boots: Some(self.boots.unwrap_or(kernel_build::BUILDS)),
            exact_boots: self.boots.unwrap_or(EXACT_BOOTS),
            seed: self.seed.unwrap_or_else(trapline_runner::random_seed),
            ..Request::default()
        }
    }
}
