//! Locations of everything that environments use.

use crate::platform::{Platform, AMD};
use crate::plugin::Plugin;
use crate::qemu::Qemu;
use crate::trace::Trace;
use std::path::PathBuf;
use trapline_host::cache::{default_directory, DEFAULT_LIMIT};
use trapline_host::custom_vmm::{self, CustomVmm};
use trapline_host::debug_files::DebugFiles;
use trapline_host::{Cache, Error, Part, Parts};
use trapline_model::layers::{Guest, OPTION_VMM};

/// Start of a simulated machine with Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// From its snapshot, which is created if missing.
    Restore,
    /// By booting; snapshots are neither used nor created.
    Boot,
}

/// A kernel that the user names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GivenKernel {
    /// A file.
    File {
        /// The kernel, as boot loaders read it.
        image: PathBuf,
        /// Directory of its modules.
        modules: PathBuf,
    },
    /// A package of the distribution, or the version in its name.
    Package(String),
}

/// Locations and options of all environments.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Trapline's own parts.
    pub parts: Parts,
    /// QEMU, if not the one in `$PATH`.
    pub qemu: Option<PathBuf>,
    /// Kernel of simulated machines, if not the distribution's newest.
    pub kernel: Option<GivenKernel>,
    /// Archives ("newc" cpio, may be compressed) unpacked into the root of every Linux guest.
    pub root: Vec<PathBuf>,
    /// File to create for a measured disk, if not in the cache.
    pub disk: Option<PathBuf>,
    /// The cache.
    pub cache: Cache,
    /// Start of machines.
    pub start: Start,
    /// The VMM of option `--vmm`.
    pub vmm: Option<CustomVmm>,
    /// Directory of relative paths in the commands of custom VMMs.
    pub vmm_directory: PathBuf,
    /// The NOVA hypervisor, if not in the cache.
    pub nova: Option<PathBuf>,
    /// Debug symbols, to name functions.
    pub debug: DebugFiles,
    /// Plugin of QEMU, to count instructions.
    pub plugin: Option<Plugin>,
    /// Trace of Bochs, to count instructions.
    pub trace: Option<Trace>,
    /// Directory of recordings to replay instead of starting guests, for tests; relative to the parts.
    pub replay: Option<PathBuf>,
}

impl Settings {
    /// Removes what killed processes left in the cache, and returns the defaults: parts of [`Parts::find`], QEMU in `$PATH`, the distribution's kernel, and
    /// `$XDG_CACHE_HOME/trapline` or `~/.cache/trapline`.
    ///
    /// # Errors
    /// The path of this program is unknown, or there is no safe directory for the cache ([`default_directory`]).
    pub fn find() -> Result<Self, Error> {
        let cache = Cache {
            directory: default_directory()?,
            limit: DEFAULT_LIMIT,
        };
        // What cannot be removed now is tried again by the next process.
        let _ = cache.remove_abandoned();
        Ok(Self {
            parts: Parts::find()?,
            qemu: None,
            kernel: None,
            root: Vec::new(),
            disk: None,
            cache,
            start: Start::Restore,
            vmm: None,
            vmm_directory: std::env::current_dir().unwrap_or_default(),
            nova: std::env::var_os("TRAPLINE_NOVA").map(PathBuf::from),
            debug: DebugFiles::default(),
            plugin: None,
            trace: None,
            replay: std::env::var_os("TRAPLINE_REPLAY").map(PathBuf::from),
        })
    }

    /// Returns the file of the NOVA hypervisor.
    ///
    /// # Errors
    /// There is none.
    pub fn nova(&self) -> Result<PathBuf, Error> {
        let in_cache = self.cache.directory.join("nova/hypervisor");
        let file = self.nova.clone().unwrap_or(in_cache);
        if file.is_file() {
            Ok(file)
        } else {
            Err(Error::missing(
            format!("there is no NOVA hypervisor {}", file.display()),
            "give the file of a NOVA microhypervisor, interface version 10, by --nova or TRAPLINE_NOVA",
        ))
        }
    }

    /// Returns the custom VMM called `name`, with its command for a kind of guest.
    ///
    /// # Errors
    /// None of this name is defined, or its command is invalid.
    pub fn custom_vmm(&self, name: &str, guest: Guest) -> Result<CustomVmm, Error> {
        let vmm = match name {
            OPTION_VMM => self.vmm.clone().ok_or_else(custom_vmm::none_given),
            _ => CustomVmm::defined(name, guest),
        };
        Ok(vmm?.in_directory(&self.vmm_directory))
    }

    /// Returns the directory of recordings, if recordings are to be replayed.
    pub fn recordings(&self) -> Option<PathBuf> {
        let directory = self.replay.as_ref()?;
        Some(self.parts.directory().join(directory))
    }

    /// Returns the QEMU of these settings.
    ///
    /// # Errors
    /// It is missing or too old.
    pub fn qemu(&self) -> Result<Qemu, Error> {
        self.qemu_of(&AMD)
    }

    /// Returns the QEMU of a machine: that of these settings, or the one for its processor beside that.
    ///
    /// # Errors
    /// It is missing or too old.
    pub fn qemu_of(&self, platform: &Platform) -> Result<Qemu, Error> {
        let given = self.qemu.as_ref().map(|given| match platform.program {
            program if program == AMD.program => given.clone(),
            program => given.with_file_name(program),
        });
        Qemu::find(given, platform)
    }

    /// Returns the plugin of these parts after a test load, see [`Plugin::load`].
    ///
    /// # Errors
    /// It is missing, or this QEMU cannot load it.
    pub fn load_plugin(&self, ready: &str) -> Result<Plugin, Error> {
        Plugin::load(self.parts.get(Part::Plugin)?, &self.qemu()?, ready)
    }
}
