//! Disks: files behind virtio block devices, and threads that work on them.
//!
//! A disk's thread waits for its driver and for what comes back ([`serve`]). The work itself
//! is done by an [`Engine`]: the kernel's rings ([`uring`]), or where those are shut,
//! some threads that make ordinary system calls ([`pool`]). Both run the same [`job`]s, so
//! both mean the same. Everything is opened before a guest runs ([`file`]).

mod engine;
mod file;
mod job;
mod pool;
mod serve;
mod uring;

#[cfg(test)]
mod tests;

pub use engine::{Engine, Kind};
pub use file::{BadDisk, DiskFile};
pub use serve::worker;

use std::path::PathBuf;

/// A disk, as asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Its file, or a block device.
    pub path: PathBuf,
    /// Nothing of it can be changed.
    pub read_only: bool,
    /// Past the host's page cache, where that can be.
    pub direct: bool,
    /// Who does the work; `None`: whichever can.
    pub engine: Option<Kind>,
}

impl Wanted {
    /// What `FILE[,ro][,direct][,engine=uring|pool]` says; `None` if it says anything else.
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
