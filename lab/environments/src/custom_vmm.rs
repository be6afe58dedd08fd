//! Guests of custom VMMs: the image or a Linux in one on this host, and what simulated machines have in common with it.

use crate::launch::BootClock;
use crate::linux_guest::Linux;
use crate::process_guest::GuestCommand;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use trapline_abi::job::Fault;
use trapline_abi::Job;
use trapline_host::custom_vmm::{CustomGuest, CustomVmm};
use trapline_host::draft::WorkDirectory;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{Error, Facts};
use trapline_model::GuestConfig;
use trapline_sim::image_format::{self, raw};
use trapline_sim::script::Script;
use trapline_sim::settings::Settings;

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
        converted: PathBuf::new(),
        initramfs: PathBuf::new(),
        options: String::new(),
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
    if let Some(text) = custom.contained_command_line(job) {
        let image = custom.converted.to_string_lossy();
        script.overwrite(&image, raw::COMMAND_LINE, &text);
    }
    script.launch_foreign(command, custom.is_wrapped);
}

/// A guest in a custom VMM, with a home directory for the VMM and the files that Trapline makes for it.
pub struct GuestInCustomVmm {
    custom: CustomGuest,
    facts: Facts,
    /// Removed when dropped.
    _home: WorkDirectory,
}

impl GuestInCustomVmm {
    /// Returns the image in `vmm`.
    ///
    /// # Errors
    /// Its program does not exist, or no file can be written.
    pub fn image(
        vmm: CustomVmm,
        image: &Path,
        guest: &GuestConfig,
        ring: u8,
    ) -> Result<Self, Error> {
        let home = WorkDirectory::temporary()?;
        let converted = home.path().join("image");
        if let Some(bytes) = image_format::converted(image, vmm.format(), guest.memory_mib)? {
            std::fs::write(&converted, bytes).map_err(Error::file(&converted))?;
        }
        Ok(Self {
            custom: CustomGuest {
                converted,
                config: home.path().join("config"),
                home: home.path().to_owned(),
                ..custom_guest(vmm, image, guest, ring)?
            },
            facts: Facts::new(),
            _home: home,
        })
    }

    /// Returns a Linux guest in `vmm`.
    ///
    /// # Errors
    /// A program, a part or the kernel does not exist, or no file can be written.
    pub fn linux(vmm: CustomVmm, settings: &Settings, guest: &GuestConfig) -> Result<Self, Error> {
        let home = WorkDirectory::temporary()?;
        let linux = Linux::new(settings, guest)?;
        let initramfs = home.path().join("initramfs");
        std::fs::write(&initramfs, linux.root.bytes()?).map_err(Error::file(&initramfs))?;
        Ok(Self {
            custom: CustomGuest {
                initramfs,
                options: linux.options(),
                config: home.path().join("config"),
                home: home.path().to_owned(),
                ..custom_guest(vmm, &linux.kernel, guest, 0)?
            },
            facts: linux.facts()?,
            _home: home,
        })
    }
}

/// Writes a text with a terminating zero over bytes of a file.
fn overwrite(path: &Path, offset: u64, text: &str) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    file.write_all_at(&[text.as_bytes(), b"\0"].concat(), offset)
}

impl GuestCommand for GuestInCustomVmm {
    fn command(&self, job: &Job) -> Result<Command, Error> {
        let config = &self.custom.config;
        if let Some(text) = self.custom.config_text(job) {
            std::fs::write(config, text).map_err(Error::file(config))?;
        }
        if let Some(text) = self.custom.contained_command_line(job) {
            let image = &self.custom.converted;
            overwrite(image, raw::COMMAND_LINE, &text).map_err(Error::file(image))?;
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

    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn custom(&self) -> Option<&CustomGuest> {
        Some(&self.custom)
    }
}
