//! Drivers of virtio devices that distributions' kernels have as modules: taken out of the
//! kernel's own package, of the very version, and kept beside it in the cache.

use super::initramfs::Archive;
use super::kernel::{self, KernelError, Maker};
use super::module;
use crate::settings::Settings;
use std::fs;
use std::path::Path;

pub use super::module::Module;

/// What is kept: consoles, disks, network cards, sockets, a filesystem with a journal; and taps,
/// for the machine that has such a guest.
const KEPT: [&str; 8] = [
    "virtio_mmio",
    "virtio_console",
    "virtio_blk",
    "virtio_net",
    "vmw_vsock_virtio_transport",
    "ext4",
    "crc32c_generic",
    "tun",
];

/// Where a guest's init looks for them.
const PLACE: &str = "/trapline/drivers";

/// The file of their order in the folder of a kernel.
const ORDER: &str = "modules";

/// The file that says what was kept, as an older lab kept less.
const SAYS: &str = "kept";

/// The drivers `wanted`, each behind those that it needs. One that is not there is taken
/// for part of the kernel.
///
/// # Errors
/// One cannot be read, or the package is not to be had any more.
pub fn chosen(settings: &Settings, wanted: &[&str]) -> Result<Vec<Module>, KernelError> {
    match &settings.kernel {
        Some((_, modules)) => those_there(modules, wanted),
        None => {
            let image = kernel::chosen(settings, Maker::Amd)?.image;
            let kernel = image.parent().unwrap_or(Path::new("/"));
            let place = kernel.join("drivers");
            let kept = fs::read_to_string(place.join(SAYS));
            if !kept.is_ok_and(|kept| kept == KEPT.join("\n")) {
                fetch(kernel, &place)?;
            }
            those_there(&place, wanted)
        }
    }
}

/// An archive that a guest's kernel unpacks, with drivers for our init.
pub fn archive(drivers: &[Module]) -> Vec<u8> {
    let mut archive = Archive::default();
    for (driver, number) in drivers.iter().zip(0..) {
        let name = format!("{PLACE}/{number:02}-{}.ko", driver.name);
        archive.file(name, driver.bytes.clone());
    }
    archive.bytes()
}

/// Downloads the package of the kernel in the folder `kernel` again.
fn fetch(kernel: &Path, place: &Path) -> Result<(), KernelError> {
    let name = kernel.file_name().unwrap_or_default().to_string_lossy();
    let packages = packages(&name);
    let work = kernel::work_in(kernel)?;
    kernel::download_all(packages.iter().map(String::as_str), work.path())?;
    kernel::unpack_all(work.path(), "linux-image-")?;
    let unpacked = work.path().join("unpacked");
    let drivers = those_there(&unpacked, &KEPT)?;
    fs::create_dir_all(place).map_err(KernelError::file(place))?;
    kernel::keep_modules(&drivers, place, ORDER)?;
    let says = place.join(SAYS);
    fs::write(&says, KEPT.join("\n")).map_err(KernelError::file(&says))
}

fn those_there(directory: &Path, wanted: &[&str]) -> Result<Vec<Module>, KernelError> {
    let is_there = |name: &&str| match module::with_needed(directory, name) {
        Err(KernelError::NoModule { name: missing, .. }) => missing != *name,
        _ => true,
    };
    let there: Vec<_> = wanted.iter().copied().filter(is_there).collect();
    module::all_with_needed(directory, &there)
}

/// The packages, each with its version, of which the folder of this name was made.
fn packages(name: &str) -> Vec<String> {
    let (image, version) = name.split_once('_').unwrap_or((name, ""));
    let modules = image.replacen("linux-image-", "linux-modules-", 1);
    let known = kernel::run("apt-cache", &["show", &modules], Path::new("/"));
    let further = known.is_ok_and(|known| known.status.success());
    let with_version = |package: &str| match version {
        "" => package.to_owned(),
        _ => format!("{package}={version}"),
    };
    let all = std::iter::once(image).chain(further.then_some(&modules[..]));
    all.map(with_version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_have_the_version_of_the_kernel() {
        let asked = packages("linux-image-0.0.0-cloud-amd64_0.0.0-2");
        assert_eq!(asked, ["linux-image-0.0.0-cloud-amd64=0.0.0-2"]);
    }

    #[test]
    fn drivers_are_loaded_in_the_order_of_their_names() {
        let module = |name: &str| Module {
            name: name.to_owned(),
            bytes: name.as_bytes().to_vec(),
        };
        let bytes = archive(&[module("virtio"), module("b"), module("a")]);
        let text = String::from_utf8_lossy(&bytes);
        let at = |name: &str| text.find(name).unwrap();
        assert!(at("drivers/00-virtio.ko") < at("drivers/01-b.ko"));
        assert!(at("drivers/01-b.ko") < at("drivers/02-a.ko"));
    }
}
