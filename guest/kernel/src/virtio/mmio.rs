//! Virtio devices of the machine: their registers and their interrupt.
//!
//! In `trapline-vmm` registers and interrupt vector are fixed ([`DISK_MMIO`], [`NET_MMIO`], [`VIRTIO_VECTOR`]). Other
//! VMMs name their virtio-mmio devices on the command line, as for Linux; their interrupt is a pin of
//! the I/O APIC. At ring 3 without a port to halt at, completions are polled.
//!
//! [`DISK_MMIO`]: trapline_abi::platform::DISK_MMIO
//! [`NET_MMIO`]: trapline_abi::platform::NET_MMIO

use super::transport::{is_device, Access, QUEUE_NOTIFY};
use crate::boot;
use crate::cpu::{mmio_read, mmio_write, pause};
use crate::interrupts::{can_halt, halt, Apic, END_OF_INTERRUPT};
use core::arch::global_asm;
use trapline_abi::platform::VIRTIO_VECTOR;
use trapline_workloads::{ticks, Doorbell, Reason};

/// Vector of the interrupt of all devices.
pub const VECTOR: u32 = VIRTIO_VECTOR as u32;

/// Index and data registers of the first I/O APIC (Intel 82093AA data sheet, 3.1).
const IO_APIC: u64 = 0xfec0_0000;
const IO_APIC_DATA: u64 = IO_APIC + 0x10;
/// First register of a pin's redirection entry: vector, edge-triggered, not masked. The second is the
/// destination, CPU 0.
const REDIRECTION: u32 = 0x10;
/// Pins of an I/O APIC.
const PINS: u32 = 24;

/// Maximum wait for a completion while polling, in ticks: 10 s at 3 GHz.
const MAX_WAIT: u64 = 30_000_000_000;

// The handler counts only: the waiting thread acknowledges. Where ring 0 is emulated, it may be
// interrupted by the next one nevertheless, so it runs on the interrupted stack, which belongs to the
// kernel's own code, without a red zone.
global_asm!(
    ".section .text.virtio, \"ax\", @progbits",
    ".global trapline_take_virtio",
    "trapline_take_virtio:",
    "inc qword ptr [trapline_virtio_interrupts]",
    "inc dword ptr [trapline_interrupts]",
    "iretq",
    ".section .bss.virtio, \"aw\", @nobits",
    ".balign 8",
    ".global trapline_virtio_interrupts",
    "trapline_virtio_interrupts:",
    ".zero 8",
);

extern "C" {
    /// Written by the handler only.
    static trapline_virtio_interrupts: u64;
}

/// Returns the number of interrupts so far.
pub fn interrupt_count() -> u64 {
    // SAFETY: a static counter, read as volatile.
    unsafe { (&raw const trapline_virtio_interrupts).read_volatile() }
}

/// Registers of a virtio-mmio transport. Only one device at a time waits for the interrupt.
pub struct Mmio {
    address: u64,
    polls: bool,
}

impl Mmio {
    /// Returns the registers at `address`, which is in the identity map. Completions are polled.
    pub fn polled(address: u64) -> Self {
        let polls = true;
        Self { address, polls }
    }

    /// Returns the address of the registers.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the register of notifications.
    pub fn doorbell(&self) -> Doorbell {
        Doorbell {
            address: self.address + QUEUE_NOTIFY,
            is_narrow: false,
        }
    }
}

impl Access for Mmio {
    fn read(&self, register: u64) -> u32 {
        // SAFETY: registers of a device of the platform: boot.rs uses only RAM of the memory map.
        unsafe { mmio_read(self.address + register) }
    }

    fn write(&self, register: u64, value: u32) {
        // SAFETY: as above; the device accesses only the memory of the driver.
        unsafe { mmio_write(self.address + register, value) }
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

    fn wait(&mut self, seen: u64, begun: u64) -> Result<(), Reason> {
        wait(self.polls, seen, begun)
    }
}

/// See [`Access::wait`].
#[inline(always)]
pub fn wait(polls: bool, seen: u64, begun: u64) -> Result<(), Reason> {
    if !polls {
        halt(interrupt_count, seen);
        return Ok(());
    }
    pause();
    if ticks() - begun < MAX_WAIT {
        Ok(())
    } else {
        Err("the device does not complete a request")
    }
}

/// Returns the device of this kind: in `trapline-vmm` that with its registers at `address`.
///
/// # Errors
/// `absent` if there is none.
pub fn find(
    apic: Result<&Apic, Reason>,
    has_ports: bool,
    (kind, address): (u32, u64),
    absent: Reason,
) -> Result<Mmio, Reason> {
    let polls = apic.is_err() || can_halt(has_ports).is_err();
    let access = |address| Mmio { address, polls };
    if has_ports {
        let mmio = access(address);
        return is_device(&mmio, kind).then_some(mmio).ok_or(absent);
    }
    let mut devices = boot::virtio_devices();
    let device = devices.find(|device| is_device(&access(device.address), kind));
    let device = device.ok_or(absent)?;
    if !polls {
        route(device.pin);
    }
    Ok(access(device.address))
}

/// Routes a pin of the I/O APIC to the vector.
fn route(pin: u32) {
    let entry = REDIRECTION + 2 * pin.min(PINS - 1);
    for (register, value) in [(entry + 1, 0), (entry, VECTOR)] {
        // SAFETY: registers of the I/O APIC, which no other code uses.
        unsafe {
            mmio_write(IO_APIC, register);
            mmio_write(IO_APIC_DATA, value);
        }
    }
}
