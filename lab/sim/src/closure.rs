//! Copies a dynamically linked program with its libraries, the loader and the loader's cache, at the same
//! paths.

use crate::initramfs::Archive;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use trapline_host::{find_program, tool, Error};

/// The loader's cache of library paths.
const CACHE: &str = "/etc/ld.so.cache";

/// Longest first line of a script that Linux reads (`BINPRM_BUF_SIZE`).
const LONGEST_LINE: usize = 256;

/// The loader of x86-64 programs (System V ABI).
pub const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Adds `program` and its libraries to `archive`.
///
/// # Errors
/// A file cannot be read.
pub fn add(archive: &mut Archive, program: &Path) -> Result<(), Error> {
    add_file(archive, program)?;
    let mut needed = needed(program).into_iter();
    needed.try_for_each(|path| add_file(archive, &path))
}

/// Returns the files that a program needs: the interpreter of a script, and libraries with the loader and its
/// cache, also those of the interpreter.
pub fn needed(program: &Path) -> Vec<PathBuf> {
    let interpreters = interpreters(program);
    let mut needed = interpreters.clone();
    for program in interpreters.iter().map(PathBuf::as_path).chain([program]) {
        let libraries = libraries(program);
        if !libraries.is_empty() {
            needed.extend(libraries);
            needed.push(CACHE.into());
        }
    }
    needed.sort();
    needed.dedup();
    needed
}

/// Returns whether a program is a script.
pub fn is_script(program: &Path) -> bool {
    !interpreters(program).is_empty()
}

/// Returns the program that a script names in its first line, and that of `env`; none for other files.
fn interpreters(script: &Path) -> Vec<PathBuf> {
    let mut start = [0; LONGEST_LINE];
    let read = File::open(script).and_then(|mut file| file.read(&mut start));
    let text = String::from_utf8_lossy(&start[..read.unwrap_or(0)]).into_owned();
    let Some(line) = text.strip_prefix("#!").and_then(|text| text.lines().next()) else {
        return Vec::new();
    };
    let mut words = line.split_ascii_whitespace();
    let program = words.next().map(PathBuf::from);
    let is_env = program.as_ref().is_some_and(|path| path.ends_with("env"));
    let by_env = words.find(|word| !word.starts_with('-'));
    let by_env = by_env.filter(|_| is_env).and_then(find_program);
    program.into_iter().chain(by_env).collect()
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
    let output = tool::output(Command::new(LOADER).arg("--list").arg(program));
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
    fn interpreter_of_a_script_is_needed() {
        let script = tempfile::NamedTempFile::new().unwrap();
        for (line, programs) in [
            ("#!/bin/sh -e\n", &["/bin/sh"][..]),
            ("#! /usr/bin/env -S sh\n", &["/usr/bin/env", "sh"]),
            ("no script", &[]),
        ] {
            fs::write(script.path(), line).unwrap();
            let found = interpreters(script.path());
            let fits =
                |(path, name): (&PathBuf, &&str)| path.ends_with(name.trim_start_matches('/'));
            assert!(found.iter().zip(programs).all(fits), "{line}: {found:?}");
            assert_eq!(found.len(), programs.len(), "{line}: {found:?}");
            assert!(programs.is_empty() || needed(script.path()).len() > found.len());
        }
    }

    #[test]
    fn static_program_has_no_libraries() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(libraries(&own), Vec::<PathBuf>::new());
    }
}
