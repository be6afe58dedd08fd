//! Drivers of the disk of a Linux guest for workload block, which are modules.

use super::Root;
use trapline_host::Error;
use trapline_sim::drivers;
use trapline_sim::settings::Settings;

/// Modules that a distribution's kernel needs for the disk.
const DRIVERS: [&str; 2] = ["virtio_mmio", "virtio_blk"];

/// Returns the initramfs `root` with the drivers.
///
/// # Errors
/// A driver is missing.
pub fn with_drivers(root: &Root, settings: &Settings) -> Result<Vec<u8>, Error> {
    let drivers = drivers::archive(&drivers::chosen(settings, &DRIVERS)?);
    // An archive's end is aligned for the next one.
    Ok([root.bytes()?, drivers].concat())
}
