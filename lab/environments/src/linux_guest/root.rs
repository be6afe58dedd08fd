//! Initramfs of a Linux guest: the agent as init, after the archives of [`Settings::root`].
//!
//! A kernel unpacks concatenated archives in order, and later files replace earlier ones. So an initramfs is
//! composed without unpacking any.

use super::named;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use trapline_host::{hexadecimal, memory_file, Error, Facts, Part};
use trapline_sim::initramfs::{add_program, Archive};
use trapline_sim::settings::Settings;
use trapline_sim::AGENT;

/// Archives of an initramfs.
pub struct Root {
    /// The first archives, each a file: "newc" cpio, which may be compressed.
    files: Vec<PathBuf>,
    /// The last archive, which has the agent.
    agent: Vec<u8>,
}

/// Alignment of archives (Linux `Documentation/driver-api/early-userspace/buffer-format.rst`).
const ALIGNMENT: u64 = 4;

impl Root {
    /// Returns an initramfs with the agent and the archives of `settings`.
    ///
    /// # Errors
    /// The agent is missing, or cannot be read.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let mut archive = Archive::default();
        for directory in ["dev", "proc"] {
            archive.directory(directory);
        }
        add_program(&mut archive, AGENT, &settings.parts.get(Part::Agent)?)?;
        Ok(Self {
            files: settings.root.clone(),
            agent: archive.bytes(),
        })
    }

    /// Inserts an archive before the agent's.
    #[must_use]
    pub fn on(self, mut archive: Vec<u8>) -> Self {
        archive.resize(archive.len().next_multiple_of(ALIGNMENT as usize), 0);
        archive.extend(self.agent);
        Self {
            agent: archive,
            ..self
        }
    }

    /// Returns the initramfs.
    ///
    /// # Errors
    /// An archive cannot be read.
    pub fn bytes(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns the initramfs as an unnamed file in memory.
    ///
    /// # Errors
    /// An archive cannot be read, or memory cannot be allocated.
    pub fn file(&self) -> Result<Arc<File>, Error> {
        Ok(Arc::new(memory_file("initramfs", &self.bytes()?)?))
    }

    /// Returns its hash as a fact.
    ///
    /// # Errors
    /// An archive cannot be read.
    pub fn facts(&self) -> Result<Facts, Error> {
        let mut hash = Sha256::new();
        self.write_to(&mut hash)?;
        let hash = hexadecimal(&hash.finalize());
        Ok(named([("guest-initramfs-sha256", hash)]))
    }

    fn write_to(&self, out: &mut impl Write) -> Result<(), Error> {
        for path in &self.files {
            let copied = File::open(path).and_then(|file| copy_aligned(file, out));
            copied.map_err(Error::file(path))?;
        }
        let written = out.write_all(&self.agent);
        written.map_err(Error::file("initramfs in memory"))
    }
}

fn copy_aligned(mut from: impl Read, out: &mut impl Write) -> io::Result<()> {
    let length = io::copy(&mut from, out)?;
    let padding = length.next_multiple_of(ALIGNMENT) - length;
    out.write_all(&[0; ALIGNMENT as usize][..padding as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use std::os::unix::fs::FileExt;
    use trapline_host::Parts;

    fn settings(directory: &std::path::Path) -> Settings {
        std::fs::write(directory.join("trapline-agent"), "agent").unwrap();
        Settings {
            parts: Parts::in_directory(directory),
            ..Settings::find().unwrap()
        }
    }

    #[test]
    fn archives_are_aligned_and_precede_the_agent() {
        let directory = tempfile::tempdir().unwrap();
        let settings = settings(directory.path());
        let alone = Root::new(&settings).unwrap().bytes().unwrap();
        assert!(alone.starts_with(b"070701"));
        let first = directory.path().join("first.cpio");
        std::fs::write(&first, b"five!").unwrap();
        let with = Settings {
            root: vec![first.clone(), first],
            ..settings
        };
        let root = Root::new(&with).unwrap();
        let expected = [&b"five!\0\0\0five!\0\0\0"[..], &alone].concat();
        assert_eq!(root.bytes().unwrap(), expected);
        let mut read = vec![0; expected.len()];
        root.file().unwrap().read_exact_at(&mut read, 0).unwrap();
        assert_eq!(read, expected);
    }

    #[test]
    fn missing_archive_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let missing = Settings {
            root: vec!["/nonexistent/root.cpio".into()],
            ..settings(directory.path())
        };
        let error = Root::new(&missing).unwrap().bytes().unwrap_err();
        expect!["/nonexistent/root.cpio: No such file or directory (os error 2)"]
            .assert_eq(&error.to_string());
    }
}
