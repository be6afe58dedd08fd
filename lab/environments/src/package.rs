//! A program of one of the distribution's packages, downloaded and unpacked into the cache
//! as kernels are, never installed.
//!
//! What was downloaded once is kept and used from then on; it appears in its place
//! complete or not at all.

use crate::cache::{Cache, Kind};
use crate::sim::kernel::{self, KernelError};
use std::fs;
use std::path::{Path, PathBuf};

/// A package, and those of libraries that not every host has.
pub struct Package {
    /// Which entry of the cache it is.
    pub kind: Kind,
    /// The package of the program, and others that are unpacked with it.
    pub names: &'static [&'static str],
    /// Where they have the program.
    pub program: &'static str,
    /// What is not kept.
    pub without: &'static [&'static str],
}

impl Package {
    /// Its directory in the cache, if it was fetched before; of several the last by name.
    pub fn in_cache(&self, cache: &Cache) -> Option<PathBuf> {
        let entries = fs::read_dir(cache.of(self.kind)).ok()?.flatten();
        let complete = entries.map(|entry| entry.path());
        complete
            .filter(|path| path.join(self.program).is_file())
            .max()
    }

    /// The same, or else downloaded into it.
    ///
    /// # Errors
    /// It is not in the cache and cannot be had.
    pub fn fetched(&self, cache: &Cache) -> Result<PathBuf, KernelError> {
        match self.in_cache(cache) {
            Some(directory) => Ok(directory),
            None => self.download(cache),
        }
    }

    /// Whether the distribution is known to have it.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn is_known(&self) -> Result<bool, KernelError> {
        let shown = kernel::run("apt-cache", &["show", self.names[0]], Path::new("/"))?;
        Ok(shown.status.success())
    }

    fn download(&self, cache: &Cache) -> Result<PathBuf, KernelError> {
        let place = cache.of(self.kind);
        fs::create_dir_all(&place).map_err(KernelError::file(&place))?;
        let work = kernel::work_in(&place)?;
        kernel::download_all(self.names.iter().copied(), work.path())?;
        let main = self.names[0];
        let name = kernel::unpack_all(work.path(), main)?;
        let unpacked = work.path().join("unpacked");
        for left_out in self.without {
            let path = unpacked.join(left_out);
            fs::remove_dir_all(&path).map_err(KernelError::file(&path))?;
        }
        let directory = place.join(name.unwrap_or_else(|| main.to_owned()));
        match fs::rename(&unpacked, &directory) {
            // Somebody else was as quick; what is there is complete as well.
            Err(_) if directory.join(self.program).is_file() => Ok(directory),
            Err(error) => Err(KernelError::file(&directory)(error)),
            Ok(()) => Ok(directory),
        }
    }
}

/// What facts say of a directory of the cache.
pub fn origin(directory: &Path) -> String {
    let name = directory.file_name().unwrap_or_default();
    format!("package {}", name.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_download_is_never_used() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache {
            directory: directory.path().to_owned(),
            limit: 0,
        };
        let package = Package {
            kind: Kind::RtTests,
            names: &["rt-tests"],
            program: "usr/bin/cyclictest",
            without: &[],
        };
        let place = cache.of(Kind::RtTests).join("rt-tests_2.4-1");
        fs::create_dir_all(place.join("usr/bin")).unwrap();
        assert_eq!(package.in_cache(&cache), None);
        fs::write(place.join(package.program), "").unwrap();
        assert_eq!(package.in_cache(&cache), Some(place.clone()));
        assert_eq!(origin(&place), "package rt-tests_2.4-1");
    }
}
