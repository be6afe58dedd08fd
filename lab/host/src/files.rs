//! Files: programs in `$PATH`, anonymous files and hashes.

use crate::Error;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Returns the program called `name` in `$PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
}

/// Returns an anonymous file in memory with these contents; `name` shows in `/proc` and in errors.
///
/// # Errors
/// There is no memory for it.
pub fn memory_file(name: &str, contents: &[u8]) -> Result<File, Error> {
    let write = || -> io::Result<File> {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
        let mut file = File::from(file);
        file.write_all(contents)?;
        Ok(file)
    };
    write().map_err(Error::file(format!("{name} in memory")))
}

/// Largest plan, baseline or profile, in bytes: hundred times the longest known.
pub const TEXT_LIMIT: u64 = 64 << 20;

/// Returns the text of a regular file or a pipe. A FIFO without a writer is empty.
///
/// # Errors
/// It cannot be read, is a device or a directory, is longer than `limit` bytes, or is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    read_open(open_text(path)?, limit)
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Opens a file for [`read_open`] without waiting.
pub(crate) fn open_text(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// See [`read_text`].
pub(crate) fn read_open(file: File, limit: u64) -> io::Result<String> {
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_fifo() {
        return Err(invalid("neither a regular file nor a pipe"));
    }
    rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(invalid(&format!("longer than {} MiB", limit >> 20)));
    }
    String::from_utf8(bytes).map_err(|_| invalid("not UTF-8 text"))
}

/// Returns the SHA-256 of a file's contents, in hexadecimal.
///
/// # Errors
/// The file cannot be read.
pub fn sha256_of_file(path: &Path) -> Result<String, Error> {
    let mut file = File::open(path).map_err(Error::file(path))?;
    let version = file.metadata().map(|metadata| version(&metadata));
    let version = version.map_err(Error::file(path))?;
    let known = HASHES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(hash) = known.get(&version) {
        return Ok(hash.clone());
    }
    drop(known);
    let mut hash = Sha256::new();
    io::copy(&mut file, &mut hash).map_err(Error::file(path))?;
    let hash = hexadecimal(&hash.finalize());
    let mut known = HASHES.lock().unwrap_or_else(PoisonError::into_inner);
    known.insert(version, hash.clone());
    Ok(hash)
}

/// Returns the SHA-256 over the hashes of several files, in their order; files that cannot be read are left out. `None` if
/// none can.
pub fn sha256_of_files<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Option<String> {
    let hashes = paths
        .into_iter()
        .filter_map(|path| sha256_of_file(path).ok());
    let hashes: String = hashes.collect();
    (!hashes.is_empty()).then(|| hexadecimal(&Sha256::digest(hashes)))
}

/// Hashes of files that this process has read: each boot states those of all its programs.
static HASHES: Mutex<BTreeMap<FileVersion, String>> = Mutex::new(BTreeMap::new());

/// Device, inode, size, and times of the last changes of content and inode, in seconds and nanoseconds.
type FileVersion = (u64, u64, u64, [i64; 4]);

fn version(metadata: &Metadata) -> FileVersion {
    let times = [
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    ];
    (metadata.dev(), metadata.ino(), metadata.size(), times)
}

/// Formats bytes in hexadecimal.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_files_and_pipes_is_read_up_to_a_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "text").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "text");
        let error = read_text(&path, 3).unwrap_err().to_string();
        assert_eq!(error, "longer than 0 MiB");
        std::fs::write(&path, [0xff]).unwrap();
        assert!(read_text(&path, 4).is_err());
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"piped").unwrap();
        drop(writer);
        let pipe = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        assert_eq!(read_text(Path::new(&pipe), 10).unwrap(), "piped");
    }

    #[test]
    fn devices_and_idle_pipes_do_not_block() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        assert_eq!(read_text(&fifo, 10).unwrap(), "");
        for device in ["/dev/zero", "/"] {
            let error = read_text(Path::new(device), 10).unwrap_err().to_string();
            assert_eq!(error, "neither a regular file nor a pipe");
        }
    }
}
