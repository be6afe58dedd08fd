//! Where everything is that environments are made of.

use crate::parts::Parts;
use crate::plugin::Plugin;
use crate::EnvError;
use std::path::PathBuf;

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
    /// Where what was downloaded is kept.
    pub cache: PathBuf,
    /// Who watches the simulated machine, if anybody does.
    pub plugin: Option<Plugin>,
}

impl Settings {
    /// Parts from where [`Parts::find`] finds them, QEMU from $PATH, the
    /// distribution's kernel, and `$XDG_CACHE_HOME/trapline` (or
    /// `~/.cache/trapline`) for what is downloaded.
    ///
    /// # Errors
    /// The kernel does not say where the program is.
    pub fn find() -> Result<Self, EnvError> {
        Ok(Self {
            parts: Parts::find()?,
            qemu: None,
            kernel: None,
            cache: cache_directory(),
            plugin: None,
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
