//! Guests of custom VMMs: the image in one on this host, and what simulated machines have in common with it.

use crate::launch::BootClock;
use crate::process_guest::GuestCommand;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use trapline_abi::job::Fault;
use trapline_abi::Job;
use trapline_host::custom_vmm::{CustomGuest, CustomVmm};
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::Error;
use trapline_model::GuestConfig;
use trapline_sim::bzimage;
use trapline_sim::script::Script;

/// Returns a custom VMM with the image at `image`, without files of its own.
///
/// # Errors
/// Its program does not exist.
pub fn custom_guest(
    vmm: CustomVmm,
    image: &Path,
    guest: &GuestConfig,
    ring: u8,
) -> Result<CustomGuest, Error> {
    Ok(CustomGuest {
        program: vmm.program()?,
        vmm,
        image: image.to_owned(),
        bzimage: PathBuf::new(),
        config: PathBuf::new(),
        home: PathBuf::new(),
        is_wrapped: false,
        machine: *guest,
        ring,
    })
}

/// A job of a guest that does not end, so that its VMM does not exit either.
pub const ENDLESS: Job = Job {
    fault: Some(Fault::Hang),
    ..Job::EMPTY
};

/// Adds the launch of a custom VMM on a simulated machine, by `command` for `job`.
pub fn launch(script: &mut Script, custom: &CustomGuest, command: &Command, job: &Job) {
    if let Some(text) = custom.config_text(job) {
        script.file(&custom.config.to_string_lossy(), &text);
    }
    script.launch_foreign(command, custom.is_wrapped);
}

/// The image in a custom VMM, with a home directory for the VMM and the files that Trapline makes for it.
pub struct ImageInCustomVmm {
    custom: CustomGuest,
    /// Removed when dropped.
    _home: TempDir,
}

impl ImageInCustomVmm {
    /// Returns the image in `vmm`.
    ///
    /// # Errors
    /// Its program does not exist, or no file can be written.
    pub fn new(vmm: CustomVmm, image: &Path, guest: &GuestConfig, ring: u8) -> Result<Self, Error> {
        let home = TempDir::new().map_err(Error::file(std::env::temp_dir()))?;
        let bzimage = home.path().join("bzimage");
        if vmm.wants_bzimage() {
            std::fs::write(&bzimage, bzimage::of(image)?).map_err(Error::file(&bzimage))?;
        }
        Ok(Self {
            custom: CustomGuest {
                bzimage,
                config: home.path().join("config"),
                home: home.path().to_owned(),
                ..custom_guest(vmm, image, guest, ring)?
            },
            _home: home,
        })
    }
}

impl GuestCommand for ImageInCustomVmm {
    fn command(&self, job: &Job) -> Result<Command, Error> {
        let config = &self.custom.config;
        if let Some(text) = self.custom.config_text(job) {
            std::fs::write(config, text).map_err(Error::file(config))?;
        }
        Ok(self.custom.command(job))
    }

    /// Not evaluated for custom VMMs.
    fn exit_codes(&self) -> ExitCodes {
        ExitCodes::AGENT
    }

    fn clock(&self) -> BootClock {
        BootClock::Guest
    }

    fn custom(&self) -> Option<&CustomGuest> {
        Some(&self.custom)
    }
}
