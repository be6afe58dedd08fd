//! Options of environments: settings of configurations, the VMM, scheduling, snapshots. Each command has the groups that
//! concern it.

use super::cache::size;
use super::settings::{MachineOptions, MeasuringOptions, PartOptions, ShareOptions};
use clap::Args;
use std::str::FromStr;
use trapline_environments::cache::DEFAULT_LIMIT;
use trapline_environments::CustomVmm;
use trapline_model::{Overrides, Sched};

/// Options of commands that run all environments.
#[derive(Args, Debug, Clone, Default)]
pub struct EnvironmentOptions {
    #[command(flatten)]
    pub settings: MeasuringOptions,
    #[command(flatten)]
    pub files: FileOptions,
    #[command(flatten)]
    pub scheduling: SchedulingOptions,
    #[command(flatten)]
    pub snapshots: SnapshotOptions,
}

/// Programs and kernels, on which the availability of environments depends.
#[derive(Args, Debug, Clone, Default)]
pub struct FileOptions {
    #[command(flatten)]
    pub parts: PartOptions,
    #[command(flatten)]
    pub machine: MachineOptions,
    /// VMM of custom and sim/custom: a command with {image}, and {memory} (MiB), {cpus} and {cmdline}
    /// where it needs them
    #[arg(long, value_name = "COMMAND", value_parser = CustomVmm::from_str)]
    pub vmm: Option<CustomVmm>,
}

/// Scheduling of virtual CPUs.
#[derive(Args, Debug, Clone, Default)]
pub struct SchedulingOptions {
    /// Scheduler of virtual CPUs; other environments are skipped. Xen domains: credit or credit2;
    /// threads, in irq only: other, fifo, fifo:PRIORITY or deadline:RUNTIME/PERIOD [default: the
    /// environment's]
    #[arg(long, value_name = "SCHED", value_parser = Sched::from_str, hide_short_help = true)]
    pub sched: Option<Sched>,
    #[command(flatten)]
    pub shares: ShareOptions,
}

impl EnvironmentOptions {
    /// Returns the settings of all configurations.
    pub fn overrides(&self) -> Overrides {
        let mut overrides = self.settings.0.clone();
        if let Some(scheduler) = self.sched().of_xen() {
            let set = overrides.set("sched", scheduler.name());
            debug_assert_eq!(set, Ok(()), "a scheduler of Xen is a value of the setting");
        }
        overrides.extend(&self.scheduling.shares.0);
        overrides.extend(&self.files.parts.0);
        overrides.extend(&self.files.machine.0);
        overrides
    }

    /// Returns the scheduler of virtual CPUs.
    pub fn sched(&self) -> Sched {
        self.scheduling.sched.unwrap_or_default()
    }
}

/// Snapshots of simulated machines.
#[derive(Args, Debug, Clone)]
pub struct SnapshotOptions {
    /// Boot simulated machines instead of restoring them; create no snapshots
    #[arg(long, hide_short_help = true)]
    pub fresh: bool,
    /// Limit of all snapshots, such as 500M or 4G; the least recently used are removed
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "4G",
          env = "TRAPLINE_CACHE_LIMIT", hide_env_values = true, hide_short_help = true)]
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
