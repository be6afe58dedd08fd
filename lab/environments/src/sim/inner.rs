//! Linux guests of the simulated machine, see [`Linux`].
//!
//! They are not offered KVM's paravirtual end of interrupt: with it, QEMU as the machine delivers more interrupts
//! twice, where `libtrapline_steady.so` does not drop them (docs/internals/linux-guests.md).

use super::contents::Contents;
use super::disk::{qemu_with_disk, vmm_with_disk, FILES_DISK};
use super::{add_qemu, GuestKind};
use crate::files;
use crate::guest_disk::job_with_disk;
use crate::linux_guest::{with_drivers, Devices, Linux, LinuxVmm, GUEST_DISK};
use crate::network::{self, PeerDrivers, Receiver};
use std::path::{Path, PathBuf};
use trapline_abi::Job;
use trapline_host::process::Command;
use trapline_host::{Error, Facts, Part};
use trapline_model::layers::{Level, QemuMachine, Vmm};
use trapline_model::{GuestConfig, GuestPath, Wake};
use trapline_sim::base::Base;
use trapline_sim::initramfs::{add_as, add_program, Archive};
use trapline_sim::kernel::Maker;
use trapline_sim::qemu::KVM_WITHOUT_PV_EOI;
use trapline_sim::settings::Settings;
use trapline_sim::{AGENT, SWITCH, VMM};

/// Files of a Linux guest in the initramfs of the system that runs it.
pub(super) const KERNEL: &str = "/trapline/kernel";
pub(super) const INITRD: &str = "/trapline/initrd";

/// Fact: the feature that guests are not offered.
pub(super) fn without_pv_eoi() -> (String, String) {
    ("guest-without".to_owned(), "kvm-pv-eoi".to_owned())
}

/// A Linux guest.
pub struct InnerLinux {
    linux: Linux,
    vmm: LinuxVmm,
    /// The VMM on this host.
    program: PathBuf,
    /// Its initramfs.
    initrd: Vec<u8>,
    taps: PeerDrivers,
    /// The switch to another guest, if that is the way.
    switch: Option<PathBuf>,
    /// Its file system, if it reads files.
    files: Option<Vec<u8>>,
}

impl InnerLinux {
    /// Returns the Linux guest of a level.
    ///
    /// # Errors
    /// A part, QEMU or the kernel is missing.
    pub fn new(level: Level, settings: &Settings, guest: &GuestConfig) -> Result<Self, Error> {
        let (vmm, program) = match level.vmm {
            Some(Vmm::Qemu(_)) => {
                let (qemu, accelerator) = (settings.qemu()?, KVM_WITHOUT_PV_EOI);
                let program = qemu.program.clone();
                (LinuxVmm::Qemu { qemu, accelerator }, program)
            }
            _ => {
                let vmm = Command::new(VMM).arg("--no-pv-eoi");
                (LinuxVmm::Trapline(vmm), settings.parts.get(Part::Vmm)?)
            }
        };
        if (guest.network || guest.packets) && guest.path == GuestPath::VhostNet {
            let steady = settings.parts.get(Part::Steady)?;
            settings.qemu()?.check_injection(&steady)?;
        }
        let linux = Linux::new(settings, guest)?;
        let devices = Devices {
            disk: guest.disk_mib != 0,
            files: guest.file_mib != 0,
            card: guest.network || guest.packets,
            vsock: guest.vsock,
            haltpoll: guest.wake == Wake::HaltPoll,
        };
        let initrd = with_drivers(&linux.root, settings, devices)?;
        Ok(Self {
            linux,
            vmm,
            program,
            initrd,
            taps: PeerDrivers::new(settings, guest)?,
            switch: network::switch(settings, guest)?,
            files: match guest.file_mib {
                0 => None,
                large_mib => Some(files::ext4_bytes(settings, large_mib)?),
            },
        })
    }
}

impl Contents for InnerLinux {
    fn guest_kind(&self) -> GuestKind {
        match self.vmm {
            LinuxVmm::Trapline(_) => GuestKind::TRAPLINE_VMM,
            LinuxVmm::Qemu { .. } => GuestKind::QEMU,
        }
    }

    fn base(&self, settings: &Settings, maker: Maker) -> Result<Base, Error> {
        Base::linux_with_linux_guests(settings, maker)
    }

    fn facts(&self) -> Result<Facts, Error> {
        let mut facts = self.linux.facts()?;
        facts.extend([without_pv_eoi()]);
        facts.extend(network::switch_facts(self.switch.as_deref())?);
        Ok(facts)
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), Error> {
        self.taps.add_to(archive);
        if let Some(switch) = &self.switch {
            add_program(archive, SWITCH, switch)?;
        }
        if let Some(files) = &self.files {
            archive.document(FILES_DISK, files.clone());
        }
        archive.file(INITRD, self.initrd.clone());
        add_as(archive, KERNEL, &self.linux.kernel)?;
        match &self.vmm {
            LinuxVmm::Trapline(_) => add_program(archive, VMM, &self.program),
            LinuxVmm::Qemu { qemu, .. } => add_qemu(archive, qemu, QemuMachine::DEFAULT),
        }
    }

    fn peer_drivers(&self) -> Option<&PeerDrivers> {
        Some(&self.taps)
    }

    fn command(&self, job: &Job) -> Command {
        let linux = |job: &Job| {
            let initrd = |command: Command| command.arg(INITRD);
            self.linux
                .command(&self.vmm, Path::new(KERNEL), initrd, job)
        };
        let job = network::job_with_card(&job_with_disk(job, GUEST_DISK));
        let command = linux(&job);
        if let LinuxVmm::Qemu { .. } = self.vmm {
            return qemu_with_disk(command, &job);
        }
        let guest = &self.linux.guest;
        let cards = guest.with_cards(job.run);
        let receiver = || Receiver::new(SWITCH, linux(&Receiver::JOB), guest);
        let receiver = cards.packets.then(receiver);
        network::with_peers(vmm_with_disk(command, &job), AGENT, &cards, receiver)
    }

    /// Another guest has as much memory.
    fn memory_mib(&self, guest: &GuestConfig) -> u32 {
        let guests = if guest.packets { 2 } else { 1 };
        guests * guest.touched_mib() + guest.window_mib + guest.disk_mib
    }

    fn asks_offset(&self) -> bool {
        matches!(self.vmm, LinuxVmm::Qemu { .. })
    }
}
