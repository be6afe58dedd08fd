//! The environments on the instruction clock.
//!
//! A QEMU that counts instructions is the simulated machine: one executed
//! instruction is one tick is one nanosecond of its time, and two runs are the
//! same to the last digit. `sim` runs the image on it directly. The others boot a
//! distribution's Linux on it, with an initramfs that holds the agent as init and
//! exactly what one environment needs, so that no figure depends on what else
//! was planned.

mod closure;
mod initramfs;
pub mod kernel;
mod linux;
mod listener;
mod module;
pub mod programs;
mod script;

use crate::environment::{Availability, Environment, Facts, Guest, Requirements};
use crate::error::EnvError;
use crate::guest::{BootClock, ProcessGuest, Statuses};
use crate::observe::Offset;
use crate::parts::{GuestImage, Part};
use crate::process::Command;
use crate::qemu::{self, Qemu};
use crate::settings::Settings;
use crate::wall::{check_qemu, facts_of_qemu, note_part, our_vmm, InQemu};
use initramfs::Archive;
use linux::{Contents, LinuxGuest};
use listener::Inside;
use std::path::{Path, PathBuf};
use trapline_abi::Job;
use trapline_plan::{EnvironmentId, MachineSpec};

/// The fact that two runs of a simulated machine have in common if all that they
/// said was the same, byte for byte.
pub const STREAM_HASH: &str = "stream-sha256";

/// `sim`.
pub struct Bare(pub Settings);

/// `sim/linux`.
pub struct Linux(pub Settings);

/// `sim/kvm`.
pub struct Kvm(pub Settings);

/// `sim/qemu-kvm`.
pub struct QemuKvm(pub Settings);

impl Environment for Bare {
    fn id(&self) -> EnvironmentId {
        EnvironmentId::Sim
    }

    fn supports(&self, need: &Requirements) -> Availability {
        Availability::from_check(check_qemu(&self.0, &need.machine))
    }

    fn facts(&self) -> Facts {
        let mut facts = facts_of_qemu(&self.0);
        facts.insert("machine".to_owned(), qemu::COUNTING.to_owned());
        facts
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
            accelerator: qemu::COUNTING,
            ring: 0,
            clock: BootClock::Machine,
        })))
    }
}

/// Whether Linux can be booted on the simulated machine, with `parts` in it.
fn check_linux(settings: &Settings, need: &Requirements, parts: &[Part]) -> Availability {
    let check = || {
        for part in parts {
            settings.parts.get(*part)?;
        }
        check_qemu(settings, &linux::outer(&need.machine))?;
        match &settings.kernel {
            Some((image, modules)) => kernel::given(image, modules).map(|_| ())?,
            None => kernel::check(&settings.cache)?,
        }
        Ok(())
    };
    Availability::from_check(check())
}

fn facts_of_linux(settings: &Settings, parts: &[Part]) -> Facts {
    let mut facts = facts_of_qemu(settings);
    facts.extend(linux::facts());
    for part in parts {
        note_part(&mut facts, settings, *part);
    }
    facts
}

/// Where the initramfs has what the environments put into it.
const AGENT: &str = "/init";
const VMM: &str = "/trapline/vmm";
const IMAGE: &str = "/trapline/image";

impl Environment for Linux {
    fn id(&self) -> EnvironmentId {
        EnvironmentId::SimLinux
    }

    fn supports(&self, need: &Requirements) -> Availability {
        check_linux(&self.0, need, &[Part::Agent])
    }

    fn facts(&self) -> Facts {
        facts_of_linux(&self.0, &[Part::Agent])
    }

    fn launch(&self, _: &GuestImage, machine: &MachineSpec) -> Result<Box<dyn Guest>, EnvError> {
        LinuxGuest::boxed(self.0.clone(), *machine, Box::new(Agent))
    }
}

/// The agent, a second time, as an ordinary process.
struct Agent;

impl Contents for Agent {
    fn inside(&self) -> Inside {
        Inside {
            statuses: Statuses::AGENT,
            offset: Offset::Same,
            program: "trapline-agent",
        }
    }

    fn add_to(&self, _: &mut Archive) -> Result<(), EnvError> {
        Ok(())
    }

    fn command(&self, job: &Job) -> Command {
        Command::new(AGENT).words(&job.to_string())
    }
}

impl Environment for Kvm {
    fn id(&self) -> EnvironmentId {
        EnvironmentId::SimKvm
    }

    fn supports(&self, need: &Requirements) -> Availability {
        check_linux(&self.0, need, &[Part::Agent, Part::Vmm])
    }

    fn facts(&self) -> Facts {
        facts_of_linux(&self.0, &[Part::Agent, Part::Vmm])
    }

    fn launch(
        &self,
        image: &GuestImage,
        machine: &MachineSpec,
    ) -> Result<Box<dyn Guest>, EnvError> {
        let contents = OurVmm {
            vmm: self.0.parts.get(Part::Vmm)?,
            image: image.path.clone(),
            machine: *machine,
        };
        LinuxGuest::boxed(self.0.clone(), *machine, Box::new(contents))
    }
}

/// Our VMM and the image.
struct OurVmm {
    vmm: PathBuf,
    image: PathBuf,
    machine: MachineSpec,
}

impl Contents for OurVmm {
    fn inside(&self) -> Inside {
        Inside {
            statuses: Statuses::VMM,
            offset: Offset::Heard,
            program: "trapline-vmm",
        }
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), EnvError> {
        add_as(archive, VMM, &self.vmm)?;
        add_as(archive, IMAGE, &self.image)
    }

    fn command(&self, job: &Job) -> Command {
        our_vmm(Command::new(VMM), IMAGE, &self.machine, job)
    }
}

impl Environment for QemuKvm {
    fn id(&self) -> EnvironmentId {
        EnvironmentId::SimQemuKvm
    }

    fn supports(&self, need: &Requirements) -> Availability {
        check_linux(&self.0, need, &[Part::Agent])
    }

    fn facts(&self) -> Facts {
        facts_of_linux(&self.0, &[Part::Agent])
    }

    fn launch(
        &self,
        image: &GuestImage,
        machine: &MachineSpec,
    ) -> Result<Box<dyn Guest>, EnvError> {
        let contents = InnerQemu {
            qemu: Qemu::find(self.0.qemu.as_deref())?,
            image: image.path.clone(),
            machine: *machine,
        };
        LinuxGuest::boxed(self.0.clone(), *machine, Box::new(contents))
    }
}

/// QEMU with all that it needs, and the image.
struct InnerQemu {
    qemu: Qemu,
    image: PathBuf,
    machine: MachineSpec,
}

impl Contents for InnerQemu {
    fn inside(&self) -> Inside {
        Inside {
            statuses: Statuses::QEMU,
            offset: Offset::Heard,
            program: "qemu-system-x86_64",
        }
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), EnvError> {
        closure::add(archive, &self.qemu.program)?;
        closure::add_file(archive, &self.qemu.firmware()?)?;
        add_as(archive, IMAGE, &self.image)
    }

    fn command(&self, job: &Job) -> Command {
        let job = qemu::adapt(job, 0);
        let accelerator = "-accel kvm -cpu host,-arch-capabilities";
        self.qemu
            .for_image(Path::new(IMAGE), &self.machine, accelerator, &job)
    }

    fn asks_offset(&self) -> bool {
        true
    }
}

/// Adds a file of this host as `name`.
fn add_as(archive: &mut Archive, name: &str, path: &Path) -> Result<(), EnvError> {
    let contents = std::fs::read(path).map_err(EnvError::file(path))?;
    archive.file(name, contents);
    Ok(())
}
