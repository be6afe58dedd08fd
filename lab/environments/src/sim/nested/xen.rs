//! Xen and its first domain in QEMU, which loads multiboot kernels and has the timers that Xen needs.

use super::super::inner::{INITRD, KERNEL};
use super::super::{add_qemu, qemu_located};
use super::HostSystem;
use std::path::PathBuf;
use trapline_host::process::Command;
use trapline_host::Error;
use trapline_model::layers::QemuMachine;
use trapline_model::GuestConfig;
use trapline_sim::initramfs::{add_as, Archive};
use trapline_sim::listener::Emulator;
use trapline_sim::machine;
use trapline_sim::qemu::{Qemu, KVM_WITHOUT_PV_EOI};

/// The hypervisor in the initramfs of the system that runs QEMU.
const HYPERVISOR: &str = "/trapline/hypervisor";

pub struct XenInQemu {
    pub qemu: Qemu,
    /// Its file on this host, and its command line.
    pub hypervisor: PathBuf,
    pub words: String,
    /// The kernel of the first domain on this host, and its command line.
    pub dom0: (PathBuf, String),
}

impl HostSystem for XenInQemu {
    fn emulator(&self) -> Emulator {
        Emulator::QEMU
    }

    fn own_memory_mib(&self) -> u32 {
        machine::OWN_MEMORY_MIB
    }

    fn options(&self) -> &str {
        &self.dom0.1
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), Error> {
        add_qemu(archive, &self.qemu, QemuMachine::Q35)?;
        add_as(archive, HYPERVISOR, &self.hypervisor)?;
        add_as(archive, KERNEL, &self.dom0.0)
    }

    /// Commas are doubled, since one separates modules.
    fn command(&self, guest: &GuestConfig, word: &str) -> Command {
        let kernel = format!("{KERNEL} {} {word}", self.dom0.1).replace(',', ",,");
        self.qemu
            .for_hypervisor(guest.memory_mib, KVM_WITHOUT_PV_EOI)
            .arg("-kernel")
            .arg(HYPERVISOR)
            .arg("-append")
            .arg(&self.words)
            .arg("-initrd")
            .arg(format!("{kernel},{INITRD}"))
    }

    fn located_command(&self) -> Option<Command> {
        Some(qemu_located(&self.qemu))
    }
}
