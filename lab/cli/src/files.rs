//! Files that a contender has of its own: another build of a part, another QEMU, another
//! kernel.

use crate::failure::{Failure, Status};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trapline_environments::{CustomVmm, Part, Settings};
use trapline_model::Given;

/// The settings with these in the place of the usual ones.
///
/// # Errors
/// One of them is not there; a kernel without its modules, or modules without a kernel.
pub fn replaced(
    mut settings: Settings,
    files: &BTreeMap<Given, String>,
) -> Result<Settings, Failure> {
    for (given, value) in files {
        match given {
            Given::Image => settings.parts.replace(Part::Image, file(*given, value)?),
            Given::Agent => settings.parts.replace(Part::Agent, file(*given, value)?),
            Given::Vmm => vmm(&mut settings, value)?,
            Given::Qemu => settings.qemu = Some(file(*given, value)?),
            // They go together, below.
            Given::Kernel | Given::Modules => {}
        }
    }
    match (files.get(&Given::Kernel), files.get(&Given::Modules)) {
        (None, None) => {}
        (Some(kernel), Some(modules)) => {
            let kernel = file(Given::Kernel, kernel)?;
            settings.kernel = Some((kernel, directory(Given::Modules, modules)?));
        }
        _ => {
            let told = "kernel=FILE and modules=DIR go together";
            return Err(usage(told.to_owned(), "give both, or leave both out"));
        }
    }
    Ok(settings)
}

/// A build of trapline-vmm, or a command for the environments whose VMM is the user's. A
/// file's name may be both.
fn vmm(settings: &mut Settings, value: &str) -> Result<(), Failure> {
    let command = value
        .parse::<CustomVmm>()
        .ok()
        .filter(|vmm| vmm.program().is_ok());
    let path = Path::new(value);
    if command.is_none() && !path.is_file() {
        let told = format!("vmm={value}: that is neither a file nor a command that is there");
        return Err(usage(
            told,
            "name a build of trapline-vmm, or a command with {image}",
        ));
    }
    if path.is_file() {
        settings.parts.replace(Part::Vmm, path.to_owned());
    }
    settings.vmm = command.or(settings.vmm.take());
    Ok(())
}

fn file(given: Given, value: &str) -> Result<PathBuf, Failure> {
    existing(given, value, "file", Path::is_file)
}

fn directory(given: Given, value: &str) -> Result<PathBuf, Failure> {
    existing(given, value, "directory", Path::is_dir)
}

fn existing(
    given: Given,
    value: &str,
    kind: &str,
    is_there: fn(&Path) -> bool,
) -> Result<PathBuf, Failure> {
    let path = PathBuf::from(value);
    match is_there(&path) {
        true => Ok(path),
        false => {
            let told = format!("{}={value}: there is no such {kind}", given.name());
            Err(usage(
                told,
                "name one that is there, or leave the setting out",
            ))
        }
    }
}

fn usage(told: String, help: &str) -> Failure {
    Failure::new(told).help(help).status(Status::Usage)
}
