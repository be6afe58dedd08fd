//! Replaces files of an environment: another build of a part, another QEMU, another kernel.

use crate::failure::Failure;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trapline_environments::{CustomVmm, GivenKernel, Part, Settings};
use trapline_model::FileOverride;

/// Returns `settings` with `files` in place of the default ones.
///
/// # Errors
/// A file does not exist; a kernel's file without its modules, or modules without a kernel.
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
    let [kernel, modules] =
        [FileOverride::Kernel, FileOverride::Modules].map(|given| files.get(&given));
    if kernel.is_some() || modules.is_some() {
        settings.kernel = Some(given_kernel(kernel, modules)?);
    }
    Ok(settings)
}

/// Returns a kernel: a package or version if it is no path and there is no file of that name, otherwise a file.
fn given_kernel(kernel: Option<&String>, modules: Option<&String>) -> Result<GivenKernel, Failure> {
    let pair = "name the kernel's file by kernel=FILE, and the directory lib/modules/VERSION by modules=DIR";
    let Some(kernel) = kernel else {
        return Err(Failure::usage("modules=DIR without a kernel", pair));
    };
    let is_name = !kernel.contains('/') && !Path::new(kernel).exists();
    if is_name && modules.is_none() {
        return Ok(GivenKernel::Package(kernel.clone()));
    }
    let image = file(FileOverride::Kernel, kernel)?;
    let modules = match modules {
        Some(modules) => directory(FileOverride::Modules, modules)?,
        None => modules_beside(&image).ok_or_else(|| {
            Failure::usage(
                format!("kernel={kernel}: there are no modules beside it"),
                pair,
            )
        })?,
    };
    Ok(GivenKernel::File { image, modules })
}

/// Returns the directory of the modules of a kernel `vmlinuz-VERSION`, where packages have it: `lib/modules/VERSION` beside the file or
/// beside its directory.
fn modules_beside(image: &Path) -> Option<PathBuf> {
    let image = image.canonicalize().ok()?;
    let (_, version) = image.file_name()?.to_str()?.split_once('-')?;
    let places = image.ancestors().skip(1).take(2);
    let mut found = places.map(|place| place.join("lib/modules").join(version));
    found.find(|directory| directory.is_dir())
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
    if exists(&path) {
        Ok(path)
    } else {
        Err(Failure::usage(
            format!("{}={value}: no such {kind}", given.name()),
            format!("name an existing {kind}, or leave the setting out"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn given(kernel: &str, modules: Option<&str>) -> Result<GivenKernel, String> {
        let modules = modules.map(str::to_owned);
        given_kernel(Some(&kernel.to_owned()), modules.as_ref()).map_err(|it| it.to_string())
    }

    #[test]
    fn a_kernel_is_a_file_with_modules_beside_it_or_a_package() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let modules = root.join("lib/modules/6.1.0-9");
        fs::create_dir_all(&modules).unwrap();
        fs::create_dir(root.join("boot")).unwrap();
        for image in ["boot/vmlinuz-6.1.0-9", "vmlinuz-6.1.0-9"].map(|file| root.join(file)) {
            fs::write(&image, []).unwrap();
            let expected = GivenKernel::File {
                image: image.clone(),
                modules: modules.clone(),
            };
            let path = image.to_str().unwrap();
            assert_eq!(given(path, None), Ok(expected.clone()));
            assert_eq!(given(path, modules.to_str()), Ok(expected));
        }
        for name in ["6.1.0-9", "linux-image-6.1.0-9-cloud-amd64"] {
            assert_eq!(given(name, None), Ok(GivenKernel::Package(name.to_owned())));
        }
        let other = root.join("boot/vmlinuz-7");
        fs::write(&other, []).unwrap();
        let without = given(other.to_str().unwrap(), None).unwrap_err();
        assert!(without.contains("no modules beside it"), "{without}");
        let missing = given("/no/vmlinuz-7", None).unwrap_err();
        assert!(missing.contains("no such file"), "{missing}");
        assert!(given_kernel(None, Some(&"/".to_owned())).is_err());
    }
}
