//! The disk of a Linux guest whose requests are measured: a new file of the host, past its
//! cache where that can be had, and the drivers that the guest's kernel has as modules.

use super::Root;
use crate::disk::{is_direct, scratch};
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use trapline_abi::block;
use trapline_abi::Job;
use trapline_host::process::Command;
use trapline_host::Error;
use trapline_sim::drivers;
use trapline_sim::settings::Settings;

/// What a kernel of a distribution needs to find it.
const DRIVERS: [&str; 2] = ["virtio_mmio", "virtio_blk"];

/// A disk for one boot.
pub struct GuestDisk {
    file: Arc<File>,
}

impl GuestDisk {
    /// The disk that `job` measures, if it measures any.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn of(settings: &Settings, job: &Job) -> Result<Option<Self>, Error> {
        if job.run & block::operations() == 0 {
            return Ok(None);
        }
        let file = scratch(settings, job.disk_mib)?;
        Ok(Some(Self { file }))
    }

    /// The job of a guest that finds it under this name.
    pub fn job(&self, job: &Job, name: &str) -> Job {
        Job {
            disk: block::Disk::from_name(name),
            ..*job
        }
    }

    /// The root of a guest with the drivers that it needs.
    ///
    /// # Errors
    /// The drivers cannot be had, or there is no memory for it.
    pub fn root(&self, root: &Root, settings: &Settings) -> Result<Arc<File>, Error> {
        let drivers = drivers::archive(&drivers::chosen(settings, &DRIVERS)?);
        let file = rustix::fs::memfd_create("initramfs", MemfdFlags::CLOEXEC);
        let failed = || Error::file("initramfs in memory");
        let mut file = File::from(file.map_err(|error| failed()(error.into()))?);
        // What comes first ends where the next may begin.
        let bytes = [root.bytes()?, drivers].concat();
        file.write_all(&bytes).map_err(failed())?;
        Ok(Arc::new(file))
    }

    /// Gives it to our VMM.
    pub fn to_our_vmm(&self, mut vmm: Command) -> Command {
        let number = vmm.pass_file(Arc::clone(&self.file));
        let direct = if is_direct(&self.file) { ",direct" } else { "" };
        vmm.words(&format!("--disk /proc/self/fd/{number}{direct}"))
    }

    /// Gives it to QEMU.
    pub fn to_qemu(&self, mut qemu: Command) -> Command {
        let number = qemu.pass_file(Arc::clone(&self.file));
        let direct = if is_direct(&self.file) { "on" } else { "off" };
        let drive =
            format!("if=none,id=disk,format=raw,file=/proc/self/fd/{number},cache.direct={direct}");
        qemu.arg("-drive")
            .arg(drive)
            .words("-device virtio-blk-device,drive=disk")
    }

    /// The number of a descriptor by which user-mode Linux has it.
    pub fn to_user_mode(&self, uml: &mut Command) -> usize {
        uml.pass_file(Arc::clone(&self.file))
    }
}
