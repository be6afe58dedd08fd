//! Linux guests on this host: in our VMM, and in QEMU with and without KVM.

use super::disk::GuestDisk;
use super::Linux;
use crate::environment::{Facts, Guest};
use crate::error::EnvError;
use crate::guest::{BootClock, ProcessGuest, Recipe, Statuses};
use crate::parts::{GuestImage, Part};
use crate::process::Command;
use crate::qemu::{self, Qemu};
use crate::settings::Settings;
use crate::stack::{Need, Stack};
use crate::tsc::Rate;
use crate::wall::crew;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use trapline_abi::Job;
use trapline_model::{EnvironmentId, MachineSpec};

/// `kvm/linux`.
pub fn kvm(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::KvmLinux,
        settings,
        needs: &[
            Need::Part(Part::Agent),
            Need::Part(Part::Vmm),
            Need::Kvm,
            Need::Ring0,
            Need::GuestLinux,
        ],
        make,
    }
}

/// `qemu-kvm/linux`.
pub fn qemu_kvm(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::QemuKvmLinux,
        settings,
        needs: &[
            Need::Part(Part::Agent),
            Need::Qemu,
            Need::Kvm,
            Need::Ring0,
            Need::GuestLinux,
        ],
        make,
    }
}

/// `qemu-tcg/linux`.
pub fn qemu_tcg(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::QemuTcgLinux,
        settings,
        needs: &[Need::Part(Part::Agent), Need::Qemu, Need::GuestLinux],
        make,
    }
}

fn in_qemu(settings: &Settings, accelerator: &'static str) -> Result<Monitor, EnvError> {
    Ok(Monitor::Qemu {
        qemu: Qemu::find(settings.qemu.as_deref())?,
        accelerator,
    })
}

fn make(
    id: EnvironmentId,
    settings: &Settings,
    image: &GuestImage,
    machine: &MachineSpec,
) -> Result<Box<dyn Guest>, EnvError> {
    let recipe = recipe(id, settings, machine)?;
    Ok(Box::new(
        ProcessGuest::new(recipe).beside(crew(settings, image)),
    ))
}

/// How the Linux of an environment of these is run, if it is one of them.
///
/// # Errors
/// Something that it is made of is missing.
pub fn recipe(
    id: EnvironmentId,
    settings: &Settings,
    machine: &MachineSpec,
) -> Result<InMonitor, EnvError> {
    let linux = Linux::new(settings, machine)?;
    let (monitor, linux) = match id {
        EnvironmentId::KvmLinux => (Monitor::Ours(settings.parts.get(Part::Vmm)?), linux),
        EnvironmentId::QemuKvmLinux => (in_qemu(settings, qemu::KVM)?, linux),
        // Its time stamp counter is the host's, and on a host that is busy its kernel fails
        // to measure it.
        _ => (
            in_qemu(settings, qemu::TCG)?,
            linux.with_rate(Rate::of_this_host().hertz),
        ),
    };
    Ok(InMonitor {
        initrd: linux.root.file()?,
        facts: linux.facts()?,
        linux,
        monitor,
        settings: settings.clone(),
    })
}

/// Who runs the guest.
enum Monitor {
    Ours(PathBuf),
    Qemu {
        qemu: Qemu,
        /// In QEMU's words.
        accelerator: &'static str,
    },
}

/// A Linux in a virtual machine.
pub struct InMonitor {
    monitor: Monitor,
    linux: Linux,
    initrd: Arc<File>,
    facts: Facts,
    /// They say where its disk is to be, and where its drivers are from.
    settings: Settings,
}

impl InMonitor {
    fn without_disk(&self, initrd: &Arc<File>, job: &Job) -> Command {
        let initrd = |command: Command| command.file(Arc::clone(initrd));
        let kernel = &self.linux.kernel;
        match &self.monitor {
            Monitor::Ours(vmm) => {
                let vmm = Command::new(vmm);
                self.linux.in_our_vmm(vmm, kernel, initrd, job)
            }
            Monitor::Qemu { qemu, accelerator } => {
                self.linux.in_qemu(qemu, kernel, initrd, accelerator, job)
            }
        }
    }
}

impl Recipe for InMonitor {
    fn command(&self, job: &Job) -> Result<Command, EnvError> {
        let Some(disk) = GuestDisk::of(&self.settings, job)? else {
            return Ok(self.without_disk(&self.initrd, job));
        };
        let initrd = disk.root(&self.linux.root, &self.settings)?;
        let command = self.without_disk(&initrd, &disk.job(job, "vda"));
        Ok(match self.monitor {
            Monitor::Ours(_) => disk.to_our_vmm(command),
            Monitor::Qemu { .. } => disk.to_qemu(command),
        })
    }

    fn statuses(&self) -> Statuses {
        match self.monitor {
            Monitor::Ours(_) => Statuses::VMM,
            Monitor::Qemu { .. } => Statuses::QEMU,
        }
    }

    fn with_named_threads(&self, command: Command) -> Command {
        match self.monitor {
            Monitor::Ours(_) => command,
            Monitor::Qemu { .. } => qemu::with_named_threads(command),
        }
    }

    fn clock(&self) -> BootClock {
        BootClock::Guests
    }

    fn facts(&self) -> Facts {
        self.facts.clone()
    }
}
