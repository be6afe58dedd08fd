//! Replaces files of an environment: another build of a part, another QEMU, another kernel.

use crate::failure::Failure;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trapline_environments::{CustomVmm, Part, Settings};
use trapline_model::FileOverride;

/// Returns `settings` with `files` in place of the default ones.
///
/// # Errors
/// A file does not exist; a kernel without its modules, or modules without a kernel.
pub fn apply(
    mut settings: Settings,
    files: &BTreeMap<FileOverride, String>,
) -> Result<Settings, Failure> {
    for (given, value) in files {
        match given {
            FileOverride::Image => settings.parts.replace(Part::Image, file(*given, value)?),
            FileOverride::Agent => settings.parts.replace(Part::Agent, file(*given, value)?),
            FileOverride::Vmm => replace_vmm(&mut settings, value)?,
            FileOverride::Nova => settings.nova = Some(file(*given, value)?),
            FileOverride::Qemu => settings.qemu = Some(file(*given, value)?),
            // Handled as a pair below.
            FileOverride::Kernel | FileOverride::Modules => {}
        }
    }
    match (
        files.get(&FileOverride::Kernel),
        files.get(&FileOverride::Modules),
    ) {
        (None, None) => {}
        (Some(kernel), Some(modules)) => {
            let kernel = file(FileOverride::Kernel, kernel)?;
            settings.kernel = Some((kernel, directory(FileOverride::Modules, modules)?));
        }
        _ => {
            let message = "kernel=FILE and modules=DIR go together";
            return Err(Failure::usage(message, "give both, or leave both out"));
        }
    }
    Ok(settings)
}

/// Replaces trapline-vmm by a build of it, or sets the command of custom environments. The name of a
/// file can be both.
fn replace_vmm(settings: &mut Settings, value: &str) -> Result<(), Failure> {
    let command = value
        .parse::<CustomVmm>()
        .ok()
        .filter(|vmm| vmm.program().is_ok());
    let path = Path::new(value);
    if command.is_none() && !path.is_file() {
        return Err(Failure::usage(
            format!("vmm={value}: neither a file nor a command"),
            "name a build of trapline-vmm, or a command with {image}",
        ));
    }
    if path.is_file() {
        settings.parts.replace(Part::Vmm, path.to_owned());
    }
    settings.vmm = command.or(settings.vmm.take());
    Ok(())
}

fn file(given: FileOverride, value: &str) -> Result<PathBuf, Failure> {
    existing(given, value, "file", Path::is_file)
}

fn directory(given: FileOverride, value: &str) -> Result<PathBuf, Failure> {
    existing(given, value, "directory", Path::is_dir)
}

fn existing(
    given: FileOverride,
    value: &str,
    kind: &str,
    exists: fn(&Path) -> bool,
) -> Result<PathBuf, Failure> {
    let path = PathBuf::from(value);
    match exists(&path) {
        true => Ok(path),
        false => Err(Failure::usage(
            format!("{}={value}: no such {kind}", given.name()),
            format!("name an existing {kind}, or leave the setting out"),
        )),
    }
}
