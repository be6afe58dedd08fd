//! Packages of the compiler, its dependencies, and the kernel's source: downloaded to the cache, never
//! installed.

use super::recipe::{SOURCE, TOOLS};
use super::work_directory::create_in;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use trapline_host::cache::Kind;
use trapline_host::package::{self, by_package, Apt, KnownPackages};
use trapline_host::{Cache, Error};

/// Prefix of their directory.
const PREFIX: &str = "packages-";

/// Extension of package files.
const EXTENSION: &str = "deb";

/// Returns their directory in the cache, the last by name, if they were downloaded.
pub fn in_cache(cache: &Cache) -> Option<PathBuf> {
    let entries = fs::read_dir(cache.of(Kind::KernelBuild)).ok()?;
    let entries = entries.flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    ours.map(|entry| entry.path()).max()
}

/// Returns their directory in the cache, downloading them if needed.
///
/// # Errors
/// They are not in the cache and cannot be downloaded.
pub fn fetched(cache: &Cache) -> Result<PathBuf, Error> {
    if let Some(directory) = in_cache(cache) {
        return Ok(directory);
    }
    let source = source()?;
    let packages = all(&source)?;
    let work = create_in(&cache.of(Kind::KernelBuild))?;
    package::download(packages.iter().map(String::as_str), work.path())?;
    let version = version_of(&source, work.path()).unwrap_or(source);
    let directory = cache
        .of(Kind::KernelBuild)
        .join(format!("{PREFIX}{version}"));
    package::publish(work.path(), directory, Path::is_dir)
}

/// Packages to be downloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Download {
    /// Their number.
    pub packages: usize,
    /// Their size; 0 if it is unknown.
    pub bytes: u64,
}

/// Returns what [`fetched`] downloads; `None` if they are in the cache.
///
/// # Errors
/// The distribution does not have them.
pub fn download(cache: &Cache) -> Result<Option<Download>, Error> {
    if in_cache(cache).is_some() {
        return Ok(None);
    }
    let packages = all(&source()?)?;
    let names: Vec<&str> = packages.iter().map(String::as_str).collect();
    let bytes = Apt::default().size(&names, Path::new("/"))?;
    Ok(Some(Download {
        packages: packages.len(),
        bytes,
    }))
}

/// Returns the packages of the tools and that of the source.
fn all(source: &str) -> Result<BTreeSet<String>, Error> {
    let mut packages = tool_packages()?;
    packages.insert(source.to_owned());
    Ok(packages)
}

/// Returns name and version of the source of a directory.
pub fn origin(directory: &Path) -> String {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix(PREFIX).unwrap_or(&name).to_owned()
}

/// Checks that they are in the cache, or that the distribution has them.
///
/// # Errors
/// It does not.
pub fn check(cache: &Cache) -> Result<(), Error> {
    match in_cache(cache) {
        Some(_) => Ok(()),
        None => source().map(drop),
    }
}

/// Returns the package files of a directory in order.
///
/// # Errors
/// It cannot be read.
pub fn files(directory: &Path) -> Result<BTreeSet<PathBuf>, Error> {
    let entries = fs::read_dir(directory).map_err(Error::file(directory))?;
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == EXTENSION)
        })
        .collect())
}

/// Returns the name of the source's package.
fn source() -> Result<String, Error> {
    let known = KnownPackages::query()?;
    let mut names = known.dependencies(SOURCE).iter();
    let name = names.find(|name| name.starts_with(SOURCE));
    name.cloned().ok_or_else(no_source)
}

/// Returns the error of a distribution without the source of its kernel.
pub fn no_source() -> Error {
    Error::missing(
        format!("the distribution has no package {SOURCE}"),
        "sudo apt-get update",
    )
}

/// Returns the packages of the tools with all dependencies.
fn tool_packages() -> Result<BTreeSet<String>, Error> {
    let options = ["depends", "--recurse", "--important"];
    let arguments: Vec<_> = options.into_iter().chain(TOOLS).collect();
    let output = package::run("apt-cache", &arguments, Path::new("/"))?;
    let packages = by_package(&String::from_utf8_lossy(&output.stdout));
    Ok(packages.into_keys().collect())
}

/// Returns name and version of a package whose file is in a directory.
fn version_of(package: &str, directory: &Path) -> Option<String> {
    let start = format!("{package}_");
    let files = files(directory).ok()?.into_iter();
    let mut names = files.filter_map(|path| path.file_stem()?.to_str().map(str::to_owned));
    let name = names.find(|name| name.starts_with(&start))?;
    let name = name.strip_suffix("_all").unwrap_or(&name);
    Some(name.replace('%', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_named_with_its_version() {
        let directory = tempfile::tempdir().unwrap();
        for name in [
            "linux-source-6.1_6.1.192-2_all.deb",
            "make_4.3-4.1_amd64.deb",
        ] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let found = version_of("linux-source-6.1", directory.path());
        assert_eq!(found.as_deref(), Some("linux-source-6.1_6.1.192-2"));
        assert_eq!(files(directory.path()).unwrap().len(), 2);
        assert_eq!(origin(Path::new("/cache/packages-linux_1")), "linux_1");
    }

    #[test]
    fn only_complete_downloads_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache {
            directory: directory.path().to_owned(),
            limit: 0,
        };
        assert_eq!(in_cache(&cache), None);
        let place = cache.of(Kind::KernelBuild);
        fs::create_dir_all(place.join(".making-1-x")).unwrap();
        fs::create_dir_all(place.join("mini-1")).unwrap();
        assert_eq!(in_cache(&cache), None);
        fs::create_dir_all(place.join("packages-linux_1")).unwrap();
        assert_eq!(in_cache(&cache), Some(place.join("packages-linux_1")));
    }
}
