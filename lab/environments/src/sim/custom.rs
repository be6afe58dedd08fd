//! A custom VMM on the simulated machine. Its program, shared libraries and the files that its command names
//! have the same paths as on this host.

use super::contents::Contents;
use super::guests::GuestKind;
use crate::launch::ClockOffset;
use crate::wall::custom_guest;
use std::path::{Path, PathBuf};
use trapline_abi::job::Fault;
use trapline_abi::Job;
use trapline_host::custom_vmm::{CustomGuest, CustomVmm};
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::Error;
use trapline_model::GuestConfig;
use trapline_sim::initramfs::{add_as, Archive};
use trapline_sim::{bzimage, closure, IMAGE};

/// Returns the custom VMM with its files, and the image.
///
/// # Errors
/// Its program does not exist.
pub fn contents(
    vmm: CustomVmm,
    image: PathBuf,
    guest: &GuestConfig,
) -> Result<Box<dyn Contents>, Error> {
    let custom = CustomGuest {
        bzimage: BZIMAGE.into(),
        ..custom_guest(vmm, Path::new(IMAGE), guest, 0)?
    };
    Ok(Box::new(InnerCustomVmm { custom, image }))
}

/// The image as a bzImage on the machine.
const BZIMAGE: &str = "/trapline/bzimage";

struct InnerCustomVmm {
    custom: CustomGuest,
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
        add(archive, &self.custom, &self.image)
    }

    fn command(&self, job: &Job) -> Command {
        self.custom.command(job)
    }

    /// With a guest that hangs, the VMM does not exit.
    fn located_command(&self) -> Option<Command> {
        Some(self.custom.command(&Job {
            fault: Some(Fault::Hang),
            ..Job::EMPTY
        }))
    }
}

/// Size limit of each file of a custom VMM, in MiB.
const MAX_FILE_MIB: u64 = 256;

/// # Errors
/// The file is too large for the machine's memory.
fn check_size(path: &Path) -> Result<(), Error> {
    let size = std::fs::metadata(path).map_err(Error::file(path))?.len() >> 20;
    if size <= MAX_FILE_MIB {
        return Ok(());
    }
    Err(Error::missing(
        format!(
            "{} has {size} MiB, and the limit for files on the simulated machine is {MAX_FILE_MIB} MiB",
            path.display()
        ),
        "leave it out of the command",
    ))
}

/// Adds the files of the command; programs among them with their libraries.
fn add(archive: &mut Archive, custom: &CustomGuest, image: &Path) -> Result<(), Error> {
    let named = custom.vmm.files();
    for path in named.iter().chain([&custom.program]) {
        check_size(path)?;
    }
    closure::add(archive, &custom.program)?;
    for file in &named {
        closure::add(archive, file)?;
    }
    if custom.vmm.wants_bzimage() {
        archive.file(BZIMAGE, bzimage::of(image)?);
    }
    add_as(archive, IMAGE, image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn large_file_is_rejected() {
        let disk = tempfile::NamedTempFile::new().unwrap();
        assert!(check_size(disk.path()).is_ok());
        // A sparse file.
        disk.as_file().set_len(300 << 20).unwrap();
        let error = check_size(disk.path()).unwrap_err().to_string();
        let path = disk.path().display().to_string();
        expect!["FILE has 300 MiB, and the limit for files on the simulated machine is 256 MiB: leave it out of the command"].assert_eq(&error.replace(&path, "FILE"));
    }
}
