//! Disks: files behind virtio block devices, and the threads that serve them.
//!
//! The disk's thread waits for its driver and for completions ([`serve`]). An [`Engine`] executes the
//! requests: io_uring ([`uring`]), or threads with ordinary system calls ([`pool`]) where io_uring is
//! disabled. Both execute the same [`job`]s. All files are opened before the guest runs ([`file`]).

mod engine;
mod file;
mod job;
mod pool;
mod serve;
mod start;
mod uring;

#[cfg(test)]
mod tests;

pub use engine::{Engine, Kind};
pub use file::{DiskError, DiskFile};
pub use serve::worker;

use crate::Failure;
use std::path::PathBuf;

/// Configuration of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskConfig {
    /// Path of a regular file or block device.
    pub path: PathBuf,
    /// Reject writes.
    pub read_only: bool,
    /// Bypass the host's page cache if the filesystem supports it.
    pub direct: bool,
    /// Engine; `None`: io_uring if available.
    pub engine: Option<Kind>,
}

impl DiskConfig {
    /// Parses `FILE[,ro][,direct][,engine=uring|pool]`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(',');
        let mut wanted = Self {
            path: words.next().filter(|path| !path.is_empty())?.into(),
            ..Self::default()
        };
        for word in words {
            match word {
                "ro" => wanted.read_only = true,
                "direct" => wanted.direct = true,
                "engine=uring" => wanted.engine = Some(Kind::Uring),
                "engine=pool" => wanted.engine = Some(Kind::Pool),
                _ => return None,
            }
        }
        Some(wanted)
    }
}

/// Opens the disk called `name`.
///
/// # Errors
/// The file is not usable as a disk.
#[cold]
pub fn open(wanted: &DiskConfig, name: &str) -> Result<DiskFile, Failure> {
    let file = DiskFile::open(wanted).map_err(failure(wanted))?;
    if wanted.direct && file.direct.is_none() {
        eprintln!(
            "trapline-vmm: {name}: the filesystem does not support O_DIRECT; using the page cache"
        );
    }
    Ok(file)
}

fn failure(wanted: &DiskConfig) -> impl Fn(DiskError) -> Failure + '_ {
    |source| Failure::Disk {
        path: wanted.path.clone(),
        reason: source.to_string(),
    }
}
