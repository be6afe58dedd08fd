//! A file that is written after a measurement.

use crate::failure::Failure;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file that is opened before anything is measured. Dropping it removes it if it is new and was not written.
pub struct OutputFile {
    path: PathBuf,
    file: File,
    /// It did not exist before.
    is_new: bool,
    is_written: bool,
}

impl OutputFile {
    /// Opens the file that `option` names. Its content is kept until [`Self::write`].
    ///
    /// # Errors
    /// It cannot be opened for writing.
    pub fn open(option: &str, path: &Path) -> Result<Self, Failure> {
        let is_new = !path.exists();
        let mut options = OpenOptions::new();
        let opened = options.write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|error| {
            Failure::usage(
                format!("{option}: cannot write {}: {error}", path.display()),
                "name a file in an existing, writable directory",
            )
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
            is_new,
            is_written: false,
        })
    }

    /// Replaces the content.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(mut self, text: &str) -> Result<(), Failure> {
        let mut written = self.file.write_all(text.as_bytes());
        // The previous content may be longer; a pipe has no length.
        if self.file.metadata().is_ok_and(|file| file.is_file()) {
            written = written.and_then(|()| self.file.set_len(text.len() as u64));
        }
        written.map_err(|error| {
            Failure::new(format!("cannot write {}: {error}", self.path.display()))
        })?;
        self.is_written = true;
        Ok(())
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.is_new && !self.is_written {
            // An empty file that remains is harmless.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_removed_unless_drawn() {
        let place = tempfile::tempdir().unwrap();
        let fresh = place.path().join("new.svg");
        drop(OutputFile::open("--flamegraph", &fresh).unwrap());
        assert!(!fresh.exists());
        let kept = place.path().join("old.svg");
        std::fs::write(&kept, "a picture").unwrap();
        drop(OutputFile::open("--flamegraph", &kept).unwrap());
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), "a picture");
        let error = OutputFile::open("--flamegraph", place.path())
            .err()
            .unwrap();
        assert!(error.to_string().contains("--flamegraph: "), "{error}");
    }
}
