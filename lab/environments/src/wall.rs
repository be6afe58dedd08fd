//! The environments on the wall clock: the agent as a process, the image in our
//! VMM, and the image in QEMU with and without KVM.

use crate::guest::{BootClock, ProcessGuest, Recipe, Statuses};
use crate::kvm::Hardware;
use crate::parts::Part;
use crate::plugin::Plugin;
use crate::process::Command;
use crate::qemu::{self, Qemu};
use crate::settings::Settings;
use crate::stack::{Need, Stack};
use std::ffi::OsString;
use std::path::PathBuf;
use trapline_abi::job::Console;
use trapline_abi::Job;
use trapline_plan::{EnvironmentId, MachineSpec};

/// `host`.
pub fn host(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::Host,
        settings,
        needs: &[Need::Part(Part::Agent)],
        make: |settings, _, _| {
            let agent = settings.parts.get(Part::Agent)?;
            Ok(Box::new(ProcessGuest::new(Agent(agent))))
        },
    }
}

/// `kvm`.
pub fn kvm(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::Kvm,
        settings,
        needs: &[Need::Part(Part::Vmm), Need::Part(Part::Image), Need::Kvm],
        make: |settings, image, machine| {
            Ok(Box::new(ProcessGuest::new(OurVmm {
                vmm: settings.parts.get(Part::Vmm)?,
                image: image.path.clone(),
                machine: *machine,
            })))
        },
    }
}

/// `qemu-kvm`.
pub fn qemu_kvm(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::QemuKvm,
        settings,
        needs: &[Need::Part(Part::Image), Need::Qemu, Need::Kvm],
        make: |settings, image, machine| {
            Ok(Box::new(ProcessGuest::new(InQemu {
                qemu: Qemu::find(settings.qemu.as_deref())?,
                image: image.path.clone(),
                machine: *machine,
                accelerator: qemu::KVM,
                ring: Hardware::of_this_host().ring(),
                plugin: None,
                clock: BootClock::Guests,
            })))
        },
    }
}

/// `qemu-tcg`.
pub fn qemu_tcg(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::QemuTcg,
        settings,
        needs: &[Need::Part(Part::Image), Need::Qemu],
        make: |settings, image, machine| {
            Ok(Box::new(ProcessGuest::new(InQemu {
                qemu: Qemu::find(settings.qemu.as_deref())?,
                image: image.path.clone(),
                machine: *machine,
                accelerator: qemu::TCG,
                ring: 0,
                plugin: None,
                clock: BootClock::Guests,
            })))
        },
    }
}

/// The agent as a process.
struct Agent(PathBuf);

impl Recipe for Agent {
    fn command(&self, job: &Job) -> Command {
        Command::new(&self.0).words(&job.to_string())
    }

    fn statuses(&self) -> Statuses {
        Statuses::AGENT
    }

    fn clock(&self) -> BootClock {
        BootClock::Ours
    }
}

/// The image in our VMM.
struct OurVmm {
    vmm: PathBuf,
    image: PathBuf,
    machine: MachineSpec,
}

impl Recipe for OurVmm {
    fn command(&self, job: &Job) -> Command {
        our_vmm(Command::new(&self.vmm), &self.image, &self.machine, job)
    }

    fn statuses(&self) -> Statuses {
        Statuses::VMM
    }

    fn clock(&self) -> BootClock {
        BootClock::Guests
    }
}

/// The arguments of our VMM for `job`, with its events on descriptor 3.
pub(crate) fn our_vmm(
    vmm: Command,
    image: impl Into<OsString>,
    machine: &MachineSpec,
    job: &Job,
) -> Command {
    let job = Job {
        console: Console::Frames,
        ports: true,
        ..*job
    };
    vmm.arg("--image")
        .arg(image)
        .words(&format!("--memory {}M", machine.memory_mib))
        .words(&format!("--cpus {} --events 3 --cmdline", machine.cpus))
        .arg(job.to_string())
}

/// The image in QEMU.
pub(crate) struct InQemu {
    pub qemu: Qemu,
    pub image: PathBuf,
    pub machine: MachineSpec,
    /// In QEMU's words.
    pub accelerator: &'static str,
    /// The ring for the image.
    pub ring: u8,
    /// Who watches.
    pub plugin: Option<Plugin>,
    pub clock: BootClock,
}

impl Recipe for InQemu {
    fn command(&self, job: &Job) -> Command {
        let job = qemu::adapt(job, self.ring);
        self.qemu
            .for_image(&self.image, &self.machine, self.accelerator, &job)
            .watched_by(self.plugin.as_ref())
    }

    fn statuses(&self) -> Statuses {
        Statuses::QEMU
    }

    fn clock(&self) -> BootClock {
        self.clock
    }
}
