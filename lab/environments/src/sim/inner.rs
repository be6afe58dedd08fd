//! A Linux in a virtual machine on the simulated machine: the same that runs on a host,
//! which is the kernel of the machine a second time, with the agent as its init.
//!
//! It is not offered KVM's paravirtual end of interrupts. The QEMU that makes the machine
//! forgets only at the guest's next exit that `vmrun` has injected an interrupt; when its count
//! of instructions comes to a timer before that, it injects the same one again, also where the
//! guest has masked interrupts and holds a lock that the handler wants. A handler that has to
//! tell the end of its interrupt leaves the guest in its first instructions.

use super::guests::GuestKind;
use super::linux::Contents;
use crate::linux_guest::Linux;
use crate::observe::Offset;
use std::path::{Path, PathBuf};
use trapline_abi::Job;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{Error, Facts, Part};
use trapline_model::layers::{Level, QemuMachine, Vmm};
use trapline_model::GuestConfig;
use trapline_sim::base::Base;
use trapline_sim::initramfs::{add_as, add_program, Archive};
use trapline_sim::kernel::Maker;
use trapline_sim::qemu::Qemu;
use trapline_sim::settings::Settings;
use trapline_sim::{closure, qemu, VMM};

/// Files of a Linux guest in the initramfs of the system that runs it.
pub(super) const KERNEL: &str = "/trapline/kernel";
pub(super) const INITRD: &str = "/trapline/initrd";

/// A Linux, and who runs it.
pub struct InnerLinux {
    linux: Linux,
    monitor: Monitor,
}

enum Monitor {
    Ours(PathBuf),
    Qemu(Qemu),
}

impl InnerLinux {
    /// Returns the Linux guest of a level.
    ///
    /// # Errors
    /// A part, QEMU or the kernel is missing.
    pub fn of(level: Level, settings: &Settings, machine: &GuestConfig) -> Result<Self, Error> {
        let monitor = match level.vmm {
            Some(Vmm::Qemu(_)) => Monitor::Qemu(Qemu::find(settings.qemu.as_deref())?),
            _ => Monitor::Ours(settings.parts.get(Part::Vmm)?),
        };
        Ok(Self {
            linux: Linux::new(settings, machine)?,
            monitor,
        })
    }
}

impl Contents for InnerLinux {
    fn guest_kind(&self) -> GuestKind {
        let (exit_codes, program) = match self.monitor {
            Monitor::Ours(_) => (ExitCodes::VMM, "trapline-vmm"),
            Monitor::Qemu(_) => (ExitCodes::QEMU, "qemu-system-x86_64"),
        };
        GuestKind {
            exit_codes,
            offset: Offset::Heard,
            program,
            custom: None,
        }
    }

    fn base(&self, settings: &Settings, maker: Maker) -> Result<Base, Error> {
        Base::linux_with_linux_guests(settings, maker)
    }

    fn facts(&self) -> Result<Facts, Error> {
        let mut facts = self.linux.facts()?;
        facts.insert("guest-without".to_owned(), "kvm-pv-eoi".to_owned());
        Ok(facts)
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), Error> {
        archive.file(INITRD, self.linux.root.bytes()?);
        add_as(archive, KERNEL, &self.linux.kernel)?;
        match &self.monitor {
            Monitor::Ours(vmm) => add_program(archive, VMM, vmm),
            Monitor::Qemu(qemu) => {
                closure::add(archive, &qemu.program)?;
                let mut files = qemu.firmware(QemuMachine::DEFAULT)?.into_iter();
                files.try_for_each(|file| closure::add_file(archive, &file))
            }
        }
    }

    fn command(&self, job: &Job) -> Command {
        let kernel = Path::new(KERNEL);
        let initrd = |command: Command| command.arg(INITRD);
        match &self.monitor {
            Monitor::Ours(_) => {
                let vmm = Command::new(VMM).arg("--no-pv-eoi");
                self.linux.in_our_vmm(vmm, kernel, initrd, job)
            }
            Monitor::Qemu(qemu) => {
                let accelerator = qemu::KVM_WITHOUT_PV_EOI;
                self.linux.in_qemu(qemu, kernel, initrd, accelerator, job)
            }
        }
    }

    fn asks_offset(&self) -> bool {
        matches!(self.monitor, Monitor::Qemu(_))
    }
}
