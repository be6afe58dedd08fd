//! Options of environments: the simulated machine's kernel, the VMM, scheduling, snapshots.

use super::cache::size;
use clap::Args;
use std::path::PathBuf;
use std::str::FromStr;
use trapline_environments::cache::DEFAULT_LIMIT;
use trapline_environments::CustomVmm;
use trapline_model::{Sched, Scheduling};

/// Options of environments.
#[derive(Args, Debug, Clone, Default)]
pub struct EnvironmentOptions {
    /// Kernel of the simulated machine [default: the distribution's, downloaded once]
    #[arg(long, value_name = "FILE", requires = "modules")]
    pub kernel: Option<PathBuf>,
    /// Directory of its modules (lib/modules/VERSION)
    #[arg(long, value_name = "DIR", requires = "kernel")]
    pub modules: Option<PathBuf>,
    /// VMM of custom and sim/custom: a command with {image}, and {memory} (MiB), {cpus} and {cmdline}
    /// where it needs them
    #[arg(long, value_name = "COMMAND", value_parser = CustomVmm::from_str)]
    pub vmm: Option<CustomVmm>,
    #[command(flatten)]
    pub scheduling: SchedulingOptions,
    #[command(flatten)]
    pub snapshots: SnapshotOptions,
}

/// Scheduling of virtual CPUs.
#[derive(Args, Debug, Clone, Default)]
pub struct SchedulingOptions {
    /// Scheduler of virtual CPUs; other environments are skipped. Xen domains: credit or credit2;
    /// threads, in irq only: other, fifo, fifo:PRIORITY or deadline:RUNTIME/PERIOD [default: the
    /// environment's]
    #[arg(long, value_name = "SCHED", value_parser = Sched::from_str)]
    pub sched: Option<Sched>,
    /// Limit of a Xen domain's CPU time
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub cap: Option<u32>,
    /// Weight of a Xen domain under contention [default: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub weight: Option<u32>,
}

impl SchedulingOptions {
    /// Returns the scheduling of Xen domains.
    pub fn scheduling(&self) -> Scheduling {
        Scheduling {
            scheduler: self.sched().of_xen(),
            cap: self.cap,
            weight: self.weight,
        }
    }

    /// Returns the scheduler of virtual CPUs.
    pub fn sched(&self) -> Sched {
        self.sched.unwrap_or_default()
    }
}

/// Snapshots of simulated machines.
#[derive(Args, Debug, Clone)]
pub struct SnapshotOptions {
    /// Boot simulated machines instead of restoring them; create no snapshots
    #[arg(long)]
    pub fresh: bool,
    /// Limit of all snapshots, such as 500M or 4G; the least recently used are removed
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "4G",
          env = "TRAPLINE_CACHE_LIMIT", hide_env_values = true)]
    pub cache_limit: u64,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        Self {
            fresh: false,
            cache_limit: DEFAULT_LIMIT,
        }
    }
}
