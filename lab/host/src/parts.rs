//! Trapline's own programs and files.

use crate::{hexadecimal, sha256_of_file, Error};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of Trapline that environments use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The virtual machine monitor.
    Vmm,
    /// The virtual machine monitor as the root task of NOVA.
    Nova,
    /// The Linux program, also init of simulated machines.
    Agent,
    /// The unikernel.
    Image,
    /// The virtual switch.
    Switch,
    /// The program that reads symbol addresses on a simulated machine.
    Symbols,
    /// The Linux program for 64-bit Arm.
    ArmAgent,
    /// The program that reads symbol addresses, for 64-bit Arm.
    ArmSymbols,
    /// The QEMU plugin that counts executed instructions.
    Plugin,
    /// The library that makes the instruction clock of QEMU reproducible.
    Steady,
}

impl Part {
    /// Returns its file name.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Vmm => "trapline-vmm",
            Self::Nova => "trapline-nova",
            Self::Agent => "trapline-agent",
            Self::Image => "trapline-image",
            Self::Switch => "trapline-switch",
            Self::Symbols => "trapline-symbols",
            Self::ArmAgent => "trapline-agent-arm64",
            Self::ArmSymbols => "trapline-symbols-arm64",
            Self::Plugin => "libtrapline_profile.so",
            Self::Steady => "libtrapline_steady.so",
        }
    }
}

/// Remedy for missing parts, which `cargo install` does not build.
pub const MISSING_PARTS: &str =
    "install the archive or the Debian package, which have all parts ('make dist' makes both), or run \
     'make build' and set TRAPLINE_PARTS to target/dist";

/// Locations of the parts.
#[derive(Clone, Debug)]
pub struct Parts {
    directory: PathBuf,
    /// Directory of plugin and QEMU library, if another.
    instruments: Option<PathBuf>,
    /// Parts replaced by single files.
    replaced: BTreeMap<Part, PathBuf>,
}

impl Parts {
    /// Returns the parts in `directory`.
    pub fn in_directory(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            instruments: None,
            replaced: BTreeMap::new(),
        }
    }

    /// Returns their directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the parts in `directory` with the plugin and QEMU library of `self`, to measure older
    /// commits.
    pub fn measuring(self, directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            instruments: Some(self.instruments.unwrap_or(self.directory)),
            replaced: self.replaced,
        }
    }

    /// Replaces a part by a file.
    pub fn replace(&mut self, part: Part, file: PathBuf) {
        self.replaced.insert(part, file);
    }

    /// Returns the parts in `$TRAPLINE_PARTS`, or in the directory of this program.
    ///
    /// # Errors
    /// The path of this program is unknown.
    pub fn find() -> Result<Self, Error> {
        if let Some(directory) = std::env::var_os("TRAPLINE_PARTS") {
            return Ok(Self::in_directory(directory));
        }
        let program = std::env::current_exe().map_err(Error::file("/proc/self/exe"))?;
        let directory = program.parent().unwrap_or(Path::new("/"));
        Ok(Self::in_directory(directory))
    }

    /// Returns the path of a part.
    ///
    /// # Errors
    /// The file does not exist.
    pub fn get(&self, part: Part) -> Result<PathBuf, Error> {
        let directory = match (part, &self.instruments) {
            (Part::Plugin | Part::Steady, Some(instruments)) => instruments,
            _ => &self.directory,
        };
        let usual = || directory.join(part.file_name());
        let path = self.replaced.get(&part).cloned().unwrap_or_else(usual);
        if path.is_file() {
            return Ok(path);
        }
        let name = part.file_name();
        Err(Error::missing(
            format!("{name} is not in {}", directory.display()),
            MISSING_PARTS,
        ))
    }

    /// Opens a part.
    ///
    /// # Errors
    /// The file does not exist, or cannot be opened.
    pub fn open(&self, part: Part) -> Result<Arc<File>, Error> {
        let path = self.get(part)?;
        let file = File::open(&path).map_err(Error::file(path))?;
        Ok(Arc::new(file))
    }

    /// Returns a hash of image, agent, VMMs and switch, without missing ones.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for part in [
            Part::Image,
            Part::Agent,
            Part::Vmm,
            Part::Nova,
            Part::Switch,
        ] {
            let of_part = self.get(part).and_then(|path| sha256_of_file(&path));
            hash.update(of_part.unwrap_or_default());
        }
        hexadecimal(&hash.finalize()[..8])
    }

    /// Returns the image.
    ///
    /// # Errors
    /// The file does not exist, or cannot be read.
    pub fn image(&self) -> Result<GuestImage, Error> {
        GuestImage::open(self.get(Part::Image)?)
    }
}

/// The unikernel, byte for byte the same in all environments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestImage {
    /// Its file.
    pub path: PathBuf,
    /// SHA-256 of its contents.
    pub sha256: String,
}

impl GuestImage {
    /// Returns the image at `path`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let sha256 = sha256_of_file(&path)?;
        Ok(Self { path, sha256 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn instruments_may_be_in_another_directory() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let steady = here.path().join("libtrapline_steady.so");
        let vmm = there.path().join("trapline-vmm");
        for file in [&steady, &vmm] {
            std::fs::write(file, "").unwrap();
        }
        let parts = Parts::in_directory(here.path()).measuring(there.path());
        assert_eq!(parts.get(Part::Steady).unwrap(), steady);
        assert_eq!(parts.get(Part::Vmm).unwrap(), vmm);
        let further = parts.measuring("/nonexistent");
        assert_eq!(further.get(Part::Steady).unwrap(), steady);
        assert!(further.get(Part::Vmm).is_err());
    }

    #[test]
    fn missing_part_is_named_with_a_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let parts = Parts::in_directory(directory.path());
        let error = parts.get(Part::Vmm).unwrap_err().to_string();
        let place = directory.path().display().to_string();
        expect!["trapline-vmm is not in DIR: install the archive or the Debian package, which have all parts ('make dist' makes both), or run 'make build' and set TRAPLINE_PARTS to target/dist"].assert_eq(&error.replace(&place, "DIR"));
        std::fs::write(directory.path().join("trapline-image"), "abc").unwrap();
        let image = parts.image().unwrap();
        // Example of FIPS 180-2.
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(image.sha256, known);
    }
}
