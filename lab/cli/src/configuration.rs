//! The user's configuration: `$XDG_CONFIG_HOME/trapline/config.toml`, by default below `~/.config`.

use crate::failure::Failure;
use std::io::ErrorKind;
use std::path::PathBuf;
use trapline_host::files::{read_text, TEXT_LIMIT};
use trapline_model::file::read_configuration;

/// Defines the VMMs of the configuration, if there is one.
///
/// # Errors
/// The file cannot be read, or is invalid; the error names the line.
pub fn read() -> Result<(), Failure> {
    let Some(path) = path() else { return Ok(()) };
    let text = match read_text(&path, TEXT_LIMIT) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        text => text.map_err(|error| {
            Failure::usage(
                format!("cannot read the configuration {}: {error}", path.display()),
                "make it a readable file, or remove it",
            )
        })?,
    };
    read_configuration(&text).map_err(|error| {
        Failure::usage(
            format!("{}, {error}", path.display()),
            "see docs/custom-vmm.md",
        )
    })
}

fn path() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".config"));
    let base = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    base.map(|base| base.join("trapline/config.toml"))
}
