//! The user's configuration: `config.toml` and `vmms/*.toml` in `$XDG_CONFIG_HOME/trapline`, by default in
//! `~/.config/trapline`.

use crate::failure::Failure;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use trapline_host::files::{read_text, TEXT_LIMIT};
use trapline_host::private;
use trapline_model::file::read_configuration;

/// Defines the VMMs of the configuration, if there is one. Definitions of `config.toml` replace those in `vmms`. Returns a
/// failure for each file that cannot be read, or is invalid, and names the line: its VMMs are not defined.
pub fn read() -> Vec<Failure> {
    let Ok((directory, origin)) = private::user_directory("XDG_CONFIG_HOME", ".config") else {
        return Vec::new();
    };
    // It names commands.
    if let Err(error) = private::check(&directory, origin) {
        return vec![error.into()];
    }
    let mut files = definitions(&directory.join("vmms"));
    files.push(directory.join("config.toml"));
    let read = files.iter().map(|file| read_file(file));
    read.filter_map(Result::err).collect()
}

fn read_file(path: &Path) -> Result<(), Failure> {
    let text = match read_text(path, TEXT_LIMIT) {
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

/// Returns the TOML files of a directory in the order of their names.
fn definitions(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let is_toml = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| extension == "toml")
    };
    let mut files: Vec<PathBuf> = paths.filter(is_toml).collect();
    files.sort();
    files
}
