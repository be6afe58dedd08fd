//! Definitions of VMMs: those of this program, and those of the user's configuration, `config.toml` and `vmms/*.toml` in
//! `$XDG_CONFIG_HOME/trapline`, by default in `~/.config/trapline`.

use crate::failure::Failure;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use trapline_host::files::{read_text, TEXT_LIMIT};
use trapline_host::private;
use trapline_model::file::read_configuration;
use trapline_model::vmms;

/// Definitions that are part of this program, in the order of their files in `vmms/`.
const BUILT_IN: [&str; 6] = [
    include_str!("../../../vmms/alioth.toml"),
    include_str!("../../../vmms/cloud-hypervisor.toml"),
    include_str!("../../../vmms/crosvm.toml"),
    include_str!("../../../vmms/firecracker.toml"),
    include_str!("../../../vmms/kvmtool.toml"),
    include_str!("../../../vmms/qemu.toml"),
];

/// Defines the VMMs of this program, then those of the configuration, which replace them. Definitions of `config.toml` replace those in `vmms`. Returns a
/// failure for each file that cannot be read, or is invalid, and names the line: its VMMs are not defined.
pub fn read() -> Vec<Failure> {
    for text in BUILT_IN {
        read_configuration(text).expect("a test reads all definitions");
    }
    vmms::mark_built_in();
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use trapline_model::EnvironmentId;

    #[test]
    fn every_definition_of_the_repository_is_built_in() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vmms");
        let texts = definitions(&root).into_iter();
        let texts: BTreeSet<_> = texts
            .map(|file| std::fs::read_to_string(file).unwrap())
            .collect();
        let built_in: BTreeSet<_> = BUILT_IN.map(str::to_owned).into_iter().collect();
        assert_eq!(built_in, texts);
        for text in BUILT_IN {
            read_configuration(text).unwrap();
        }
        vmms::mark_built_in();
        assert!(vmms::is_built_in("firecracker") && !vmms::is_built_in("mine"));
        let firecracker = EnvironmentId::from_name("sim/firecracker").unwrap();
        assert!(firecracker.is_custom() && !firecracker.is_default());
        read_configuration("[vmm.firecracker]\ncommand = 'x {image} {cmdline}'\n").unwrap();
        assert!(!vmms::is_built_in("firecracker"), "the user's replaces it");
    }
}
