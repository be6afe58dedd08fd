//! Drivers that a guest's kernel has as modules: whoever made the initramfs has put those in
//! that the guest's devices need, in the order of their names.

use super::{insert_module, mount, Trouble};
use std::fs;
use std::io::{self, ErrorKind};
use std::sync::OnceLock;

/// Where they are, if there are any.
const PLACE: &str = "/trapline/drivers";

/// Mounts what shows the devices, and loads their drivers; later calls find that done.
///
/// # Errors
/// What was in the way the first time.
pub fn make_ready() -> Result<(), Trouble> {
    static DONE: OnceLock<Result<(), Trouble>> = OnceLock::new();
    DONE.get_or_init(mount_and_load).clone()
}

fn mount_and_load() -> Result<(), Trouble> {
    for (kind, at) in [("devtmpfs", "/dev"), ("sysfs", "/sys")] {
        mount(kind, at).map_err(|error| format!("{at}: {error}"))?;
    }
    load().map_err(|error| error.to_string())
}

/// Loads them all.
///
/// # Errors
/// The kernel refuses one, which is named.
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
        insert_module(&path, "").map_err(named)?;
    }
    Ok(())
}
