//! The archive on the disk of the machine.

use super::cache::BYTES;
use super::mount::{Mount, Tables};
use crate::cpu::Global;
use crate::interrupts::Apic;
use crate::memory::{take_last_frames, FRAME};
use crate::virtio::{find_disk, Disk, Mmio, RING_BYTES};
use core::mem::{size_of, MaybeUninit};
use core::ptr;
use trapline_abi::job::Transport;
use trapline_abi::Job;
use trapline_workloads::{Files, Reason};

type MachineMount = Mount<'static, Mmio>;

/// The mounted archive; null before it is opened.
static MOUNT: Global<*mut Area> = Global::new(ptr::null_mut());

/// Memory of the archive in the last frames of RAM, so that it is not part of the image.
struct Area {
    tables: Tables,
    mount: MaybeUninit<Result<MachineMount, Reason>>,
}

const NO_MEMORY: Reason = "not enough memory for the page cache";

/// Returns the files of the archive, which the first call mounts.
///
/// # Errors
/// There is no disk, or no archive on it.
#[inline(never)]
pub fn files(apic: Result<&Apic, Reason>, job: &Job) -> Result<&'static mut dyn Files, Reason> {
    // SAFETY: nothing called here uses the archive.
    let area = unsafe { MOUNT.get() };
    if area.is_null() {
        let bytes = size_of::<Area>().next_multiple_of(FRAME as usize);
        let new = take_last_frames(bytes as u64).ok_or(NO_MEMORY)? as *mut Area;
        // SAFETY: frames of RAM, which are identity-mapped, taken for the archive and never freed. Zeros are valid tables.
        unsafe {
            new.write_bytes(0, 1);
            (*new).mount.write(open(apic, job, &mut (*new).tables));
        }
        *area = new;
    }
    // SAFETY: written above or by an earlier call; the callers use the archive for one call.
    match unsafe { (**area).mount.assume_init_mut() } {
        Ok(mount) => Ok(mount),
        Err(reason) => Err(reason),
    }
}

fn open(
    apic: Result<&Apic, Reason>,
    job: &Job,
    tables: &'static mut Tables,
) -> Result<MachineMount, Reason> {
    if job.transport != Transport::Mmio {
        return Err("files are read from virtio-mmio disks only");
    }
    let mmio = find_disk(apic, job.ports)?;
    let ring = take_last_frames(RING_BYTES as u64).ok_or(NO_MEMORY)?;
    let pages = take_last_frames(BYTES as u64).ok_or(NO_MEMORY)?;
    // SAFETY: frames of RAM as above. Writing populates them.
    unsafe {
        (pages as *mut u8).write_bytes(0, BYTES);
        Mount::new(
            Disk::start(mmio, ring as *mut u8)?,
            pages as *mut u8,
            tables,
        )
    }
}
