//! A Linux in a virtual machine on the simulated machine: the same that runs on a host,
//! which is the kernel of the machine a second time, with the agent as its init.
//!
//! It is not offered KVM's paravirtual end of interrupts. The QEMU that makes the machine
//! forgets only at the guest's next exit that `vmrun` has injected an interrupt; when its count
//! of instructions comes to a timer before that, it injects the same one again, also where the
//! guest has masked interrupts and holds a lock that the handler wants. A handler that has to
//! tell the end of its interrupt leaves the guest in its first instructions.

use super::base::Base;
use super::closure;
use super::initramfs::Archive;
use super::kernel::Maker;
use super::linux::Contents;
use super::listener::Inside;
use super::{add_as, add_program, VMM};
use crate::environment::Facts;
use crate::error::EnvError;
use crate::guest::Statuses;
use crate::linux_guest::Linux;
use crate::observe::Offset;
use crate::parts::Part;
use crate::process::Command;
use crate::qemu::{self, Qemu};
use crate::settings::Settings;
use std::path::{Path, PathBuf};
use trapline_abi::Job;
use trapline_model::MachineSpec;

/// Where the machine has what its guests are made of.
const KERNEL: &str = "/trapline/kernel";
const INITRD: &str = "/trapline/initrd";

/// A Linux, and who runs it.
pub struct InnerLinux {
    linux: Linux,
    monitor: Monitor,
}

enum Monitor {
    Ours(PathBuf),
    Qemu(Qemu),
}

/// The Linux guest of our VMM.
///
/// # Errors
/// A part or the kernel is missing.
pub fn of_our_vmm(settings: &Settings, machine: &MachineSpec) -> Result<InnerLinux, EnvError> {
    Ok(InnerLinux {
        linux: Linux::new(settings, machine)?,
        monitor: Monitor::Ours(settings.parts.get(Part::Vmm)?),
    })
}

/// The same of QEMU.
///
/// # Errors
/// As [`of_our_vmm`], or QEMU is missing.
pub fn of_qemu(settings: &Settings, machine: &MachineSpec) -> Result<InnerLinux, EnvError> {
    Ok(InnerLinux {
        linux: Linux::new(settings, machine)?,
        monitor: Monitor::Qemu(Qemu::find(settings.qemu.as_deref())?),
    })
}

impl Contents for InnerLinux {
    fn inside(&self) -> Inside {
        let (statuses, program) = match self.monitor {
            Monitor::Ours(_) => (Statuses::VMM, "trapline-vmm"),
            Monitor::Qemu(_) => (Statuses::QEMU, "qemu-system-x86_64"),
        };
        Inside {
            statuses,
            offset: Offset::Heard,
            program,
            foreign: None,
        }
    }

    /// Its guest runs long enough for the machine's kernel to draw random numbers anew.
    fn base(&self, settings: &Settings, maker: Maker) -> Result<Base, EnvError> {
        Ok(Base {
            draws_lots: true,
            ..Base::linux(settings, maker)?
        })
    }

    fn facts(&self) -> Result<Facts, EnvError> {
        let mut facts = self.linux.facts()?;
        facts.insert("guest-without".to_owned(), "kvm-pv-eoi".to_owned());
        Ok(facts)
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), EnvError> {
        archive.file(INITRD, self.linux.root.bytes()?);
        add_as(archive, KERNEL, &self.linux.kernel)?;
        match &self.monitor {
            Monitor::Ours(vmm) => add_program(archive, VMM, vmm),
            Monitor::Qemu(qemu) => {
                closure::add(archive, &qemu.program)?;
                closure::add_file(archive, &qemu.firmware()?)
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
