//! The environments on the wall clock: the agent as a process, the image in our
//! VMM, and the image in QEMU with and without KVM.

use crate::environment::{Availability, Environment, Facts, Guest, Requirements};
use crate::error::EnvError;
use crate::facts;
use crate::guest::{BootClock, ProcessGuest, Recipe, Statuses};
use crate::kvm::{self, Hardware};
use crate::parts::{sha256_of_file, GuestImage, Part};
use crate::process::Command;
use crate::qemu::{self, Qemu};
use crate::settings::Settings;
use std::path::PathBuf;
use trapline_abi::job::Console;
use trapline_abi::Job;
use trapline_plan::{EnvironmentId, MachineSpec};

/// `host`.
pub struct Host(pub Settings);

/// `kvm`.
pub struct Kvm(pub Settings);

/// `qemu-kvm`.
pub struct QemuKvm(pub Settings);

/// `qemu-tcg`.
pub struct QemuTcg(pub Settings);

/// Memory that a machine of this size takes of the host: guest RAM and some
/// for whoever runs it.
///
/// # Errors
/// There is not enough now.
pub fn check_memory(machine: &MachineSpec) -> Result<(), EnvError> {
    let needed = u64::from(machine.memory_mib) + 128;
    match facts::available_mib() {
        Some(available) if available < needed => Err(EnvError::Missing(format!(
            "{needed} MiB of memory are needed, {available} MiB are available: \
             end something large, or ask for a smaller guest"
        ))),
        _ => Ok(()),
    }
}

impl Environment for Host {
    fn id(&self) -> EnvironmentId {
        EnvironmentId::Host
    }

    fn supports(&self, need: &Requirements) -> Availability {
        let agent = self.0.parts.get(Part::Agent);
        Availability::from_check(agent.and_then(|_| check_memory(&need.machine)))
    }

    fn facts(&self) -> Facts {
        let mut facts = facts::of_host();
        note_part(&mut facts, &self.0, Part::Agent);
        facts
    }

    fn launch(&self, _: &GuestImage, _: &MachineSpec) -> Result<Box<dyn Guest>, EnvError> {
        let agent = self.0.parts.get(Part::Agent)?;
        Ok(Box::new(ProcessGuest::new(Agent(agent))))
    }
}

impl Environment for Kvm {
    fn id(&self) -> EnvironmentId {
        EnvironmentId::Kvm
    }

    fn supports(&self, need: &Requirements) -> Availability {
        let parts = self.0.parts.get(Part::Vmm);
        let parts = parts.and_then(|_| self.0.parts.get(Part::Image));
        let check = parts.and_then(|_| kvm::check());
        Availability::from_check(check.and_then(|()| check_memory(&need.machine)))
    }

    fn facts(&self) -> Facts {
        let mut facts = facts::of_host();
        note_kvm(&mut facts);
        note_part(&mut facts, &self.0, Part::Image);
        note_part(&mut facts, &self.0, Part::Vmm);
        facts
    }

    fn launch(
        &self,
        image: &GuestImage,
        machine: &MachineSpec,
    ) -> Result<Box<dyn Guest>, EnvError> {
        kvm::check()?;
        Ok(Box::new(ProcessGuest::new(OurVmm {
            vmm: self.0.parts.get(Part::Vmm)?,
            image: image.path.clone(),
            machine: *machine,
        })))
    }
}

impl Environment for QemuKvm {
    fn id(&self) -> EnvironmentId {
        EnvironmentId::QemuKvm
    }

    fn supports(&self, need: &Requirements) -> Availability {
        let check = check_qemu(&self.0, &need.machine);
        Availability::from_check(check.and_then(|()| kvm::check()))
    }

    fn facts(&self) -> Facts {
        let mut facts = facts_of_qemu(&self.0);
        note_kvm(&mut facts);
        facts
    }

    fn launch(
        &self,
        image: &GuestImage,
        machine: &MachineSpec,
    ) -> Result<Box<dyn Guest>, EnvError> {
        kvm::check()?;
        Ok(Box::new(ProcessGuest::new(InQemu {
            qemu: Qemu::find(self.0.qemu.as_deref())?,
            image: image.path.clone(),
            machine: *machine,
            accelerator: "-accel kvm -cpu host,-arch-capabilities",
            ring: Hardware::of_this_host().ring(),
            clock: BootClock::Guests,
        })))
    }
}

impl Environment for QemuTcg {
    fn id(&self) -> EnvironmentId {
        EnvironmentId::QemuTcg
    }

    fn supports(&self, need: &Requirements) -> Availability {
        Availability::from_check(check_qemu(&self.0, &need.machine))
    }

    fn facts(&self) -> Facts {
        facts_of_qemu(&self.0)
    }

    fn launch(
        &self,
        image: &GuestImage,
        machine: &MachineSpec,
    ) -> Result<Box<dyn Guest>, EnvError> {
        Ok(Box::new(ProcessGuest::new(InQemu {
            qemu: Qemu::find(self.0.qemu.as_deref())?,
            image: image.path.clone(),
            machine: *machine,
            accelerator: "-accel tcg -cpu max",
            ring: 0,
            clock: BootClock::Guests,
        })))
    }
}

/// Whether the image can be run in QEMU.
pub(crate) fn check_qemu(settings: &Settings, machine: &MachineSpec) -> Result<(), EnvError> {
    settings.parts.get(Part::Image)?;
    Qemu::find(settings.qemu.as_deref())?.firmware()?;
    check_memory(machine)
}

/// Facts about the host, the image and QEMU.
pub(crate) fn facts_of_qemu(settings: &Settings) -> Facts {
    let mut facts = facts::of_host();
    note_part(&mut facts, settings, Part::Image);
    note_qemu(&mut facts, settings);
    facts
}

pub(crate) fn note_qemu(facts: &mut Facts, settings: &Settings) {
    if let Ok(qemu) = Qemu::find(settings.qemu.as_deref()) {
        facts.insert("qemu".to_owned(), qemu.version);
    }
}

/// Notes the hash of a part, if it is there.
pub(crate) fn note_part(facts: &mut Facts, settings: &Settings, part: Part) {
    let hash = settings
        .parts
        .get(part)
        .and_then(|path| sha256_of_file(&path));
    let name = part.file_name().trim_start_matches("trapline-");
    facts.extend(hash.ok().map(|hash| (format!("{name}-sha256"), hash)));
}

fn note_kvm(facts: &mut Facts) {
    let hardware = Hardware::of_this_host().describe();
    facts.insert("hardware".to_owned(), hardware.to_owned());
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
    image: impl Into<std::ffi::OsString>,
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
    pub accelerator: &'static str,
    pub ring: u8,
    pub clock: BootClock,
}

impl Recipe for InQemu {
    fn command(&self, job: &Job) -> Command {
        let job = qemu::adapt(job, self.ring);
        self.qemu
            .for_image(&self.image, &self.machine, self.accelerator, &job)
    }

    fn statuses(&self) -> Statuses {
        Statuses::QEMU
    }

    fn clock(&self) -> BootClock {
        self.clock
    }
}
