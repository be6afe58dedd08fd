//! Debug symbols of the distribution's programs and libraries: files named after build IDs, installed or
//! downloaded from the distribution's debug archive.

use crate::cache::{Cache, Kind};
use crate::draft::WorkDirectory;
use crate::package::{self, UNPACKED};
use crate::{hexadecimal, private, Error};
use std::fs;
use std::path::{Path, PathBuf};

/// Directory of installed debug files.
const INSTALLED: &str = "/usr/lib/debug";

/// Suffixes of packages with debug files.
const PACKAGES: [&str; 2] = ["dbgsym", "dbg"];

/// Sources of debug files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugFiles {
    /// Directories with a directory `.build-id`, the first one first; then come downloads.
    pub directories: Vec<PathBuf>,
    /// Download missing ones.
    pub fetch: bool,
}

impl Default for DebugFiles {
    fn default() -> Self {
        Self {
            directories: vec![INSTALLED.into()],
            fetch: false,
        }
    }
}

impl DebugFiles {
    /// Returns the debug file of a build.
    pub fn find(&self, build_id: &[u8], cache: &Cache) -> Option<PathBuf> {
        let (first, rest) = build_id.split_first()?;
        let name = format!(
            ".build-id/{}/{}.debug",
            hexadecimal(&[*first]),
            hexadecimal(rest)
        );
        let mut files = self.all(cache).map(|directory| directory.join(&name));
        files.find(|file| file.is_file())
    }

    /// Returns the directory that has `boot/vmlinux-RELEASE` and the kernel's modules.
    pub fn find_kernel(&self, release: &str, cache: &Cache) -> Option<PathBuf> {
        let file = format!("boot/vmlinux-{release}");
        self.all(cache)
            .find(|directory| directory.join(&file).is_file())
    }

    /// Returns all directories: the given ones, then downloads.
    fn all<'a>(&'a self, cache: &Cache) -> impl Iterator<Item = PathBuf> + 'a {
        let fetched = fs::read_dir(cache.of(Kind::DebugSymbols)).into_iter();
        let fetched = fetched.flatten().flatten().map(|entry| {
            let package = entry.path();
            package.join(INSTALLED.trim_start_matches('/'))
        });
        self.directories.iter().cloned().chain(fetched)
    }
}

/// Downloads the debug files of the package that installed `file` into the cache.
///
/// # Errors
/// No package has installed it, or the distribution's sources have no debug files of this version.
pub fn fetch(file: &Path, cache: &Cache) -> Result<(), Error> {
    let (name, version) = package_of(file)?;
    fetch_package(&name, &version, cache)
}

/// Downloads the debug files of a package into the cache.
///
/// # Errors
/// The distribution's sources have none of this version.
pub fn fetch_package(name: &str, version: &str, cache: &Cache) -> Result<(), Error> {
    let place = cache.of(Kind::DebugSymbols);
    private::create_directory(&place)?;
    for suffix in PACKAGES {
        let debug = format!("{name}-{suffix}");
        let work = WorkDirectory::create(&place)?;
        let wanted = format!("{debug}={version}");
        if package::download([wanted.as_str()].into_iter(), work.path()).is_err() {
            continue;
        }
        package::unpack_all(work.path(), &debug)?;
        let directory = place.join(format!("{debug}_{}", version.replace(':', "-")));
        package::publish(&work.path().join(UNPACKED), directory, Path::is_dir)?;
        return Ok(());
    }
    Err(Error::missing(
        format!("the package sources have no debug symbols of {name} {version}"),
        "add the distribution's debug archive (Debian: suite RELEASE-debug of debian-debug) to the package \
         sources, then 'sudo apt-get update'",
    ))
}

/// Returns name and version of the package that installed a file. Packages list some files below the
/// links that `/bin` and `/lib` have become.
fn package_of(file: &Path) -> Result<(String, String), Error> {
    let file = file.canonicalize().map_err(Error::file(file))?;
    let text = file.to_string_lossy();
    let names = [text.as_ref(), text.trim_start_matches("/usr")];
    let mut owners = names.iter().filter_map(|name| query(&["-S", name]));
    let owner = owners.find_map(|line| {
        let (owner, _) = line.split_once(": ")?;
        let name = owner.split([':', ',']).next()?;
        Some((owner.to_owned(), name.to_owned()))
    });
    let version = |owner: &str| query(&["-W", "-f", "${Version}", owner]);
    let found = owner.and_then(|(owner, name)| Some((name, version(&owner)?)));
    found.ok_or_else(|| {
        Error::missing(
            format!("{}: no package has installed this file", file.display()),
            "name the directory of its debug file with --debug-dir",
        )
    })
}

/// Returns the first line of the output of `dpkg-query`.
fn query(arguments: &[&str]) -> Option<String> {
    let output = package::run("dpkg-query", arguments, Path::new("/")).ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().map(str::to_owned);
    line.filter(|_| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn cache(directory: &Path) -> Cache {
        Cache {
            directory: directory.to_owned(),
            limit: 0,
        }
    }

    #[test]
    fn debug_files_are_named_after_build_ids() {
        let place = tempfile::tempdir().unwrap();
        let cache = cache(&place.path().join("cache"));
        let files = DebugFiles {
            directories: vec![place.path().join("none"), place.path().join("debug")],
            fetch: false,
        };
        assert_eq!(files.find(&[0xab, 0xcd, 0xef], &cache), None);
        let installed = place.path().join("debug/.build-id/ab/cdef.debug");
        let fetched = cache
            .of(Kind::DebugSymbols)
            .join("qemu-dbgsym_1/usr/lib/debug");
        let fetched = fetched.join(".build-id/ab/cdef.debug");
        for file in [&fetched, &installed] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
            let found = files.find(&[0xab, 0xcd, 0xef], &cache);
            assert_eq!(found.as_ref(), Some(file));
        }
        assert_eq!(files.find(&[], &cache), None);
        assert_eq!(files.find_kernel("6.1.0", &cache), None);
        let kernel = place.path().join("debug/boot/vmlinux-6.1.0");
        fs::create_dir_all(kernel.parent().unwrap()).unwrap();
        fs::write(kernel, "").unwrap();
        let found = files.find_kernel("6.1.0", &cache);
        assert_eq!(found, Some(place.path().join("debug")));
    }

    #[test]
    fn file_without_a_package_is_reported_with_a_remedy() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("vmm");
        fs::write(&file, "").unwrap();
        let error = fetch(&file, &cache(place.path())).unwrap_err().to_string();
        let directory = place.path().display().to_string();
        expect!["DIR/vmm: no package has installed this file: name the directory of its debug file with --debug-dir"].assert_eq(&error.replace(&directory, "DIR"));
    }
}
