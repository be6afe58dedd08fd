//! Initramfs: "newc" cpio (Linux `Documentation/driver-api/early-userspace/buffer-format.rst`).
//!
//! Equal contents give equal bytes: entries are sorted, and times, owners and inode numbers are fixed. One more
//! instruction while unpacking would change all later figures, so the layout is not left to a crate.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use trapline_host::Error;

/// An archive.
#[derive(Default)]
pub struct Archive {
    entries: BTreeMap<String, Entry>,
}

enum Entry {
    Directory,
    Program(Vec<u8>),
    Document(Vec<u8>),
    Link(Vec<u8>),
}

/// File modes by type of entry.
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DOCUMENT: u32 = 0o100_644;
const LINK: u32 = 0o120_777;

/// Name of the last entry.
const TRAILER: &str = "TRAILER!!!";

impl Archive {
    /// Adds a directory and its parents.
    pub fn directory(&mut self, path: impl AsRef<Path>) {
        let mut name = String::new();
        for component in path.as_ref().components() {
            if let Component::Normal(part) = component {
                if !name.is_empty() {
                    name.push('/');
                }
                name.push_str(&part.to_string_lossy());
                self.entries.entry(name.clone()).or_insert(Entry::Directory);
            }
        }
    }

    /// Adds an executable file and its parent directories.
    pub fn file(&mut self, path: impl AsRef<Path>, contents: Vec<u8>) {
        self.add(path.as_ref(), Entry::Program(contents));
    }

    /// Adds a non-executable file and its parent directories.
    pub fn document(&mut self, path: impl AsRef<Path>, contents: Vec<u8>) {
        self.add(path.as_ref(), Entry::Document(contents));
    }

    /// Adds a symbolic link and its parent directories.
    pub fn link(&mut self, path: impl AsRef<Path>, target: &Path) {
        let target = target.as_os_str().as_encoded_bytes().to_vec();
        self.add(path.as_ref(), Entry::Link(target));
    }

    fn add(&mut self, path: &Path, entry: Entry) {
        if let Some(parent) = path.parent() {
            self.directory(parent);
        }
        let name = path.to_string_lossy();
        let name = name.trim_start_matches('/').to_owned();
        self.entries.insert(name, entry);
    }

    /// Returns the archive's contents.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, (name, entry)) in (1..).zip(&self.entries) {
            match entry {
                Entry::Directory => append(&mut bytes, number, name, DIRECTORY, &[]),
                Entry::Program(contents) => append(&mut bytes, number, name, PROGRAM, contents),
                Entry::Document(contents) => append(&mut bytes, number, name, DOCUMENT, contents),
                Entry::Link(target) => append(&mut bytes, number, name, LINK, target),
            }
        }
        append(&mut bytes, 0, TRAILER, 0, &[]);
        bytes
    }
}

fn append(bytes: &mut Vec<u8>, inode: u32, name: &str, mode: u32, contents: &[u8]) {
    let length = contents.len() as u32;
    let name_length = name.len() as u32 + 1;
    bytes.extend(b"070701");
    // Inode, mode, uid, gid, nlink, mtime, size, device (2), rdevice (2), size of the name, checksum.
    for field in [inode, mode, 0, 0, 1, 0, length, 0, 0, 0, 0, name_length, 0] {
        bytes.extend(format!("{field:08x}").bytes());
    }
    bytes.extend(name.bytes().chain([0]));
    pad(bytes);
    bytes.extend(contents);
    pad(bytes);
}

/// Headers with names, and contents, are padded to multiples of four bytes.
fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Programs are padded to multiples of this, in bytes. The number of pages of an initramfs decides
/// where the kernel allocates its own, which changes some of its paths by an instruction: without
/// padding, a program that grows by a page would change unrelated figures.
const PROGRAM_ROOM: usize = 1 << 20;

/// Adds a program of Trapline as `name`, padded; the padding is never loaded.
///
/// # Errors
/// It cannot be read.
pub fn add_program(archive: &mut Archive, name: &str, path: &Path) -> Result<(), Error> {
    let mut contents = std::fs::read(path).map_err(Error::file(path))?;
    contents.resize(contents.len().next_multiple_of(PROGRAM_ROOM), 0);
    archive.file(name, contents);
    Ok(())
}

/// Adds a file of this host as `name`.
///
/// # Errors
/// It cannot be read.
pub fn add_as(archive: &mut Archive, name: &str, path: &Path) -> Result<(), Error> {
    let contents = std::fs::read(path).map_err(Error::file(path))?;
    archive.file(name, contents);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_additions_does_not_change_the_bytes() {
        let mut one = Archive::default();
        one.file("/init", b"abc".to_vec());
        one.file("/usr/bin/qemu", vec![7; 10]);
        one.directory("/proc");
        let mut other = Archive::default();
        other.directory("proc/");
        other.file("usr/bin/qemu", vec![7; 10]);
        other.directory("usr");
        other.file("init", b"abc".to_vec());
        assert_eq!(one.bytes(), other.bytes());
    }

    #[test]
    fn entry_has_the_newc_layout() {
        let mut archive = Archive::default();
        archive.file("a", b"xyz".to_vec());
        let bytes = archive.bytes();
        let fields = [1, PROGRAM, 0, 0, 1, 0, 3, 0, 0, 0, 0, 2, 0];
        let fields: String = fields.map(|field| format!("{field:08x}")).concat();
        // A header of 110 bytes and a name of two end at a multiple of four.
        let expected = [
            b"070701",
            fields.as_bytes(),
            b"a",
            &[0],
            b"xyz",
            &[0],
            b"070701",
        ];
        let expected = expected.concat();
        assert_eq!(&bytes[..expected.len()], expected);
        assert_eq!(bytes.len() % 4, 0);
        let named = |name: &[u8]| name == TRAILER.as_bytes();
        assert!(bytes.windows(TRAILER.len()).any(named));
    }

    #[test]
    fn directories_precede_their_contents() {
        let mut archive = Archive::default();
        archive.file("/b/c/d", Vec::new());
        let names: Vec<_> = archive.entries.keys().cloned().collect();
        assert_eq!(names, ["b", "b/c", "b/c/d"]);
    }
}
