//! Files: programs in `$PATH`, anonymous files and hashes.

use crate::Error;
use rustix::fs::MemfdFlags;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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

/// Returns the SHA-256 of a file's contents, in hexadecimal.
///
/// # Errors
/// The file cannot be read.
pub fn sha256_of_file(path: &Path) -> Result<String, Error> {
    let mut hash = Sha256::new();
    let mut file = File::open(path).map_err(Error::file(path))?;
    io::copy(&mut file, &mut hash).map_err(Error::file(path))?;
    Ok(hexadecimal(&hash.finalize()))
}

/// Formats bytes in hexadecimal.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
