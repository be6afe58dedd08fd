//! What is executed on a machine with Xen besides the image, in files from which names
//! of code can be read.

use super::packages::{self, Xen, DEVICE_MODEL, PROGRAMS};
use crate::error::EnvError;
use crate::settings::Settings;
use crate::sim::closure::LOADER;
use crate::sim::kernel::{self, KernelError};
use std::fs;
use std::path::PathBuf;

/// The hypervisor with the names of its code, once somebody has asked for them; where it
/// is in a package, and what that is called.
const WITH_NAMES: &str = "xen-syms";
const PLACE_OF_NAMES: &str = "usr/lib/debug/boot";
const PACKAGE_OF_NAMES: &str = "-dbg";

/// The files of a machine with Xen.
#[derive(Debug)]
pub struct Code {
    /// The hypervisor as it is booted, without names.
    pub hypervisor: PathBuf,
    /// The same with names, or why there are none.
    pub named: Result<PathBuf, KernelError>,
    /// Programs and libraries of the first domain.
    pub programs: Vec<PathBuf>,
}

/// The files of the machine that these settings give.
///
/// # Errors
/// There is no Xen, or it is not whole.
pub fn code(settings: &Settings) -> Result<Code, EnvError> {
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

/// The hypervisor with the names of its code, from the cache or else downloaded.
///
/// # Errors
/// The distribution does not have them for this very version.
fn with_names(xen: &Xen) -> Result<PathBuf, KernelError> {
    let kept = xen.directory.join(WITH_NAMES);
    if kept.is_file() {
        return Ok(kept);
    }
    let name = xen.directory.file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    let (package, version) = name.split_once('_').unwrap_or((&name, ""));
    let package = format!("{package}{PACKAGE_OF_NAMES}");
    let missing = || KernelError::NoXenSymbols {
        package: package.clone(),
        version: version.to_owned(),
    };
    let place = kernel::work_in(&xen.directory)?;
    let wanted = format!("{package}={version}");
    kernel::download_all([wanted.as_str()].into_iter(), place.path()).map_err(|_| missing())?;
    kernel::unpack_all(place.path(), &package)?;
    let unpacked = place.path().join("unpacked").join(PLACE_OF_NAMES);
    let found = packages::found_in(&unpacked, |name| {
        name.starts_with(WITH_NAMES) && !name.ends_with(".map")
    });
    fs::rename(found.ok_or_else(missing)?, &kept).map_err(KernelError::file(&kept))?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_be_had_are_told_with_their_package() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("xen-hypervisor-0.1-amd64_0.1-1");
        fs::create_dir(&directory).unwrap();
        let xen = Xen { directory };
        let error = with_names(&xen).unwrap_err().to_string();
        assert!(
            error.contains("xen-hypervisor-0.1-amd64-dbg of version 0.1-1"),
            "{error}"
        );
        assert!(error.contains("apt-get update"), "{error}");
        fs::write(xen.directory.join(WITH_NAMES), "names").unwrap();
        assert!(with_names(&xen).unwrap().ends_with(WITH_NAMES));
    }
}
