//! Linux guests on this host: in our VMM, and in QEMU with and without KVM.

use super::disk::GuestDisk;
use super::Linux;
use crate::guest::{BootClock, Recipe};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use trapline_abi::Job;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{Error, Facts, Part, TscRate};
use trapline_model::layers::{Hypervisor, Level, Vmm};
use trapline_model::GuestConfig;
use trapline_sim::qemu;
use trapline_sim::qemu::Qemu;
use trapline_sim::settings::Settings;

fn in_qemu(settings: &Settings, accelerator: &'static str) -> Result<Monitor, Error> {
    Ok(Monitor::Qemu {
        qemu: Qemu::find(settings.qemu.as_deref())?,
        accelerator,
    })
}

/// Returns how a Linux guest of this level is run.
///
/// # Errors
/// Something that it is made of is missing.
pub fn recipe(
    level: Level,
    settings: &Settings,
    machine: &GuestConfig,
) -> Result<InMonitor, Error> {
    let linux = Linux::new(settings, machine)?;
    let (monitor, linux) = match (level.hypervisor, level.vmm) {
        (_, Some(Vmm::Trapline)) => (Monitor::Ours(settings.parts.get(Part::Vmm)?), linux),
        (Hypervisor::Kvm, _) => (in_qemu(settings, qemu::KVM)?, linux),
        // Its time stamp counter is the host's, and on a host that is busy its kernel fails
        // to measure it.
        _ => (
            in_qemu(settings, qemu::TCG)?,
            linux.with_rate(TscRate::host().hertz),
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
        let initrd = |command: Command| command.arg_file(Arc::clone(initrd));
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
    fn command(&self, job: &Job) -> Result<Command, Error> {
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

    fn exit_codes(&self) -> ExitCodes {
        match self.monitor {
            Monitor::Ours(_) => ExitCodes::VMM,
            Monitor::Qemu { .. } => ExitCodes::QEMU,
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
