//! Virtio devices on PCI of the machine: their memory and their interrupt.

use super::mmio::{interrupt_count, wait, VECTOR};
use super::pci::{Bus, Pci};
use crate::cpu::{mmio_read, mmio_write, Global};
use crate::interrupts::{can_halt, Apic, END_OF_INTERRUPT};
use crate::pci::{self, Device, Ports};
use core::ops::Range;
use trapline_workloads::{DeviceRegisters, Reason};

/// Addresses for devices without any.
static GAP: Global<Range<u64>> = Global::new(0..0);

/// Sets the addresses for devices without any.
pub fn set_gap(gap: Range<u64>) {
    // SAFETY: a reference for this assignment only.
    unsafe { *GAP.get() = gap };
}

/// Memory of devices, which `pci` has found.
pub struct MachineBus {
    polls: bool,
}

impl Bus for MachineBus {
    fn read8(&self, address: u64) -> u8 {
        // SAFETY: registers of a device, which `pci` has found or mapped: boot.rs uses only RAM of the memory map.
        unsafe { (address as *const u8).read_volatile() }
    }

    fn read16(&self, address: u64) -> u16 {
        // SAFETY: as above, at an even address.
        unsafe { (address as *const u16).read_volatile() }
    }

    fn read32(&self, address: u64) -> u32 {
        // SAFETY: as above, at a multiple of 4.
        unsafe { mmio_read(address) }
    }

    fn write8(&self, address: u64, value: u8) {
        // SAFETY: as above; the device accesses only the memory of the driver.
        unsafe { (address as *mut u8).write_volatile(value) }
    }

    fn write16(&self, address: u64, value: u16) {
        // SAFETY: as above, at an even address.
        unsafe { (address as *mut u16).write_volatile(value) }
    }

    fn write32(&self, address: u64, value: u32) {
        // SAFETY: as above, at a multiple of 4.
        unsafe { mmio_write(address, value) }
    }

    fn interrupts(&self) -> u64 {
        interrupt_count()
    }

    fn end_interrupt(&self) {
        // SAFETY: a register of the local APIC, which is open unless completions are polled; then
        // there is no interrupt to end.
        unsafe { mmio_write(END_OF_INTERRUPT, 0) }
    }

    fn polls(&self) -> bool {
        self.polls
    }

    fn wait(&self, polls: bool, seen: u64, begun: u64) -> Result<(), Reason> {
        wait(polls, seen, begun)
    }
}

/// Returns the first device of this kind.
///
/// # Errors
/// `absent` if there is none, or why it cannot be used.
pub fn find(
    apic: Result<&Apic, Reason>,
    has_ports: bool,
    kind: u32,
    absent: Reason,
) -> Result<Pci<MachineBus>, Reason> {
    let polls = apic.is_err() || can_halt(has_ports).is_err();
    let mut devices = pci::devices(&Ports);
    let device = devices.find(|device| device.kind == kind).ok_or(absent)?;
    start(device, polls)
}

/// Returns the first device, with completions that are polled.
///
/// # Errors
/// There is none, or why it cannot be used.
pub fn first_polled() -> Result<(Device, Pci<MachineBus>), Reason> {
    let device = first()?;
    Ok((device, start(device, true)?))
}

fn first() -> Result<Device, Reason> {
    let absent = "the machine has no virtio device on PCI bus 0";
    pci::devices(&Ports).next().ok_or(absent)
}

fn start(device: Device, polls: bool) -> Result<Pci<MachineBus>, Reason> {
    let structures = open(device)?;
    Pci::new(MachineBus { polls }, device, structures, VECTOR as u8)
}

fn open(device: Device) -> Result<pci::Structures, Reason> {
    // SAFETY: `pci::open` does not use the gap otherwise.
    pci::open(&Ports, device.function, unsafe { GAP.get() })
}

/// Returns the first device, and registers of it for operations.
///
/// # Errors
/// There is none, or it is a legacy device.
pub fn registers() -> Result<(Device, DeviceRegisters), Reason> {
    let device = first()?;
    let registers = super::pci::registers(&MachineBus { polls: true }, open(device)?)?;
    Ok((device, registers))
}
