//! The programs of a fleet: copied into its directory, so that all machines run the same, and none what it has installed.

use crate::error::FleetError;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use trapline_host::sha256_of_file;

/// File name of the program that executes slices.
pub const PROGRAM: &str = "trapline";

/// Hash of each file by its name.
pub type Files = BTreeMap<String, String>;

/// Copies the program and the parts in a directory, and returns their hashes.
pub fn copy(program: &Path, parts: &Path, to: &Path) -> Result<Files, FleetError> {
    let mut files = Files::new();
    for entry in fs::read_dir(parts)
        .map_err(FleetError::file(parts))?
        .flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_part = name.starts_with("trapline-") || name.starts_with("libtrapline_");
        if is_part && entry.path().is_file() {
            files.insert(name.clone(), copy_file(&entry.path(), &to.join(&name))?);
        }
    }
    let hash = copy_file(program, &to.join(PROGRAM))?;
    files.insert(PROGRAM.to_owned(), hash);
    Ok(files)
}

fn copy_file(from: &Path, to: &Path) -> Result<String, FleetError> {
    fs::copy(from, to).map_err(FleetError::file(from))?;
    hash(to)
}

fn hash(path: &Path) -> Result<String, FleetError> {
    sha256_of_file(path).map_err(|error| {
        FleetError::new(
            error.to_string(),
            "create the fleet again, in another directory",
        )
    })
}

/// Checks all files of a package, before any of them is executed.
pub fn verify(package: &Path, files: &Files) -> Result<(), FleetError> {
    for (name, expected) in files {
        let found = hash(&package.join(name))?;
        if found != *expected {
            return Err(FleetError::new(
                format!(
                    "{} is damaged: its SHA-256 is {found}",
                    package.join(name).display()
                ),
                "create the fleet again, in another directory",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_or_missing_file_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let [parts, to] = ["parts", "to"].map(|name| folder.path().join(name));
        for directory in [&parts, &to] {
            fs::create_dir(directory).unwrap();
        }
        for name in [
            "trapline-vmm",
            "libtrapline_steady.so",
            "notes.txt",
            "program",
        ] {
            fs::write(parts.join(name), name).unwrap();
        }
        let files = copy(&parts.join("program"), &parts, &to).unwrap();
        let names: Vec<&str> = files.keys().map(String::as_str).collect();
        assert_eq!(names, ["libtrapline_steady.so", PROGRAM, "trapline-vmm"]);
        assert_eq!(verify(&to, &files), Ok(()));
        fs::write(to.join("trapline-vmm"), "another").unwrap();
        let damaged = verify(&to, &files).unwrap_err().message;
        assert!(damaged.contains("trapline-vmm is damaged"), "{damaged}");
        fs::remove_file(to.join("trapline-vmm")).unwrap();
        assert!(verify(&to, &files).is_err());
    }
}
