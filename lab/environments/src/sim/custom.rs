//! A custom VMM on the simulated machine. Its program, shared libraries and the files that its command names
//! have the same paths as on this host.

use super::contents::Contents;
use super::guests::GuestKind;
use crate::custom_vmm::{custom_guest, ENDLESS};
use crate::launch::ClockOffset;
use std::path::{Path, PathBuf};
use trapline_abi::Job;
use trapline_host::custom_vmm::{CustomGuest, CustomVmm};
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::Error;
use trapline_model::GuestConfig;
use trapline_sim::initramfs::{add_as, Archive};
use trapline_sim::module::Module;
use trapline_sim::script::Script;
use trapline_sim::settings::Settings;
use trapline_sim::vmm_files::VmmFiles;
use trapline_sim::{bzimage, drivers, IMAGE};

/// Modules for network cards of guests.
const DRIVERS: [&str; 1] = ["tun"];

/// The image as a bzImage, and the configuration file, on the machine.
const BZIMAGE: &str = "/trapline/bzimage";
const CONFIG: &str = "/trapline/config";

/// Home directory of the VMM on the machine.
const HOME: &str = "/root";

/// Returns the custom VMM with its files, and the image.
///
/// # Errors
/// Its program or a module does not exist.
pub fn contents(
    settings: &Settings,
    vmm: CustomVmm,
    image: PathBuf,
    guest: &GuestConfig,
) -> Result<Box<dyn Contents>, Error> {
    let files = VmmFiles::of(&vmm)?;
    let custom = CustomGuest {
        bzimage: BZIMAGE.into(),
        config: CONFIG.into(),
        home: HOME.into(),
        is_wrapped: files.has_wrapper(),
        ..custom_guest(vmm, Path::new(IMAGE), guest, 0)?
    };
    Ok(Box::new(InnerCustomVmm {
        custom,
        files,
        modules: drivers::chosen(settings, &DRIVERS)?,
        image,
    }))
}

struct InnerCustomVmm {
    custom: CustomGuest,
    files: VmmFiles,
    modules: Vec<Module>,
    /// The image on this host.
    image: PathBuf,
}

impl Contents for InnerCustomVmm {
    fn guest_kind(&self) -> GuestKind {
        GuestKind {
            custom: Some(self.custom.clone()),
            // Exit codes are not evaluated for custom VMMs.
            ..GuestKind::new("the VMM", ExitCodes::AGENT, ClockOffset::Unknown)
        }
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), Error> {
        archive.directory(HOME);
        for module in &self.modules {
            archive.file(module_path(module), module.bytes.clone());
        }
        self.files.add_to(archive)?;
        if self.custom.vmm.wants_bzimage() {
            archive.file(BZIMAGE, bzimage::of(&self.image)?);
        }
        add_as(archive, IMAGE, &self.image)
    }

    fn prepare(&self, script: &mut Script) {
        let modules = self.modules.iter();
        modules.for_each(|module| script.module(&module_path(module), module.options));
    }

    fn command(&self, job: &Job) -> Command {
        self.custom.command(job)
    }

    fn located_command(&self) -> Option<Command> {
        Some(self.custom.command(&ENDLESS))
    }
}

fn module_path(module: &Module) -> String {
    format!("/trapline/{}.ko", module.name)
}
