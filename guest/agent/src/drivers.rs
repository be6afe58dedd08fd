//! Kernel modules of a guest's devices, from the initramfs, in the order of their names.

use crate::sys::{insert_module, mount};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::OnceLock;

/// Parameters of modules, by the end of their file's name. Without `force`, haltpoll requires a hint of the hypervisor that its
/// virtual CPUs have CPUs of their own.
const PARAMETERS: [(&str, &str); 1] = [("cpuidle_haltpoll.ko", "force=1")];

/// Directory of the modules, which may be absent.
const PLACE: &str = "/trapline/drivers";

/// Mounts devtmpfs and sysfs, and loads the drivers. Later calls return the first result.
///
/// # Errors
/// Returns the first failure.
pub fn prepare() -> Result<(), String> {
    static DONE: OnceLock<Result<(), String>> = OnceLock::new();
    DONE.get_or_init(mount_and_load).clone()
}

fn mount_and_load() -> Result<(), String> {
    for (kind, at) in [("devtmpfs", "/dev"), ("sysfs", "/sys")] {
        mount(kind, at).map_err(|error| format!("{at}: {error}"))?;
    }
    load().map_err(|error| error.to_string())
}

/// Mounts devtmpfs if there is no `/dev/null`. On failure, opening it reports the reason.
pub fn mount_devices() {
    if !Path::new("/dev/null").exists() {
        let _reported_later = mount("devtmpfs", "/dev");
    }
}

/// Loads all modules.
///
/// # Errors
/// The kernel refuses a module.
pub fn load() -> io::Result<()> {
    let entries = match fs::read_dir(PLACE) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    let paths: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths?;
    paths.sort();
    for path in paths {
        let path = path.to_string_lossy();
        let named = |error| io::Error::other(format!("driver {path}: {error}"));
        let of_path = PARAMETERS.iter().find(|(end, _)| path.ends_with(end));
        let parameters = of_path.map_or("", |(_, parameters)| parameters);
        insert_module(&path, parameters).map_err(named)?;
    }
    Ok(())
}
