//! Disk of a Linux guest for workload block: a new file of the host, with direct I/O if its file system
//! supports that, and the guest's drivers, which are modules.

use super::Root;
use crate::disk::{is_direct, scratch};
use std::fs::File;
use std::sync::Arc;
use trapline_abi::block;
use trapline_abi::Job;
use trapline_host::process::Command;
use trapline_host::{memory_file, Error};
use trapline_sim::drivers;
use trapline_sim::settings::Settings;

/// Modules that a distribution's kernel needs for the disk.
const DRIVERS: [&str; 2] = ["virtio_mmio", "virtio_blk"];

/// The disk of one launch.
pub struct GuestDisk {
    file: Arc<File>,
}

impl GuestDisk {
    /// Creates the disk that `job` measures, if it measures any.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn new(settings: &Settings, job: &Job) -> Result<Option<Self>, Error> {
        if job.run & block::operations() == 0 {
            return Ok(None);
        }
        let file = scratch(settings, job.disk_mib)?;
        Ok(Some(Self { file }))
    }

    /// Returns the job of a guest in which the disk has this name.
    pub fn job(&self, job: &Job, name: &str) -> Job {
        Job {
            disk: block::Disk::from_name(name),
            ..*job
        }
    }

    /// Returns the initramfs `root` with the drivers.
    ///
    /// # Errors
    /// A driver is missing, or memory cannot be allocated.
    pub fn initrd(&self, root: &Root, settings: &Settings) -> Result<Arc<File>, Error> {
        let drivers = drivers::archive(&drivers::chosen(settings, &DRIVERS)?);
        // An archive's end is aligned for the next one.
        let bytes = [root.bytes()?, drivers].concat();
        Ok(Arc::new(memory_file("initramfs", &bytes)?))
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
        let direct = if is_direct(&self.file) { "on" } else { "off" };
        let drive =
            format!("if=none,id=disk,format=raw,file=/proc/self/fd/{number},cache.direct={direct}");
        qemu.arg("-drive")
            .arg(drive)
            .words("-device virtio-blk-device,drive=disk")
    }

    /// Adds the disk to a command of user-mode Linux.
    pub fn for_user_mode_linux(&self, mut uml: Command) -> Command {
        let number = uml.pass_file(Arc::clone(&self.file));
        uml.words(&format!("ubd0=/proc/self/fd/{number}"))
    }
}
