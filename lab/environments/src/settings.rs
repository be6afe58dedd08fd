//! Where everything is that environments are made of.

use crate::cache::{Cache, DEFAULT_LIMIT};
use crate::custom::CustomVmm;
use crate::parts::Parts;
use crate::plugin::Plugin;
use crate::trace::Trace;
use crate::EnvError;
use std::path::PathBuf;

/// How a simulated machine with a Linux gets to where it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// From its snapshot, which is made if there is none.
    Restore,
    /// By booting; snapshots are neither used nor made.
    Boot,
}

/// Where everything is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Trapline's own parts.
    pub parts: Parts,
    /// QEMU, if not the one in $PATH.
    pub qemu: Option<PathBuf>,
    /// The kernel of the simulated machine and the directory of its modules, if
    /// not the distribution's.
    pub kernel: Option<(PathBuf, PathBuf)>,
    /// Archives of files that every Linux guest has in its root beside the agent: "newc"
    /// cpio, which may be compressed.
    pub root: Vec<PathBuf>,
    /// The file to be made for a disk that is measured, if it is not to be in the cache.
    pub disk: Option<PathBuf>,
    /// What is kept between runs.
    pub cache: Cache,
    /// How machines get to where they work.
    pub start: Start,
    /// A VMM of the user's choice, if there is one.
    pub vmm: Option<CustomVmm>,
    /// Who watches the simulated machine, if anybody does.
    pub plugin: Option<Plugin>,
    /// Who watches the one with Intel's virtualization.
    pub trace: Option<Trace>,
}

impl Settings {
    /// Parts from where [`Parts::find`] finds them, QEMU from $PATH, the
    /// distribution's kernel, and `$XDG_CACHE_HOME/trapline` (or
    /// `~/.cache/trapline`) for what is kept.
    ///
    /// # Errors
    /// The kernel does not say where the program is.
    pub fn find() -> Result<Self, EnvError> {
        Ok(Self {
            parts: Parts::find()?,
            qemu: None,
            kernel: None,
            root: Vec::new(),
            disk: None,
            cache: Cache {
                directory: cache_directory(),
                limit: DEFAULT_LIMIT,
            },
            start: Start::Restore,
            vmm: None,
            plugin: None,
            trace: None,
        })
    }
}

fn cache_directory() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    base.map(PathBuf::from)
        .or_else(home)
        .unwrap_or_else(std::env::temp_dir)
        .join("trapline")
}
