//! The virtio device whose registers operations access.

use super::mmio::Mmio;
use super::pci_bus;
use super::transport::{
    find_modern, Access, DEVICE_FEATURES, DEVICE_FEATURES_SEL, DEVICE_ID, MAGIC,
};
use crate::{boot, console};
use core::fmt::{Arguments, Write};
use trapline_abi::job::Transport;
use trapline_abi::platform::{VIRTIO_FACT_PREFIX, VIRTIO_MAGIC, VIRTIO_MMIO};
use trapline_workloads::{DeviceRegisters, Reason};

/// Returns the registers of the first device on PCI, or of the first virtio-mmio device that the VMM names on the command
/// line, and prints which device that is; `None` if there is a transport at [`VIRTIO_MMIO`].
///
/// # Errors
/// There is none, or it is a legacy device.
#[inline(never)]
pub fn registers(transport: Transport) -> Result<Option<DeviceRegisters>, Reason> {
    match transport {
        Transport::Pci => on_pci().map(Some),
        Transport::Mmio if Mmio::polled(VIRTIO_MMIO).read(MAGIC) == VIRTIO_MAGIC => Ok(None),
        Transport::Mmio => named().map(Some),
    }
}

fn on_pci() -> Result<DeviceRegisters, Reason> {
    let (device, registers) = pci_bus::registers()?;
    let (slot, number) = (device.function.device(), device.function.number());
    print_device(format_args!("PCI 00:{slot:02x}.{number}"), device.kind);
    Ok(registers)
}

fn named() -> Result<DeviceRegisters, Reason> {
    let named = boot::virtio_devices().map(|device| Mmio::polled(device.address));
    let device = find_modern(named).ok_or(
        "the machine has no virtio-mmio transport at 0xfeb00000, and the command line names no modern device",
    )?;
    let address = device.address();
    print_device(
        format_args!("virtio-mmio {address:#x}"),
        device.read(DEVICE_ID),
    );
    Ok(DeviceRegisters {
        selector: address + DEVICE_FEATURES_SEL,
        features: address + DEVICE_FEATURES,
    })
}

/// Checks that the transport at [`VIRTIO_MMIO`] has a modern device: VIRTIO_F_VERSION_1 is bit 32.
///
/// # Errors
/// It has none.
pub fn check_first_device() -> Result<(), Reason> {
    let first = Mmio::polled(VIRTIO_MMIO);
    first.write(DEVICE_FEATURES_SEL, 1);
    match first.read(DEVICE_FEATURES) & 1 {
        1 => Ok(()),
        _ => Err("the first virtio-mmio transport has no modern device behind it"),
    }
}

/// Prints the fact that operations access the registers of this device.
fn print_device(place: Arguments<'_>, kind: u32) {
    // The console takes everything.
    let _ = writeln!(
        console::Text,
        "{VIRTIO_FACT_PREFIX}registers {place}, virtio device ID {kind}"
    );
}
