//! Settings of workload `block`.

use crate::config::Config;
use crate::environment::EnvironmentId;
use trapline_abi::Job;

/// Defaults where instructions are counted: a disk in memory has no caches to exceed.
const COUNTED_MIB: u32 = 16;
const COUNTED_REQUESTS: u32 = 2048;

/// Extent of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Used part of the disk in MiB, if not the default.
    pub mib: Option<u32>,
    /// Number of small requests at queue depth 32, if not the default; other operations have fewer.
    pub requests: Option<u32>,
}

impl Settings {
    /// Returns the used part of the disk of an environment, in MiB.
    pub fn mib(&self, environment: EnvironmentId) -> u32 {
        let usual = if environment.clock().is_exact() {
            COUNTED_MIB
        } else {
            Job::EMPTY.disk_mib
        };
        self.mib.unwrap_or(usual)
    }

    /// Returns the number of small requests at queue depth 32 in an environment.
    pub fn requests(&self, environment: EnvironmentId) -> u32 {
        let usual = if environment.clock().is_exact() {
            COUNTED_REQUESTS
        } else {
            Job::EMPTY.requests
        };
        self.requests.unwrap_or(usual)
    }

    /// Returns the largest extent in `configs`: MiB and requests.
    pub fn largest(&self, configs: &[Config]) -> (u32, u32) {
        let ids = configs.iter().map(|config| config.environment);
        let extents = ids.map(|id| (self.mib(id), self.requests(id)));
        extents
            .max()
            .unwrap_or((Job::EMPTY.disk_mib, Job::EMPTY.requests))
    }
}
