//! The arguments of `kernel-build`.

use super::{environment_parser, PlainFormat, SimulatedArgs};
use clap::{Args, ValueEnum};
use trapline_plan::cpus::MOST;
use trapline_plan::kernel_build::{Column, Place, Size};
use trapline_plan::{Clock, EnvironmentId};

/// Of `trapline kernel-build`.
#[derive(Args, Debug)]
pub struct KernelBuildArgs {
    /// Environments to build in [default: host,uml,qemu-tcg/linux,kvm/linux,qemu-kvm/linux]
    #[arg(long = "env", value_name = "A,B", value_delimiter = ',', value_parser = environment_parser())]
    pub environments: Vec<EnvironmentId>,
    /// How much to build
    #[arg(long, value_enum, default_value_t = SizeName::Mini)]
    pub size: SizeName,
    /// Numbers of virtual CPUs, and of jobs for make
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [1, 2],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST)))]
    pub cpus: Vec<u32>,
    /// Where virtual CPUs run: with the VMM's other threads, or apart from them
    #[arg(long, value_name = "P,P", value_enum, value_delimiter = ',',
          default_values_t = [PlaceName::Same, PlaceName::Disjoint])]
    pub place: Vec<PlaceName>,
    /// Builds of each cell [default: 1; 2 where instructions are counted]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub boots: Option<u32>,
    /// Most time for one build [default: by its size]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: Option<u64>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = PlainFormat::Table)]
    pub format: PlainFormat,
    #[command(flatten)]
    pub simulated: SimulatedArgs,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// How much to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SizeName {
    /// 30 files: seconds on hardware, and the only one to be built by counted instructions
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

/// Where virtual CPUs run.
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
    /// The environments asked for, or the usual ones, each once and in table order.
    pub fn environments(&self) -> Vec<EnvironmentId> {
        use EnvironmentId::{Host, KvmLinux, QemuKvmLinux, QemuTcgLinux, Uml};
        let usual = [Host, KvmLinux, QemuKvmLinux, QemuTcgLinux, Uml];
        let mut all = match self.environments.as_slice() {
            [] => usual.to_vec(),
            named => named.to_vec(),
        };
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The columns asked for. A machine that counts instructions has one CPU, so that
    /// nobody who asks for nothing else is asked for more there.
    pub fn columns(&self, environment: EnvironmentId) -> Vec<Column> {
        let places: Vec<_> = self.place.iter().map(|place| (*place).into()).collect();
        let all = Column::all(&self.cpus, &places);
        let possible = |column: &Column| column.misfit(environment).is_none();
        let some = all.iter().copied().filter(possible).collect::<Vec<_>>();
        match environment.clock() {
            Clock::Insn | Clock::InsnVmx if !some.is_empty() => some,
            _ => all,
        }
    }

    /// How often each is done.
    pub fn boots(&self, environment: EnvironmentId) -> u32 {
        let usual = if environment.clock().is_exact() { 2 } else { 1 };
        self.boots.unwrap_or(usual)
    }
}
