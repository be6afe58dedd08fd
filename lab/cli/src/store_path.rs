//! Path of the store.

use crate::args::StoreOptions;
use std::path::PathBuf;
use trapline_runner::Failure;

/// Returns the file named by `args`, or `trapline/trapline.db` in the user's data directory.
///
/// # Errors
/// Neither `XDG_DATA_HOME` nor `HOME` is set.
pub fn store_path(args: &StoreOptions) -> Result<PathBuf, Failure> {
    if let Some(file) = &args.file {
        return Ok(file.clone());
    }
    let base = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    let base = base.ok_or_else(|| {
        Failure::new("no directory for the store: neither XDG_DATA_HOME nor HOME is set")
            .help("name a file with --store FILE")
    })?;
    Ok(base.join("trapline/trapline.db"))
}

/// Returns the path in an environment variable. The XDG base directory specification ignores relative
/// paths.
fn absolute(variable: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(variable)?);
    path.is_absolute().then_some(path)
}
