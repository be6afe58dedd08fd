//! Copies a dynamically linked program with its libraries, the loader and the loader's cache, at the same
//! paths.

use crate::initramfs::Archive;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use trapline_host::Error;

/// The loader's cache of library paths.
const CACHE: &str = "/etc/ld.so.cache";

/// The loader of x86-64 programs (System V ABI).
pub const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Adds `program` and its libraries to `archive`.
///
/// # Errors
/// A file cannot be read.
pub fn add(archive: &mut Archive, program: &Path) -> Result<(), Error> {
    add_file(archive, program)?;
    let libraries = libraries(program);
    if libraries.is_empty() {
        return Ok(());
    }
    for path in libraries {
        add_file(archive, &path)?;
    }
    add_file(archive, Path::new(CACHE))
}

/// Adds a file of this host at its own path.
///
/// # Errors
/// It cannot be read.
pub fn add_file(archive: &mut Archive, path: &Path) -> Result<(), Error> {
    let contents = fs::read(path).map_err(Error::file(path))?;
    archive.file(path, contents);
    Ok(())
}

/// Returns the libraries of a program; none if it is static.
pub fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new(LOADER).arg("--list").arg(program).output();
    let listed = output.ok().filter(|output| output.status.success());
    listed.map_or_else(Vec::new, |output| {
        paths_in(&String::from_utf8_lossy(&output.stdout))
    })
}

/// Returns the paths in lines like `name => /path (0x7f…)` and `/path (0x7f…)`.
pub fn paths_in(text: &str) -> Vec<PathBuf> {
    let mut paths: Vec<_> = text
        .lines()
        .filter_map(|line| {
            let (_, target) = line.split_once("=>").unwrap_or(("", line));
            let path = target.split_ascii_whitespace().next()?;
            path.starts_with('/').then(|| PathBuf::from(path))
        })
        .collect();
    if !paths.is_empty() {
        paths.push(PathBuf::from(LOADER));
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_loader_are_parsed() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f25)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f25)\n";
        let paths = paths_in(text);
        assert_eq!(paths[0], Path::new("/lib/x86_64-linux-gnu/libz.so.1"));
        assert_eq!(paths[1], Path::new(LOADER));
        assert_eq!(paths_in("\tstatically linked\n"), Vec::<PathBuf>::new());
    }

    #[test]
    fn static_program_has_no_libraries() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(libraries(&own), Vec::<PathBuf>::new());
    }
}
