//! What a guest's Linux has in its root: the agent as its init, and below that whatever
//! else somebody wants there.
//!
//! A kernel unpacks one archive after the other, and what comes later replaces what was
//! there. So a root is composed of archives without unpacking any: those that
//! [`Settings::root`] names, as they are, then the agent's.

use super::named;
use rustix::fs::MemfdFlags;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use trapline_host::{hexadecimal, Error, Facts, Part};
use trapline_sim::initramfs::{add_program, Archive};
use trapline_sim::settings::Settings;
use trapline_sim::AGENT;

/// The archives of a guest's root.
pub struct Root {
    /// Those below the agent's, each a file: "newc" cpio, which may be compressed.
    below: Vec<PathBuf>,
    /// The agent's, and what it is on besides.
    agent: Vec<u8>,
}

/// Where a kernel looks for the next archive (Linux
/// `Documentation/driver-api/early-userspace/buffer-format.rst`).
const ALIGNED: u64 = 4;

impl Root {
    /// The agent, on what `settings` say.
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
            below: settings.root.clone(),
            agent: archive.bytes(),
        })
    }

    /// The same on another archive, of this process's making.
    #[must_use]
    pub fn on(self, mut archive: Vec<u8>) -> Self {
        archive.resize(archive.len().next_multiple_of(ALIGNED as usize), 0);
        archive.extend(self.agent);
        Self {
            agent: archive,
            ..self
        }
    }

    /// All of it, in one piece.
    ///
    /// # Errors
    /// An archive cannot be read.
    pub fn bytes(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes)?;
        Ok(bytes)
    }

    /// All of it as a file without a name, which is gone when nobody uses it any more.
    ///
    /// # Errors
    /// An archive cannot be read, or there is no memory for it.
    pub fn file(&self) -> Result<Arc<File>, Error> {
        let file = rustix::fs::memfd_create("initramfs", MemfdFlags::CLOEXEC);
        let file = file.map_err(|error| Error::file("initramfs in memory")(error.into()))?;
        let mut file = File::from(file);
        self.write_to(&mut file)?;
        Ok(Arc::new(file))
    }

    /// What is to be told about it.
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
        for path in &self.below {
            let copied = File::open(path).and_then(|file| copy_aligned(file, out));
            copied.map_err(Error::file(path))?;
        }
        let written = out.write_all(&self.agent);
        written.map_err(Error::file("initramfs in memory"))
    }
}

fn copy_aligned(mut from: impl Read, out: &mut impl Write) -> io::Result<()> {
    let length = io::copy(&mut from, out)?;
    let padding = length.next_multiple_of(ALIGNED) - length;
    out.write_all(&[0; ALIGNED as usize][..padding as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn archives_lie_below_the_agents_each_where_a_kernel_looks_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let settings = settings(directory.path());
        let alone = Root::new(&settings).unwrap().bytes().unwrap();
        assert!(alone.starts_with(b"070701"));
        let below = directory.path().join("below.cpio");
        std::fs::write(&below, b"five!").unwrap();
        let with = Settings {
            root: vec![below.clone(), below],
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
    fn an_archive_that_is_not_there_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let missing = Settings {
            root: vec!["/nonexistent/root.cpio".into()],
            ..settings(directory.path())
        };
        let error = Root::new(&missing).unwrap().bytes().unwrap_err();
        assert!(
            error.to_string().contains("/nonexistent/root.cpio"),
            "{error}"
        );
    }
}
