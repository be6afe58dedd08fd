//! A custom VMM on the simulated machine. Its program, shared libraries and the files that its command names
//! have the same paths as on this host.

use super::contents::Contents;
use super::guests::GuestKind;
use super::inner::{INITRD, KERNEL};
use crate::custom_vmm::{custom_guest, ENDLESS};
use crate::launch::ClockOffset;
use crate::linux_guest::Linux;
use std::path::{Path, PathBuf};
use trapline_abi::Job;
use trapline_host::custom_vmm::{CustomGuest, CustomVmm};
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{Error, Facts};
use trapline_model::GuestConfig;
use trapline_sim::base::Base;
use trapline_sim::initramfs::{add_as, Archive};
use trapline_sim::kernel::Maker;
use trapline_sim::module::Module;
use trapline_sim::script::Script;
use trapline_sim::settings::Settings;
use trapline_sim::vmm_files::VmmFiles;
use trapline_sim::{drivers, image_format, IMAGE};

/// Modules for network cards of guests.
const DRIVERS: [&str; 1] = ["tun"];

/// The image in another format, and the configuration file, on the machine.
const CONVERTED: &str = "/trapline/converted-image";
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
    let inner = InnerCustomVmm::new(settings, vmm, Path::new(IMAGE), guest, System::Image(image))?;
    Ok(Box::new(inner))
}

/// Returns the custom VMM with its files, and a Linux guest.
///
/// # Errors
/// Its program, a part, the kernel or a module does not exist.
pub fn linux_contents(
    settings: &Settings,
    vmm: CustomVmm,
    guest: &GuestConfig,
) -> Result<Box<dyn Contents>, Error> {
    let linux = Linux::new(settings, guest)?;
    let options = linux.options();
    let system = System::Linux(linux);
    let mut inner = InnerCustomVmm::new(settings, vmm, Path::new(KERNEL), guest, system)?;
    inner.custom.initramfs = INITRD.into();
    inner.custom.options = options;
    Ok(Box::new(inner))
}

struct InnerCustomVmm {
    custom: CustomGuest,
    files: VmmFiles,
    modules: Vec<Module>,
    system: System,
}

/// The system of the guest.
enum System {
    /// The image at this path of this host.
    Image(PathBuf),
    Linux(Linux),
}

impl InnerCustomVmm {
    /// Returns a VMM for the guest whose file is at `image` on the machine.
    fn new(
        settings: &Settings,
        vmm: CustomVmm,
        image: &Path,
        guest: &GuestConfig,
        system: System,
    ) -> Result<Self, Error> {
        let files = VmmFiles::of(&vmm)?;
        let custom = CustomGuest {
            converted: CONVERTED.into(),
            config: CONFIG.into(),
            home: HOME.into(),
            is_wrapped: files.has_wrapper(),
            ..custom_guest(vmm, image, guest, 0)?
        };
        Ok(Self {
            custom,
            files,
            modules: drivers::chosen(settings, &DRIVERS)?,
            system,
        })
    }
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
        match &self.system {
            System::Image(image) => {
                let (format, guest) = (self.custom.vmm.format(), &self.custom.machine);
                let converted = image_format::converted(image, format, guest.memory_mib)?;
                if let Some(bytes) = converted {
                    archive.file(CONVERTED, bytes);
                }
                add_as(archive, IMAGE, image)
            }
            System::Linux(linux) => {
                archive.file(INITRD, linux.root.bytes()?);
                add_as(archive, KERNEL, &linux.kernel)
            }
        }
    }

    fn base(&self, settings: &Settings, maker: Maker) -> Result<Base, Error> {
        match self.system {
            System::Image(_) => Base::linux(settings, maker),
            System::Linux(_) => Base::linux_with_linux_guests(settings, maker),
        }
    }

    fn facts(&self) -> Result<Facts, Error> {
        match &self.system {
            System::Image(_) => Ok(Facts::new()),
            System::Linux(linux) => linux.facts(),
        }
    }

    fn prepare(&self, script: &mut Script) {
        let modules = self.modules.iter();
        modules.for_each(|module| script.module(&module_path(module), module.options));
    }

    fn command(&self, job: &Job) -> Command {
        self.custom.command(job)
    }

    fn located_command(&self) -> Option<Command> {
        let is_image = matches!(self.system, System::Image(_));
        is_image.then(|| self.custom.command(&ENDLESS))
    }
}

fn module_path(module: &Module) -> String {
    format!("/trapline/{}.ko", module.name)
}
