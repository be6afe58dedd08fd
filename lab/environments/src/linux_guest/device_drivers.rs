//! Drivers of the devices of a Linux guest for workloads block and net, which are modules.

use super::Root;
use trapline_host::Error;
use trapline_sim::drivers;
use trapline_sim::settings::Settings;

/// Modules that a distribution's kernel needs for a disk, and for a network card.
const DISK: [&str; 2] = ["virtio_mmio", "virtio_blk"];
const CARD: [&str; 2] = ["virtio_mmio", "virtio_net"];

/// Returns the initramfs `root` with the drivers of a disk and of a network card, where the guest has these.
///
/// # Errors
/// A driver is missing.
pub fn with_drivers(
    root: &Root,
    settings: &Settings,
    (has_disk, has_card): (bool, bool),
) -> Result<Vec<u8>, Error> {
    let disk = DISK.iter().filter(|_| has_disk);
    let card = CARD.iter().filter(|_| has_card);
    let wanted: Vec<_> = disk.chain(card).copied().collect();
    if wanted.is_empty() {
        return root.bytes();
    }
    let drivers = drivers::archive(&drivers::chosen(settings, &wanted)?);
    // An archive's end is aligned for the next one.
    Ok([root.bytes()?, drivers].concat())
}
