//! Disk of workload block on a simulated machine: a file in the memory of the Linux that runs the guest, created
//! before its launch. It takes no time of its own, so that figures are those of the software.

use crate::files;
use trapline_abi::{block, Job};
use trapline_host::process::Command;
use trapline_sim::qemu;

/// Its name in `/dev`, whose file system is in memory.
pub const MACHINE_DISK: &str = "memdisk";

/// Returns whether `job` measures a disk.
pub fn is_measured(job: &Job) -> bool {
    job.run.intersects(block::operations())
}

/// Disk with files, which is in the initramfs of the machine.
pub const FILES_DISK: &str = "/trapline/files.disk";

/// Returns the path of the disk.
pub fn path() -> String {
    format!("/dev/{MACHINE_DISK}")
}

/// Returns the path of the disk that `job` measures or reads files from; `None` if it has none.
fn path_of(job: &Job) -> Option<String> {
    if files::are_read(job) {
        Some(FILES_DISK.to_owned())
    } else {
        is_measured(job).then(path)
    }
}

/// Adds the disk that `job` measures to a command of `trapline-vmm`.
pub fn vmm_with_disk(vmm: Command, job: &Job) -> Command {
    match path_of(job) {
        Some(path) => vmm.words("--disk").arg(path),
        None => vmm,
    }
}

/// Adds the disk that `job` measures to a command of QEMU.
pub fn qemu_with_disk(command: Command, job: &Job) -> Command {
    match path_of(job) {
        Some(path) => qemu::with_disk(command, &path, false),
        None => command,
    }
}
