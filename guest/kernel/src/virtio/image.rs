//! The disk of the machine and the memory of its requests.

use super::disk::Disk;
use super::mmio::{self, Mmio};
use super::pci::Pci;
use super::pci_bus::{self, MachineBus};
use super::transfer::{needed, Target};
use super::transport::{Access, BLOCK};
use crate::cpu::Global;
use crate::interrupts::Apic;
use crate::{console, memory};
use trapline_abi::block::{DiskRequest, Transfer, FACT_PREFIX};
use trapline_abi::job::Transport;
use trapline_abi::platform::DISK_MMIO;
use trapline_abi::Job;
use trapline_workloads::Reason;

/// The disk of the machine; `None` before it is opened. All zero, so that it is not part of the image
/// file.
static DISK: Global<Option<Result<MachineDisk, Reason>>> = Global::new(None);

/// A disk by its transport.
enum MachineDisk {
    Mmio(Target<Mmio>),
    Pci(Target<Pci<MachineBus>>),
}

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
        match &target {
            Ok(MachineDisk::Mmio(target)) => describe("", target.polls()),
            Ok(MachineDisk::Pci(target)) => describe(" over PCI", target.polls()),
            Err(_) => {}
        }
        target
    });
    opened.as_ref().map(drop).map_err(|reason| *reason)
}

/// Returns the open disk.
fn target() -> Result<&'static mut MachineDisk, Reason> {
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
    match target()? {
        MachineDisk::Mmio(target) => target.transfer(transfer, job, slots),
        MachineDisk::Pci(target) => target.transfer(transfer, job, slots),
    }
}

/// See [`trapline_workloads::System::read_back`].
#[inline(never)]
pub fn read_back(transfer: &Transfer, job: &Job, made: usize) -> Result<(), Reason> {
    match target()? {
        MachineDisk::Mmio(target) => target.read_back(transfer, job, made),
        MachineDisk::Pci(target) => target.read_back(transfer, job, made),
    }
}

fn find(apic: Result<&Apic, Reason>, job: &Job) -> Result<MachineDisk, Reason> {
    match job.transport {
        Transport::Mmio => {
            let mmio = find_mmio(apic, job.ports)?;
            start(mmio, job).map(MachineDisk::Mmio)
        }
        Transport::Pci => {
            let absent = "the machine has no virtio disk on PCI bus 0";
            let pci = pci_bus::find(apic, job.ports, BLOCK, absent)?;
            start(pci, job).map(MachineDisk::Pci)
        }
    }
}

/// Returns the virtio-mmio disk of the machine.
///
/// # Errors
/// There is none.
pub fn find_mmio(apic: Result<&Apic, Reason>, has_ports: bool) -> Result<Mmio, Reason> {
    let absent = "the machine has no virtio-mmio disk";
    mmio::find(apic, has_ports, (BLOCK, DISK_MMIO), absent)
}

fn start<A: Access>(access: A, job: &Job) -> Result<Target<A>, Reason> {
    let bytes = needed(job);
    let ring = memory::take_last_frames(super::ring::BYTES as u64).ok_or(NO_MEMORY)?;
    let buffers = memory::take_last_frames(bytes as u64).ok_or(NO_MEMORY)?;
    // SAFETY: frames of RAM, which are identity-mapped, taken for the disk and never freed.
    unsafe {
        let disk = Disk::start(access, ring as *mut u8)?;
        Target::new(disk, buffers as *mut u8, bytes, job)
    }
}

const NO_MEMORY: Reason = "not enough memory for the requests to the disk";

/// Prints facts about the disk, as the agent does.
fn describe(transport: &str, polls: bool) {
    let waits = if polls {
        ", polling"
    } else {
        ", with interrupts"
    };
    let engine = ["the image's virtio-blk driver", transport, waits];
    for (name, fact) in [
        ("cache", ["none (the image has none)", "", ""]),
        ("engine", engine),
    ] {
        let [one, two, three] = fact;
        for text in [FACT_PREFIX, name, " ", one, two, three, "\n"] {
            console::write(text.as_bytes());
        }
    }
}
