//! Directories of builds in progress.

use std::fs;
use std::path::Path;
use trapline_host::Error;

/// Prefix of their names; the id of the process follows.
pub const PREFIX: &str = ".making-";

/// Creates a directory in `place`, removed when dropped. Directories of killed processes are removed.
///
/// # Errors
/// It cannot be created.
pub fn create_in(place: &Path) -> Result<tempfile::TempDir, Error> {
    fs::create_dir_all(place).map_err(Error::file(place))?;
    for entry in fs::read_dir(place).map_err(Error::file(place))?.flatten() {
        if is_abandoned(&entry.file_name().to_string_lossy()) {
            // Another process may remove it first.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let made = tempfile::Builder::new().prefix(&prefix).tempdir_in(place);
    made.map_err(Error::file(place))
}

/// Returns whether the process in a directory's name has ended.
fn is_abandoned(name: &str) -> bool {
    let number = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.split('-').next());
    let number: Option<u32> = number.and_then(|number| number.parse().ok());
    number.is_some_and(|number| !Path::new(&format!("/proc/{number}")).exists())
}
