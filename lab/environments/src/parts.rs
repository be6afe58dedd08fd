//! Trapline's own programs and files, and the hashes that say which they were.

use crate::error::EnvError;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A part of Trapline beside the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The virtual machine monitor.
    Vmm,
    /// The Linux program, also init of simulated machines.
    Agent,
    /// The unikernel.
    Image,
    /// The program that tells where code lies on a simulated machine.
    Symbols,
    /// The plugin for QEMU that counts what is executed.
    Plugin,
    /// What keeps the clock of a QEMU steady that counts instructions.
    Steady,
}

impl Part {
    /// Its file name.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Vmm => "trapline-vmm",
            Self::Agent => "trapline-agent",
            Self::Image => "trapline-image",
            Self::Symbols => "trapline-symbols",
            Self::Plugin => "libtrapline_ledger.so",
            Self::Steady => "libtrapline_steady.so",
        }
    }
}

/// The directory that has the parts.
#[derive(Clone, Debug)]
pub struct Parts {
    /// What is measured.
    directory: PathBuf,
    /// What it is measured with, if that is elsewhere.
    instruments: Option<PathBuf>,
    /// Parts that lie by themselves.
    replaced: BTreeMap<Part, PathBuf>,
}

impl Parts {
    /// The parts in `directory`.
    pub fn in_directory(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            instruments: None,
            replaced: BTreeMap::new(),
        }
    }

    /// Those in `directory`, measured with the instruments of these: a commit that is
    /// searched may be older than they are.
    pub fn measuring(self, directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            instruments: Some(self.instruments.unwrap_or(self.directory)),
            replaced: self.replaced,
        }
    }

    /// Lets a file stand in for a part.
    pub fn replace(&mut self, part: Part, file: PathBuf) {
        self.replaced.insert(part, file);
    }

    /// The parts in $TRAPLINE_PARTS, or beside the program that runs.
    ///
    /// # Errors
    /// The kernel does not say where that is.
    pub fn find() -> Result<Self, EnvError> {
        if let Some(directory) = std::env::var_os("TRAPLINE_PARTS") {
            return Ok(Self::in_directory(directory));
        }
        let program = std::env::current_exe().map_err(EnvError::file("/proc/self/exe"))?;
        let directory = program.parent().unwrap_or(Path::new("/"));
        Ok(Self::in_directory(directory))
    }

    /// The file of a part.
    ///
    /// # Errors
    /// It is not there.
    pub fn get(&self, part: Part) -> Result<PathBuf, EnvError> {
        let directory = match (part, &self.instruments) {
            (Part::Plugin | Part::Steady, Some(instruments)) => instruments,
            _ => &self.directory,
        };
        let usual = || directory.join(part.file_name());
        let path = self.replaced.get(&part).cloned().unwrap_or_else(usual);
        if path.is_file() {
            return Ok(path);
        }
        Err(EnvError::PartMissing {
            name: part.file_name(),
            directory: directory.clone(),
        })
    }

    /// The file of a part, to be read.
    ///
    /// # Errors
    /// It is not there, or cannot be opened.
    pub fn open(&self, part: Part) -> Result<Arc<File>, EnvError> {
        let path = self.get(part)?;
        let file = File::open(&path).map_err(EnvError::file(path))?;
        Ok(Arc::new(file))
    }

    /// What tells this build of what is measured from others: of image, agent and VMM, as far
    /// as they are there.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for part in [Part::Image, Part::Agent, Part::Vmm] {
            let of_part = self.get(part).and_then(|path| sha256_of_file(&path));
            hash.update(of_part.unwrap_or_default());
        }
        hexadecimal(&hash.finalize()[..8])
    }

    /// The image.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    pub fn image(&self) -> Result<GuestImage, EnvError> {
        GuestImage::open(self.get(Part::Image)?)
    }
}

/// The unikernel: one file, byte for byte the same in every environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestImage {
    /// The file.
    pub path: PathBuf,
    /// The SHA-256 of its bytes.
    pub sha256: String,
}

impl GuestImage {
    /// The image at `path`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, EnvError> {
        let path = path.into();
        let sha256 = sha256_of_file(&path)?;
        Ok(Self { path, sha256 })
    }
}

/// The SHA-256 of a file's bytes, in hexadecimal.
///
/// # Errors
/// It cannot be read.
pub fn sha256_of_file(path: &Path) -> Result<String, EnvError> {
    let mut hash = Sha256::new();
    let mut file = File::open(path).map_err(EnvError::file(path))?;
    io::copy(&mut file, &mut hash).map_err(EnvError::file(path))?;
    Ok(hexadecimal(&hash.finalize()))
}

/// Bytes in hexadecimal.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_and_what_measures_may_lie_apart() {
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
    fn a_part_is_found_or_its_absence_explained() {
        let directory = tempfile::tempdir().unwrap();
        let parts = Parts::in_directory(directory.path());
        let error = parts.get(Part::Vmm).unwrap_err().to_string();
        assert!(error.starts_with("trapline-vmm is not in "), "{error}");
        std::fs::write(directory.path().join("trapline-image"), "abc").unwrap();
        let image = parts.image().unwrap();
        // The example of FIPS 180-2.
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(image.sha256, known);
    }
}
