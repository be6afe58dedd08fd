//! Arguments of `kernel-build`.

use super::pages::after_help;
use super::{environment_parser, OutputOptions, RunOptions};
use clap::{Args, ValueEnum};
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
    #[arg(long, value_enum, default_value_t = SizeName::Mini)]
    pub size: SizeName,
    /// Numbers of virtual CPUs, and of make's jobs
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = kernel_build::CPUS,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST)))]
    pub cpus: Vec<u32>,
    /// Placement of virtual CPUs relative to the VMM's other threads
    #[arg(long, value_name = "P,P", value_enum, value_delimiter = ',',
          default_values_t = [PlaceName::Same, PlaceName::Disjoint])]
    pub place: Vec<PlaceName>,
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
    pub run_options: RunOptions,
}

/// A kernel configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SizeName {
    /// 30 files: seconds on hardware, and the only one supported on exact clocks
    Mini,
    /// The smallest kernel (tinyconfig): a minute or two on hardware
    Tiny,
    /// A common kernel (defconfig): an hour of one CPU
    Def,
}

impl From<SizeName> for Size {
    fn from(size: SizeName) -> Self {
        match size {
            SizeName::Mini => Self::Mini,
            SizeName::Tiny => Self::Tiny,
            SizeName::Def => Self::Def,
        }
    }
}

/// Placement of virtual CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlaceName {
    /// Virtual CPU i on CPU i, and the VMM's other threads on CPU 0
    Same,
    /// Virtual CPU i on CPU i + 1
    Disjoint,
}

impl From<PlaceName> for Place {
    fn from(place: PlaceName) -> Self {
        match place {
            PlaceName::Same => Self::Same,
            PlaceName::Disjoint => Self::Disjoint,
        }
    }
}

impl KernelBuildArgs {
    /// Returns the request, in which no configuration is ready.
    pub fn request(&self) -> Request {
        let environments = match self.environments.as_slice() {
            [] => &kernel_build::ENVIRONMENTS[..],
            named => named,
        };
        let places: Vec<Place> = self.place.iter().map(|place| (*place).into()).collect();
        Request {
            configs: kernel_build::configs(environments, &self.cpus, &places),
            long: vec![Operation::Build(self.size.into())],
            boots: Some(self.boots.unwrap_or(kernel_build::BUILDS)),
            exact_boots: self.boots.unwrap_or(EXACT_BOOTS),
            seed: self.seed.unwrap_or_else(trapline_runner::random_seed),
            ..Request::default()
        }
    }
}
