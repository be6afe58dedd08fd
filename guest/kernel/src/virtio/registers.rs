//! The virtio device whose registers operations access.

use super::doorbell::{self, Notified};
use super::mmio::Mmio;
use super::pci::Pci;
use super::pci_bus::{self, MachineBus};
use super::transport::{
    find_modern, Access, DEVICE_FEATURES, DEVICE_FEATURES_SEL, DEVICE_ID, MAGIC,
};
use crate::pci::Device;
use crate::{boot, console, memory};
use core::fmt::{Arguments, Write};
use trapline_abi::job::Transport;
use trapline_abi::platform::{ENTROPY_MMIO, VIRTIO_FACT_PREFIX, VIRTIO_MAGIC, VIRTIO_MMIO};
use trapline_workloads::{DeviceRegisters, Doorbell, Reason};

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
    print_on_pci("registers", device);
    Ok(registers)
}

fn named() -> Result<DeviceRegisters, Reason> {
    let device = find_modern(named_transports()).ok_or(
        "the machine has no virtio-mmio transport at 0xfeb00000, and the command line names no modern device",
    )?;
    print_mmio("registers", &device);
    let address = device.address();
    Ok(DeviceRegisters {
        selector: address + DEVICE_FEATURES_SEL,
        features: address + DEVICE_FEATURES,
    })
}

fn named_transports() -> impl Iterator<Item = Mmio> {
    boot::virtio_devices().map(|device| Mmio::polled(device.address))
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

/// A device that is notified, by its transport.
pub enum NotifiedDevice {
    Mmio(Notified<Mmio>, Doorbell),
    Pci(Notified<Pci<MachineBus>>, Doorbell),
}

impl NotifiedDevice {
    /// Starts the device of [`registers`] and prints which that is. The first transport of trapline-vmm has no device; its
    /// entropy device is taken in place of it.
    ///
    /// # Errors
    /// There is none, or it cannot be used.
    #[inline(never)]
    pub fn start(transport: Transport) -> Result<Self, Reason> {
        let no_memory = "not enough memory for the queue of a virtio device";
        let queue = memory::take_last_frames(doorbell::BYTES as u64).ok_or(no_memory)? as *mut u8;
        match transport {
            Transport::Pci => {
                let (device, pci) = pci_bus::first_polled()?;
                print_on_pci("doorbell", device);
                let doorbell = pci.doorbell();
                // SAFETY: frames of RAM, which are identity-mapped, taken for this device and never freed.
                Ok(Self::Pci(unsafe { Notified::start(pci, queue)? }, doorbell))
            }
            Transport::Mmio => {
                let usual = [VIRTIO_MMIO, ENTROPY_MMIO].map(Mmio::polled);
                let mmio = find_modern(usual.into_iter().chain(named_transports()))
                    .ok_or("the machine has no virtio-mmio transport with a modern device")?;
                print_mmio("doorbell", &mmio);
                let doorbell = mmio.doorbell();
                // SAFETY: as above.
                Ok(Self::Mmio(
                    unsafe { Notified::start(mmio, queue)? },
                    doorbell,
                ))
            }
        }
    }

    /// Returns the register of notifications.
    pub fn doorbell(&self) -> Doorbell {
        match self {
            Self::Mmio(_, doorbell) | Self::Pci(_, doorbell) => *doorbell,
        }
    }

    /// See [`Notified::check`].
    pub fn check(&mut self) -> Result<(), Reason> {
        match self {
            Self::Mmio(device, _) => device.check(),
            Self::Pci(device, _) => device.check(),
        }
    }

    /// See [`Notified::stop`].
    pub fn stop(&self) -> Result<(), Reason> {
        match self {
            Self::Mmio(device, _) => device.stop(),
            Self::Pci(device, _) => device.stop(),
        }
    }
}

fn print_on_pci(fact: &str, device: Device) {
    let (slot, number) = (device.function.device(), device.function.number());
    print(
        fact,
        format_args!("PCI 00:{slot:02x}.{number}"),
        device.kind,
    );
}

fn print_mmio(fact: &str, device: &Mmio) {
    let address = device.address();
    print(
        fact,
        format_args!("virtio-mmio {address:#x}"),
        device.read(DEVICE_ID),
    );
}

/// Prints which device operations access.
fn print(fact: &str, place: Arguments<'_>, kind: u32) {
    // The console takes everything.
    let _ = writeln!(
        console::Text,
        "{VIRTIO_FACT_PREFIX}{fact} {place}, virtio device ID {kind}"
    );
}
