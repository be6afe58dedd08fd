//! Presets: numbers of boots and batches, and sizes of the work in each environment.
//!
//! The sizes depend on each other: arrays must fit the guest's memory.

use crate::environment::EnvironmentId;
use crate::guest_config::GuestConfig;
use crate::named::named;
use trapline_abi::{Job, OpSet};

/// Extent of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// All environments of a default run within a minute on two cores.
    Quick,
    /// More boots, more and longer batches.
    Full,
}

named!(Preset { Quick "quick", Full "full" });

impl Preset {
    /// Returns the number of boots of each environment on the wall clock.
    pub const fn boots(self) -> u32 {
        match self {
            Self::Quick => 5,
            Self::Full => 20,
        }
    }
}

/// Sizes of the work in an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub guest: GuestConfig,
    /// Launches of the boot workload within one boot.
    pub boot_launches: u32,
    batches: u32,
    batch_ticks: u64,
    budget_ticks: u64,
    aligned: bool,
    pages: u32,
    blocks: u32,
    doubles: u32,
    passes: u32,
    large_regions: u32,
}

/// Sizes for hardware: arrays exceed the caches. An operation takes a tenth of a second at most, unless its shortest
/// series of batches takes longer: on a hypervisor of another, a page fault can cost 100 times as much.
const HARDWARE: Sizes = Sizes {
    guest: GuestConfig::DEFAULT,
    boot_launches: 2,
    batches: Job::EMPTY.batches,
    batch_ticks: Job::EMPTY.batch_ticks,
    budget_ticks: 200_000_000,
    aligned: Job::EMPTY.aligned,
    pages: 65_536,
    blocks: 256,
    doubles: 8_000_000,
    passes: Job::EMPTY.passes,
    large_regions: Job::EMPTY.large_regions,
};

/// Sizes for translated guests: a fiftieth of those for hardware. The clock jumps there, hence few and long
/// batches.
const TRANSLATED: Sizes = Sizes {
    guest: GuestConfig {
        memory_mib: 128,
        ..GuestConfig::DEFAULT
    },
    batches: 10,
    batch_ticks: 2_000_000,
    pages: 4_096,
    blocks: 32,
    doubles: 200_000,
    passes: 3,
    ..HARDWARE
};

/// Sizes for user-mode Linux: system calls take ten to a hundred times as long as on the host. Each page of a
/// program is a mapping of its own on the host, which allows a process some 65,000 (vm.max_map_count).
const USER_MODE: Sizes = Sizes {
    pages: 8_192,
    blocks: 32,
    doubles: 2_000_000,
    ..HARDWARE
};

/// Memory of a guest's Linux and its initramfs, in MiB.
const LINUX_MIB: u32 = 128;

/// Sizes for exact clocks: a short batch is as exact as a long one.
const COUNTED: Sizes = Sizes {
    boot_launches: 3,
    batches: 12,
    batch_ticks: 50_000,
    budget_ticks: 10_000_000,
    aligned: true,
    pages: 256,
    blocks: 16,
    ..TRANSLATED
};

/// Sizes for an image that starts with its machine: without a VMM there is no boot to measure.
const COUNTED_BARE: Sizes = Sizes {
    boot_launches: 0,
    ..COUNTED
};

/// Sizes for NOVA: each launch is a boot of its machine.
const COUNTED_NOVA: Sizes = Sizes {
    boot_launches: 1,
    ..COUNTED
};

impl Sizes {
    pub fn of(environment: EnvironmentId, preset: Preset) -> Self {
        let sizes = Self::of_clock(environment, preset);
        if environment.is_linux_guest() {
            sizes.with_linux()
        } else {
            sizes
        }
    }

    fn of_clock(environment: EnvironmentId, preset: Preset) -> Self {
        let sizes = match environment {
            _ if environment.is_nova() => return COUNTED_NOVA,
            _ if environment.starts_with_machine() => return COUNTED_BARE,
            // Figures are exact: more batches add nothing.
            _ if environment.clock().is_exact() => {
                return COUNTED.nested(environment.stack().levels.len())
            }
            _ if environment.is_translated() => TRANSLATED,
            _ if environment.is_user_mode() => USER_MODE,
            _ => HARDWARE,
        };
        match preset {
            Preset::Quick => sizes,
            Preset::Full => Self {
                boot_launches: 5,
                batches: 100,
                batch_ticks: 10 * HARDWARE.batch_ticks,
                budget_ticks: Job::EMPTY.budget_ticks,
                passes: 20,
                large_regions: 3,
                ..sizes
            },
        }
    }

    /// Each level of nesting makes exits about ten times as expensive.
    fn nested(self, levels: usize) -> Self {
        let factor = 10_u64.pow(levels.saturating_sub(1) as u32);
        Self {
            batch_ticks: self.batch_ticks * factor,
            budget_ticks: self.budget_ticks * factor,
            // Fewer pages were not tried with a guest in a guest.
            pages: match factor {
                1 => self.pages,
                _ => TRANSLATED.pages,
            },
            ..self
        }
    }

    fn with_linux(self) -> Self {
        Self {
            guest: GuestConfig {
                memory_mib: self.guest.memory_mib + LINUX_MIB,
                ..self.guest
            },
            ..self
        }
    }

    /// Returns the job that measures `operations`.
    pub fn job(&self, operations: OpSet) -> Job {
        Job {
            run: operations,
            batches: self.batches,
            batch_ticks: self.batch_ticks,
            budget_ticks: self.budget_ticks,
            aligned: self.aligned,
            pages: self.pages,
            blocks: self.blocks,
            doubles: self.doubles,
            passes: self.passes,
            large_regions: self.large_regions,
            ..Job::EMPTY
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upper bound of the image and its page tables.
    const KERNEL_MIB: u64 = 16;

    #[test]
    fn arrays_fit_the_memory_of_the_guest() {
        for environment in EnvironmentId::all() {
            for preset in Preset::ALL {
                let sizes = Sizes::of(environment, preset);
                let job = sizes.job(OpSet::EMPTY);
                let pages = u64::from(job.pages) * 4096;
                let blocks = u64::from(job.blocks) << 20;
                let arrays = 3 * 8 * u64::from(job.doubles);
                let used = if environment.is_linux_guest() {
                    u64::from(LINUX_MIB)
                } else {
                    KERNEL_MIB
                };
                let free = (u64::from(sizes.guest.memory_mib) - used) << 20;
                assert!(pages.max(blocks).max(arrays) <= free, "{environment}");
            }
        }
    }
}
