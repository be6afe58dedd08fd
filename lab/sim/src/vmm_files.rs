//! Files of a custom VMM: what travels with it to a simulated machine, and what its figures depend on.

use crate::closure;
use crate::initramfs::Archive;
use rustix::fs::{access, Access};
use std::path::{Path, PathBuf};
use trapline_host::custom_vmm::CustomVmm;
use trapline_host::{sha256_of_file, sha256_of_files, Error, Facts};

/// Size limit of each file, in MiB.
const MAX_FILE_MIB: u64 = 256;

/// Digits of a hash among several in a fact.
const SHORT_HASH: usize = 16;

/// Files of a custom VMM on this host.
pub struct VmmFiles {
    program: PathBuf,
    /// The files that its command names, in that order: a program behind a wrapper, firmware.
    named: Vec<PathBuf>,
    /// The files that these need: interpreters of scripts, libraries.
    needed: Vec<PathBuf>,
}

impl VmmFiles {
    /// Returns the files of `vmm`.
    ///
    /// # Errors
    /// Its program does not exist.
    pub fn of(vmm: &CustomVmm) -> Result<Self, Error> {
        let program = vmm.program()?;
        let named = vmm.files();
        let all = named.iter().chain([&program]);
        let mut needed: Vec<PathBuf> = all.flat_map(|path| closure::needed(path)).collect();
        needed.sort();
        needed.dedup();
        Ok(Self {
            program,
            named,
            needed,
        })
    }

    /// Returns whether the program may be a wrapper, which starts the VMM: it is a script, or another file can be
    /// executed.
    pub fn has_wrapper(&self) -> bool {
        let can_be_executed = |path: &PathBuf| access(path, Access::EXEC_OK).is_ok();
        closure::is_script(&self.program) || self.named.iter().any(can_be_executed)
    }

    /// Adds all files to a machine, at the same paths.
    ///
    /// # Errors
    /// One cannot be read, or is too large.
    pub fn add_to(&self, archive: &mut Archive) -> Result<(), Error> {
        for path in self.all() {
            check_size(path)?;
            closure::add_file(archive, path)?;
        }
        Ok(())
    }

    /// Returns the hashes of the files, by name of the fact.
    pub fn facts(&self) -> Facts {
        let mut facts = Facts::new();
        if let Ok(hash) = sha256_of_file(&self.program) {
            facts.insert("custom-vmm-sha256".to_owned(), hash);
        }
        let named = self.named.iter().filter_map(|path| {
            let hash = sha256_of_file(path).ok()?;
            Some(format!("{} {}", path.display(), &hash[..SHORT_HASH]))
        });
        let named = named.collect::<Vec<_>>().join(", ");
        if !named.is_empty() {
            facts.insert("custom-vmm-files".to_owned(), named);
        }
        let others = sha256_of_files(self.all().skip(1));
        facts.extend(others.map(|hash| ("custom-vmm-files-sha256".to_owned(), hash)));
        facts
    }

    /// Returns all files, the program first.
    fn all(&self) -> impl Iterator<Item = &Path> {
        let others = self.named.iter().chain(&self.needed);
        [&self.program]
            .into_iter()
            .chain(others)
            .map(PathBuf::as_path)
    }
}

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

    /// A wrapper's own hash does not change with the program behind it.
    #[test]
    fn program_behind_a_wrapper_changes_the_facts() {
        let directory = tempfile::tempdir().unwrap();
        let named = directory.path().join("vmm");
        let facts = |content: &str| {
            std::fs::write(&named, content).unwrap();
            let vmm = "env A=B ./vmm {image} {cmdline}"
                .parse::<CustomVmm>()
                .unwrap();
            VmmFiles::of(&vmm.in_directory(directory.path()))
                .unwrap()
                .facts()
        };
        let (one, other) = (facts("a VMM"), facts("other VMM"));
        let differing: Vec<_> = one
            .iter()
            .filter(|fact| !other.iter().any(|it| it == *fact))
            .collect();
        let names: Vec<_> = differing.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["custom-vmm-files", "custom-vmm-files-sha256"]);
        let file = named.display().to_string();
        assert!(one["custom-vmm-files"].starts_with(&file), "{one:?}");
    }
}
