//! Settings of workload `block`.

use trapline_abi::Job;

/// Extent of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Used part of the disk, in MiB.
    pub mib: u32,
    /// Number of small requests at queue depth 32; other operations have fewer.
    pub requests: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mib: Job::EMPTY.disk_mib,
            requests: Job::EMPTY.requests,
        }
    }
}
