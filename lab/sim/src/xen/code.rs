//! Files with symbols of the code that executes on a machine with Xen, besides the image.

use super::packages::{self, Xen, DEVICE_MODEL, PROGRAMS};
use crate::closure::LOADER;
use crate::kernel::found_in;
use crate::settings::Settings;
use std::fs;
use std::path::PathBuf;
use trapline_host::draft::WorkDirectory;
use trapline_host::{package, Error};

/// The hypervisor with symbols: name in the cache, directory in its package, and suffix of that package.
const WITH_NAMES: &str = "xen-syms";
const PLACE_OF_NAMES: &str = "usr/lib/debug/boot";
const PACKAGE_OF_NAMES: &str = "-dbg";

/// Files of a machine with Xen.
#[derive(Debug)]
pub struct Code {
    /// The hypervisor as booted, without symbols.
    pub hypervisor: PathBuf,
    /// The hypervisor with symbols, or why it is unavailable.
    pub named: Result<PathBuf, Error>,
    /// Programs and libraries of dom0.
    pub programs: Vec<PathBuf>,
}

/// Returns the files of the machine of these settings.
///
/// # Errors
/// Xen is missing or incomplete.
pub fn code(settings: &Settings) -> Result<Code, Error> {
    let xen = Xen::fetched(&settings.cache)?;
    let all = PROGRAMS.into_iter().chain([DEVICE_MODEL]);
    let here: Vec<_> = all.filter(|name| xen.program(name).is_file()).collect();
    let libraries = packages::libraries(&xen, &here, LOADER)?;
    let programs = here.iter().map(|name| xen.program(name));
    Ok(Code {
        hypervisor: xen.hypervisor(),
        named: with_names(&xen),
        programs: programs.chain(libraries).collect(),
    })
}

/// Returns the hypervisor with symbols from the cache, downloading it if needed.
///
/// # Errors
/// The distribution has no symbols of this version.
fn with_names(xen: &Xen) -> Result<PathBuf, Error> {
    let kept = xen.directory.join(WITH_NAMES);
    if kept.is_file() {
        return Ok(kept);
    }
    let name = xen.directory.file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    let (package, version) = name.split_once('_').unwrap_or((&name, ""));
    let package = format!("{package}{PACKAGE_OF_NAMES}");
    let missing = || {
        Error::missing(
            format!(
                "the distribution has no package {package} of version {version}, which has the \
                 symbols of Xen"
            ),
            "sudo apt-get update, and 'trapline cache prune --all' to fetch a newer Xen",
        )
    };
    let place = WorkDirectory::create(&xen.directory)?;
    let wanted = format!("{package}={version}");
    package::download([wanted.as_str()].into_iter(), place.path()).map_err(|_| missing())?;
    package::unpack_all(place.path(), &package)?;
    let unpacked = place.path().join("unpacked").join(PLACE_OF_NAMES);
    let found = found_in(&unpacked, |name| {
        name.starts_with(WITH_NAMES) && !name.ends_with(".map")
    });
    fs::rename(found.ok_or_else(missing)?, &kept).map_err(Error::file(&kept))?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn missing_symbols_name_their_package() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("xen-hypervisor-0.1-amd64_0.1-1");
        fs::create_dir(&directory).unwrap();
        let xen = Xen { directory };
        let error = with_names(&xen).unwrap_err().to_string();
        expect!["the distribution has no package xen-hypervisor-0.1-amd64-dbg of version 0.1-1, which has the symbols of Xen: sudo apt-get update, and 'trapline cache prune --all' to fetch a newer Xen"].assert_eq(&error);
        fs::write(xen.directory.join(WITH_NAMES), "names").unwrap();
        assert!(with_names(&xen).unwrap().ends_with(WITH_NAMES));
    }
}
