//! Kernel modules of virtio devices and of idle CPUs, from the package of the very kernel version, kept beside the kernel in
//! the cache.

use crate::initramfs::Archive;
use crate::kernel::{self, Maker};
use crate::module;
use crate::settings::{GivenKernel, Settings};
use std::fs;
use std::path::Path;
use trapline_host::draft::WorkDirectory;
use trapline_host::package::{self, Apt};
use trapline_host::{private, Error};

pub use super::module::Module;

/// Kept modules: consoles, disks, network cards, sockets, a journaling file system and its checksum; for
/// the host of such guests taps, a bridge between them, and the kernel's side of network cards; polling of idle CPUs.
const KEPT: [&str; 12] = [
    "virtio_mmio",
    "virtio_console",
    "virtio_blk",
    "virtio_net",
    "vmw_vsock_virtio_transport",
    "vsock_loopback",
    "ext4",
    "crc32c_generic",
    "tun",
    "bridge",
    "vhost_net",
    "cpuidle_haltpoll",
];

/// Directory where the init of a guest finds them.
const PLACE: &str = "/trapline/drivers";

/// File with their load order.
const ORDER: &str = "modules";

/// File with the value of [`KEPT`] at the time of the download.
const SAYS: &str = "kept";

/// Returns the modules `wanted`, each after its dependencies. A module that does not exist is built into
/// the kernel.
///
/// # Errors
/// One cannot be read, or the package is no longer available.
pub fn chosen(settings: &Settings, wanted: &[&str]) -> Result<Vec<Module>, Error> {
    match &settings.kernel {
        Some(GivenKernel::File { modules, .. }) => existing(modules, wanted),
        Some(GivenKernel::Package(_)) | None => {
            let image = kernel::chosen(settings, Maker::Amd)?.image;
            let kernel = image.parent().unwrap_or(Path::new("/"));
            let place = kernel.join("drivers");
            let kept = fs::read_to_string(place.join(SAYS));
            if !kept.is_ok_and(|kept| kept == KEPT.join("\n")) {
                fetch(kernel, &place)?;
            }
            existing(&place, wanted)
        }
    }
}

/// Returns an initramfs with modules for the agent.
pub fn archive(drivers: &[Module]) -> Vec<u8> {
    let mut archive = Archive::default();
    for (driver, number) in drivers.iter().zip(0..) {
        let name = format!("{PLACE}/{number:02}-{}.ko", driver.name);
        archive.file(name, driver.bytes.clone());
    }
    archive.bytes()
}

/// Downloads the package of the kernel in the directory `kernel` again.
fn fetch(kernel: &Path, place: &Path) -> Result<(), Error> {
    let name = kernel.file_name().unwrap_or_default().to_string_lossy();
    let packages = packages(&name);
    let work = WorkDirectory::create(kernel)?;
    package::download(packages.iter().map(String::as_str), work.path())?;
    package::unpack_all(work.path(), "linux-image-")?;
    let unpacked = work.path().join("unpacked");
    let drivers = existing(&unpacked, &KEPT)?;
    private::create_directory(place)?;
    kernel::keep_modules(&drivers, place, ORDER)?;
    let says = place.join(SAYS);
    fs::write(&says, KEPT.join("\n")).map_err(Error::file(&says))
}

fn existing(directory: &Path, wanted: &[&str]) -> Result<Vec<Module>, Error> {
    let exists = |name: &&str| module::exists(directory, name);
    let there: Vec<_> = wanted.iter().copied().filter(exists).collect();
    module::all_with_needed(directory, &there)
}

/// Returns the packages, with versions, of a kernel directory with this name.
fn packages(name: &str) -> Vec<String> {
    let (image, version) = name.split_once('_').unwrap_or((name, ""));
    let modules = kernel::modules_package(image, &Apt::default())
        .ok()
        .flatten();
    let with_version = |package: &str| match version {
        "" => package.to_owned(),
        _ => format!("{package}={version}"),
    };
    let all = std::iter::once(image).chain(modules.as_deref());
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
    fn file_names_follow_the_load_order() {
        let module = |name: &str| Module::new(name.to_owned(), name.as_bytes().to_vec());
        let bytes = archive(&[module("virtio"), module("b"), module("a")]);
        let text = String::from_utf8_lossy(&bytes);
        let at = |name: &str| text.find(name).unwrap();
        assert!(at("drivers/00-virtio.ko") < at("drivers/01-b.ko"));
        assert!(at("drivers/01-b.ko") < at("drivers/02-a.ko"));
    }
}
