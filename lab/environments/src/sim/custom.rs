//! The environment of a VMM that the user gave, on the simulated machine: its
//! program, the libraries that it is linked to and the files that its command
//! names, each where it is on this host.

use super::guests::GuestKind;
use super::linux::Contents;
use crate::observe::Offset;
use crate::wall::foreign;
use std::path::{Path, PathBuf};
use trapline_abi::job::Fault;
use trapline_abi::Job;
use trapline_host::custom_vmm::CustomGuest;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::Error;
use trapline_model::GuestConfig;
use trapline_sim::initramfs::{add_as, Archive};
use trapline_sim::settings::Settings;
use trapline_sim::{bzimage, closure, IMAGE};

/// The user's VMM with all that it needs, and the image.
///
/// # Errors
/// There is none, or its program is not there.
pub fn contents(
    settings: &Settings,
    image: PathBuf,
    machine: &GuestConfig,
) -> Result<Box<dyn Contents>, Error> {
    let foreign = CustomGuest {
        bzimage: BZIMAGE.into(),
        ..foreign(settings, Path::new(IMAGE), machine, 0)?
    };
    Ok(Box::new(Packed { foreign, image }))
}

/// Where the machine has the image as a bzImage.
const BZIMAGE: &str = "/trapline/bzimage";

/// The VMM with all that it needs, and the image.
struct Packed {
    foreign: CustomGuest,
    /// The image on this host.
    image: PathBuf,
}

impl Contents for Packed {
    fn guest_kind(&self) -> GuestKind {
        GuestKind {
            // Not evaluated for custom VMMs.
            exit_codes: ExitCodes::AGENT,
            offset: Offset::Heard,
            program: "the VMM",
            custom: Some(self.foreign.clone()),
        }
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), Error> {
        add(archive, &self.foreign, &self.image)
    }

    fn command(&self, job: &Job) -> Command {
        self.foreign.command(job)
    }

    /// It stays for as long as its guest does nothing.
    fn observed(&self) -> Option<Command> {
        Some(self.foreign.command(&Job {
            fault: Some(Fault::Hang),
            ..Job::EMPTY
        }))
    }
}

/// What each file of a user's VMM may take of the machine's memory, in MiB.
const MOST_PACKED: u64 = 256;

/// # Errors
/// It is too large for the machine, a disk perhaps.
fn check_size(path: &Path) -> Result<(), Error> {
    let size = std::fs::metadata(path).map_err(Error::file(path))?.len() >> 20;
    if size <= MOST_PACKED {
        return Ok(());
    }
    Err(Error::unavailable(format!(
        "{} has {size} MiB, and at most {MOST_PACKED} MiB can be put on the simulated \
         machine: leave it out of --vmm",
        path.display()
    )))
}

/// A program that the command names is packed with its own libraries.
fn add(archive: &mut Archive, foreign: &CustomGuest, image: &Path) -> Result<(), Error> {
    let named = foreign.vmm.files();
    for path in named.iter().chain([&foreign.program]) {
        check_size(path)?;
    }
    closure::add(archive, &foreign.program)?;
    for file in &named {
        closure::add(archive, file)?;
    }
    if foreign.vmm.wants_bzimage() {
        archive.file(BZIMAGE, bzimage::of(image)?);
    }
    add_as(archive, IMAGE, image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_too_large_for_the_machine() {
        let disk = tempfile::NamedTempFile::new().unwrap();
        assert!(check_size(disk.path()).is_ok());
        // Without a single block on the host's disk.
        disk.as_file().set_len(300 << 20).unwrap();
        let error = check_size(disk.path()).unwrap_err().to_string();
        assert!(error.contains("has 300 MiB"), "{error}");
    }
}
