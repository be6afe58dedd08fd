//! Disk of a guest on this host for workloads block and files: a new file, with direct I/O if its file system supports
//! that.

use crate::disk::{is_direct, scratch};
use crate::files;
use std::fs::File;
use std::sync::Arc;
use trapline_abi::{block, Job};
use trapline_host::process::Command;
use trapline_host::Error;
use trapline_model::layers::Guest;
use trapline_sim::qemu;
use trapline_sim::settings::Settings;

/// The disk of one launch.
pub struct GuestDisk {
    file: Arc<File>,
}

impl GuestDisk {
    /// Creates the disk that `job` measures, if it measures any: with an archive for an image, and an ext4 file system
    /// for a Linux, if it reads files.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn new(settings: &Settings, job: &Job, guest: Guest) -> Result<Option<Self>, Error> {
        let file = match guest {
            Guest::Image if files::are_read(job) => files::archive_disk(settings, job.file_mib)?,
            Guest::Linux if files::are_read(job) => files::ext4_disk(settings, job.file_mib)?,
            _ if !job.run.intersects(block::operations()) => return Ok(None),
            _ => scratch(settings, job.disk_mib)?,
        };
        Ok(Some(Self { file }))
    }

    /// Adds the disk to a command of `trapline-vmm`.
    pub fn for_trapline_vmm(&self, mut vmm: Command) -> Command {
        let number = vmm.pass_file(Arc::clone(&self.file));
        let direct = if is_direct(&self.file) { ",direct" } else { "" };
        vmm.words(&format!("--disk /proc/self/fd/{number}{direct}"))
    }

    /// Adds the disk to a command of QEMU.
    pub fn for_qemu(&self, mut qemu: Command) -> Command {
        let number = qemu.pass_file(Arc::clone(&self.file));
        let path = format!("/proc/self/fd/{number}");
        qemu::with_disk(qemu, &path, is_direct(&self.file))
    }

    /// Adds the disk to a command of user-mode Linux.
    pub fn for_user_mode_linux(&self, mut uml: Command) -> Command {
        let number = uml.pass_file(Arc::clone(&self.file));
        uml.words(&format!("ubd0=/proc/self/fd/{number}"))
    }
}

/// Returns the job of a guest in which the disk has this name.
pub fn job_with_disk(job: &Job, name: &str) -> Job {
    Job {
        disk: block::Disk::from_name(name),
        ..*job
    }
}
