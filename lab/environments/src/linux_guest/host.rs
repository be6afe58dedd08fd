//! Linux guests on this host, in `trapline-vmm` and in QEMU.

use super::device_drivers::{with_drivers, Devices};
use super::{Linux, LinuxVmm, GUEST_DISK};
use crate::files;
use crate::guest_disk::{job_with_disk, GuestDisk};
use crate::launch::BootClock;
use crate::network::{self, Receiver};
use crate::process_guest::GuestCommand;
use std::fs::File;
use std::sync::Arc;
use trapline_abi::Job;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{memory_file, Error, Facts, Part, TscRate};
use trapline_model::layers::{Guest, Hypervisor, Level, Vmm};
use trapline_model::{GuestConfig, Wake};
use trapline_sim::qemu;
use trapline_sim::settings::Settings;

/// A Linux guest in a VMM.
pub struct LinuxInVmm {
    vmm: LinuxVmm,
    linux: Linux,
    initrd: Arc<File>,
    facts: Facts,
    /// Location of disks and drivers.
    settings: Settings,
}

impl LinuxInVmm {
    /// Returns the Linux guest of this level.
    ///
    /// # Errors
    /// A part, a program or the kernel is missing.
    pub fn new(level: Level, settings: &Settings, guest: &GuestConfig) -> Result<Self, Error> {
        let linux = Linux::new(settings, guest)?;
        let (vmm, linux) = match (level.hypervisor, level.vmm) {
            (_, Some(Vmm::Trapline)) => {
                let vmm = Command::new(settings.parts.get(Part::Vmm)?);
                (LinuxVmm::Trapline(vmm), linux)
            }
            (Hypervisor::Kvm, _) => (in_qemu(settings, qemu::KVM)?, linux),
            // The guest's TSC is the host's, and the kernel fails to calibrate it on a loaded host.
            _ => (
                in_qemu(settings, qemu::TCG)?,
                linux.with_tsc_rate(TscRate::host().hertz),
            ),
        };
        let mut facts = linux.facts()?;
        let switch = network::switch(settings, guest)?;
        facts.extend(network::switch_facts(switch.as_deref())?);
        Ok(Self {
            initrd: linux.root.file()?,
            facts,
            linux,
            vmm,
            settings: settings.clone(),
        })
    }

    /// Returns the command that runs `job`, with this initramfs.
    fn with_initrd(&self, initrd: &Arc<File>, job: &Job) -> Command {
        let initrd = |command: Command| command.arg_file(Arc::clone(initrd));
        self.linux
            .command(&self.vmm, &self.linux.kernel, initrd, job)
    }

    /// Returns the other guest of `command`, which gets the initramfs of that.
    fn receiver(&self, command: &mut Command, initrd: &Arc<File>) -> Result<Receiver, Error> {
        let path = format!("/proc/self/fd/{}", command.pass_file(Arc::clone(initrd)));
        let initrd = |command: Command| command.arg(path);
        let other = self
            .linux
            .command(&self.vmm, &self.linux.kernel, initrd, &Receiver::JOB);
        let switch = self.settings.parts.get(Part::Switch)?;
        Ok(Receiver::new(switch, other, &self.linux.guest))
    }
}

fn in_qemu(settings: &Settings, accelerator: &'static str) -> Result<LinuxVmm, Error> {
    let qemu = settings.qemu()?;
    Ok(LinuxVmm::Qemu { qemu, accelerator })
}

impl GuestCommand for LinuxInVmm {
    fn command(&self, job: &Job) -> Result<Command, Error> {
        let disk = GuestDisk::new(&self.settings, job, Guest::Linux)?;
        let cards = self.linux.guest.with_cards(job.run);
        let devices = Devices {
            disk: disk.is_some(),
            files: files::are_read(job),
            card: cards.network || cards.packets,
            vsock: cards.vsock,
            haltpoll: self.linux.guest.wake == Wake::HaltPoll,
        };
        if devices == Devices::default() {
            return Ok(self.with_initrd(&self.initrd, job));
        }
        let initrd = with_drivers(&self.linux.root, &self.settings, devices)?;
        let initrd = Arc::new(memory_file("initramfs", &initrd)?);
        let job = network::job_with_card(&job_with_disk(job, GUEST_DISK));
        let mut command = self.with_initrd(&initrd, &job);
        if let Some(disk) = disk {
            command = match self.vmm {
                LinuxVmm::Trapline(_) => disk.for_trapline_vmm(command),
                LinuxVmm::Qemu { .. } => disk.for_qemu(command),
            };
        }
        let receiver = || self.receiver(&mut command, &initrd);
        let receiver = cards.packets.then(receiver).transpose()?;
        let agent = self.settings.parts.get(Part::Agent)?;
        Ok(network::with_peers(command, agent, &cards, receiver))
    }

    fn exit_codes(&self) -> ExitCodes {
        self.vmm.exit_codes()
    }

    fn with_named_threads(&self, command: Command) -> Command {
        match self.vmm {
            LinuxVmm::Trapline(_) => command,
            LinuxVmm::Qemu { .. } => qemu::with_named_threads(command),
        }
    }

    fn clock(&self) -> BootClock {
        BootClock::Guest
    }

    fn facts(&self) -> Facts {
        self.facts.clone()
    }
}
