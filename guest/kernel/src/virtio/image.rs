//! The disk of the machine, its interrupt, and the memory of its requests.
//!
//! In `trapline-vmm` registers and interrupt vector are fixed ([`DISK_MMIO`], [`DISK_VECTOR`]). Other
//! VMMs name their virtio-mmio devices on the command line, as for Linux; their interrupt is a pin of
//! the I/O APIC. At ring 3 without a port to halt at, completions are polled.

use super::disk::Disk;
use super::transfer::{needed, Target};
use super::transport::{is_block, Access};
use crate::cpu::{mmio_read, mmio_write, pause, Global};
use crate::interrupts::{can_halt, halt, Apic, END_OF_INTERRUPT};
use crate::{boot, console, memory};
use core::arch::global_asm;
use trapline_abi::block::{DiskRequest, Transfer, FACT_PREFIX};
use trapline_abi::platform::{DISK_MMIO, DISK_VECTOR};
use trapline_abi::Job;
use trapline_workloads::{ticks, Reason};

/// Vector of the disk's interrupt.
pub const VECTOR: u32 = DISK_VECTOR as u32;

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
    ".global trapline_take_disk",
    "trapline_take_disk:",
    "inc qword ptr [trapline_disk_interrupts]",
    "inc dword ptr [trapline_interrupts]",
    "iretq",
    ".section .bss.virtio, \"aw\", @nobits",
    ".balign 8",
    ".global trapline_disk_interrupts",
    "trapline_disk_interrupts:",
    ".zero 8",
);

extern "C" {
    /// Written by the handler only.
    static trapline_disk_interrupts: u64;
}

fn interrupt_count() -> u64 {
    // SAFETY: a static counter, read as volatile.
    unsafe { (&raw const trapline_disk_interrupts).read_volatile() }
}

/// Registers of a virtio-mmio transport.
struct Mmio {
    address: u64,
    polls: bool,
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
        if !self.polls {
            halt(interrupt_count, seen);
            return Ok(());
        }
        pause();
        match ticks() - begun < MAX_WAIT {
            true => Ok(()),
            false => Err("the disk does not complete a request"),
        }
    }
}

/// The disk of the machine; `None` before it is opened. All zero, so that it is not part of the image
/// file.
static DISK: Global<Option<Result<Target<Mmio>, Reason>>> = Global::new(None);

/// Opens the disk of `job` at the first call.
///
/// # Errors
/// There is none, or it cannot be used.
#[inline(never)]
pub fn open(apic: Result<&Apic, Reason>, job: &Job) -> Result<(), Reason> {
    // SAFETY: nothing called here uses the disk.
    let disk = unsafe { DISK.get() };
    let opened = disk.get_or_insert_with(|| {
        let target = find(apic, job);
        if let Ok(target) = &target {
            describe(target.polls());
        }
        target
    });
    opened.as_ref().map(drop).map_err(|reason| *reason)
}

/// Returns the open disk.
fn target() -> Result<&'static mut Target<Mmio>, Reason> {
    // SAFETY: the callers use it for one call, during which no other code does.
    match unsafe { DISK.get() } {
        Some(Ok(target)) => Ok(target),
        Some(Err(reason)) => Err(reason),
        None => Err("the disk is not open"),
    }
}

/// See [`trapline_workloads::System::transfer`].
#[inline(never)]
pub fn transfer(
    transfer: &Transfer,
    job: &Job,
    slots: &mut [DiskRequest],
) -> Result<usize, Reason> {
    target()?.transfer(transfer, job, slots)
}

/// See [`trapline_workloads::System::read_back`].
#[inline(never)]
pub fn read_back(transfer: &Transfer, job: &Job, made: usize) -> Result<(), Reason> {
    target()?.read_back(transfer, job, made)
}

fn find(apic: Result<&Apic, Reason>, job: &Job) -> Result<Target<Mmio>, Reason> {
    let polls = apic.is_err() || can_halt(job.ports).is_err();
    let access = |address| Mmio { address, polls };
    let mmio = if job.ports {
        Some(access(DISK_MMIO)).filter(is_block)
    } else {
        let mut devices = boot::virtio_devices();
        let block = devices.find(|device| is_block(&access(device.address)));
        block.map(|device| {
            if !polls {
                route(device.pin);
            }
            access(device.address)
        })
    };
    let mmio = mmio.ok_or("the machine has no virtio-mmio disk")?;
    let bytes = needed(job);
    let ring = memory::take_last_frames(super::ring::BYTES as u64).ok_or(NO_MEMORY)?;
    let buffers = memory::take_last_frames(bytes as u64).ok_or(NO_MEMORY)?;
    // SAFETY: frames of RAM, which are identity-mapped, taken for the disk and never freed.
    unsafe {
        let disk = Disk::start(mmio, ring as *mut u8)?;
        Target::new(disk, buffers as *mut u8, bytes, job)
    }
}

const NO_MEMORY: Reason = "not enough memory for the requests to the disk";

/// Routes a pin of the I/O APIC to the vector of the disk.
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

/// Prints facts about the disk, as the agent does.
fn describe(polls: bool) {
    let engine = match polls {
        true => "the image's virtio-blk driver, polling",
        false => "the image's virtio-blk driver, with interrupts",
    };
    for (name, fact) in [("cache", "none (the image has none)"), ("engine", engine)] {
        for text in [FACT_PREFIX, name, " ", fact, "\n"] {
            console::write(text.as_bytes());
        }
    }
}
