//! The disk of the machine and the memory of its requests.

use super::disk::Disk;
use super::mmio::{self, Mmio};
use super::transfer::{needed, Target};
use super::transport::BLOCK;
use crate::cpu::Global;
use crate::interrupts::Apic;
use crate::{console, memory};
use trapline_abi::block::{DiskRequest, Transfer, FACT_PREFIX};
use trapline_abi::platform::DISK_MMIO;
use trapline_abi::Job;
use trapline_workloads::Reason;

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
    let absent = "the machine has no virtio-mmio disk";
    let mmio = mmio::find(apic, job.ports, (BLOCK, DISK_MMIO), absent)?;
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
