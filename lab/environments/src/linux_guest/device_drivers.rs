//! Drivers of the devices of a Linux guest for workloads block, files and net, and of its idle CPUs, which are modules.

use super::Root;
use trapline_host::Error;
use trapline_sim::drivers;
use trapline_sim::settings::Settings;

/// Modules that a distribution's kernel needs for a disk, for its file system, for a network card, and for sockets.
const DISK: [&str; 2] = ["virtio_mmio", "virtio_blk"];
const FILES: [&str; 2] = ["crc32c_generic", "ext4"];
const CARD: [&str; 2] = ["virtio_mmio", "virtio_net"];
const VSOCK: [&str; 2] = ["virtio_mmio", "vmw_vsock_virtio_transport"];
const HALTPOLL: [&str; 1] = ["cpuidle_haltpoll"];

/// Devices of a guest, and the file system on its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// It has a disk.
    pub disk: bool,
    /// Its disk has an ext4 file system.
    pub files: bool,
    /// It has a network card.
    pub card: bool,
    /// It has a vsock device.
    pub vsock: bool,
    /// Its CPUs poll before they halt.
    pub haltpoll: bool,
}

/// Returns the initramfs `root` with the drivers of these devices.
///
/// # Errors
/// A driver is missing.
pub fn with_drivers(root: &Root, settings: &Settings, devices: Devices) -> Result<Vec<u8>, Error> {
    let all: [(&[&str], bool); 5] = [
        (&DISK, devices.disk),
        (&FILES, devices.files),
        (&CARD, devices.card),
        (&VSOCK, devices.vsock),
        (&HALTPOLL, devices.haltpoll),
    ];
    let needed = all.into_iter().filter(|(_, needed)| *needed);
    let wanted: Vec<_> = needed.flat_map(|(modules, _)| modules).copied().collect();
    if wanted.is_empty() {
        return root.bytes();
    }
    let drivers = drivers::archive(&drivers::chosen(settings, &wanted)?);
    // An archive's end is aligned for the next one.
    Ok([root.bytes()?, drivers].concat())
}
