//! A Linux in `trapline-vmm`, with the kernel of the machine.

use super::super::inner::{INITRD, KERNEL};
use super::HostSystem;
use crate::linux_guest::KERNEL_OPTIONS;
use crate::vmm_command::linux_command;
use std::path::{Path, PathBuf};
use trapline_host::process::Command;
use trapline_host::{Error, Part};
use trapline_model::GuestConfig;
use trapline_sim::bochs::unpack;
use trapline_sim::initramfs::{add_program, Archive};
use trapline_sim::listener::Emulator;
use trapline_sim::settings::Settings;
use trapline_sim::VMM;

pub struct LinuxInTrapline {
    vmm: PathBuf,
    kernel: Vec<u8>,
}

impl LinuxInTrapline {
    /// Returns a Linux with the kernel in a file.
    ///
    /// # Errors
    /// The VMM is missing, or the kernel cannot be read.
    pub fn new(settings: &Settings, kernel: &Path) -> Result<Self, Error> {
        Ok(Self {
            vmm: settings.parts.get(Part::Vmm)?,
            kernel: unpacked(kernel)?,
        })
    }
}

impl HostSystem for LinuxInTrapline {
    fn emulator(&self) -> Emulator {
        Emulator::TRAPLINE_VMM
    }

    fn own_memory_mib(&self) -> u32 {
        512
    }

    fn options(&self) -> &str {
        KERNEL_OPTIONS
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), Error> {
        archive.file(KERNEL, self.kernel.clone());
        add_program(archive, VMM, &self.vmm)
    }

    fn command(&self, guest: &GuestConfig, word: &str) -> Command {
        let line = format!("{KERNEL_OPTIONS} {word}");
        let vmm = Command::new(VMM).arg("--no-pv-eoi");
        let initrd = |command: Command| command.arg(INITRD);
        linux_command(vmm, Path::new(KERNEL), initrd, guest, &line)
    }
}

/// Returns the kernel as an ELF file: unpacking itself would take longer than its boot.
fn unpacked(image: &Path) -> Result<Vec<u8>, Error> {
    let file = std::fs::read(image).map_err(Error::file(image))?;
    unpack::kernel(&file).map_err(Error::file(image))
}
