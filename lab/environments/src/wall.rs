//! The environments on the wall clock: the agent as a process, the image in our
//! VMM, and the image in QEMU with and without KVM.

use crate::bzimage;
use crate::custom::{CustomVmm, Foreign, NONE_GIVEN};
use crate::disk;
use crate::error::EnvError;
use crate::guest::{BootClock, ProcessGuest, Recipe, Statuses};
use crate::kvm::{self, Hardware};
use crate::loads::Crew;
use crate::parts::{GuestImage, Part};
use crate::placement::Threads;
use crate::plugin::Plugin;
use crate::process::Command;
use crate::qemu::{self, Qemu};
use crate::settings::Settings;
use crate::stack::{Need, Stack};
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::{NamedTempFile, TempPath};
use trapline_abi::block::{self, Disk};
use trapline_abi::job::Console;
use trapline_abi::{Job, Op};
use trapline_model::{populate, EnvironmentId, Halt, MachineSpec, MemoryPages, Serial};

/// `host`.
pub fn host(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::Host,
        settings,
        needs: &[Need::Part(Part::Agent)],
        make: |_, settings, image, _| {
            let agent = settings.parts.get(Part::Agent)?;
            let recipe = Agent {
                agent,
                settings: settings.clone(),
            };
            Ok(Box::new(
                ProcessGuest::new(recipe).beside(crew(settings, image)),
            ))
        },
    }
}

/// `kvm`.
pub fn kvm(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::Kvm,
        settings,
        needs: &[Need::Part(Part::Vmm), Need::Part(Part::Image), Need::Kvm],
        make: |_, settings, image, machine| {
            kvm::check_halt(machine.halt)?;
            let recipe = OurVmm {
                vmm: settings.parts.get(Part::Vmm)?,
                image: image.path.clone(),
                machine: *machine,
            };
            Ok(Box::new(
                ProcessGuest::new(recipe).beside(crew(settings, image)),
            ))
        },
    }
}

/// `qemu-kvm`.
pub fn qemu_kvm(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::QemuKvm,
        settings,
        needs: &[Need::Part(Part::Image), Need::Qemu, Need::Kvm],
        make: |_, settings, image, machine| {
            kvm::check_halt(machine.halt)?;
            let recipe = InQemu {
                qemu: Qemu::find(settings.qemu.as_deref())?,
                image: image.path.clone(),
                machine: *machine,
                accelerator: qemu::KVM,
                ring: Hardware::of_this_host().ring(),
                plugin: None,
                steady: None,
                clock: BootClock::Guests,
            };
            Ok(Box::new(
                ProcessGuest::new(recipe).beside(crew(settings, image)),
            ))
        },
    }
}

/// `qemu-tcg`.
pub fn qemu_tcg(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::QemuTcg,
        settings,
        needs: &[Need::Part(Part::Image), Need::Qemu],
        make: |_, settings, image, machine| {
            let recipe = InQemu {
                qemu: Qemu::find(settings.qemu.as_deref())?,
                image: image.path.clone(),
                machine: *machine,
                accelerator: qemu::TCG,
                ring: 0,
                plugin: None,
                steady: None,
                clock: BootClock::Guests,
            };
            Ok(Box::new(
                ProcessGuest::new(recipe).beside(crew(settings, image)),
            ))
        },
    }
}

/// Who disturbs guests on this host.
pub(crate) fn crew(settings: &Settings, image: &GuestImage) -> Crew {
    Crew {
        parts: settings.parts.clone(),
        image: image.path.clone(),
    }
}

/// `custom`.
pub fn custom(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::Custom,
        settings,
        needs: &[Need::Vmm, Need::Part(Part::Image)],
        make: |_, settings, image, machine| {
            let ring = Hardware::of_this_host().ring();
            let (bzimage, file) = bzimage_file(settings, &image.path)?;
            let foreign = Foreign {
                bzimage,
                ..foreign(settings, &image.path, machine, ring)?
            };
            let recipe = Theirs {
                foreign,
                _bzimage: file,
            };
            Ok(Box::new(
                ProcessGuest::new(recipe).beside(crew(settings, image)),
            ))
        },
    }
}

/// The image as a bzImage in a file, if the user's VMM wants that.
fn bzimage_file(
    settings: &Settings,
    image: &Path,
) -> Result<(PathBuf, Option<TempPath>), EnvError> {
    let wanted = settings.vmm.as_ref().is_some_and(CustomVmm::wants_bzimage);
    if !wanted {
        return Ok((PathBuf::new(), None));
    }
    let mut file = NamedTempFile::new().map_err(EnvError::file(std::env::temp_dir()))?;
    let written = file.write_all(&bzimage::of(image)?);
    written.map_err(EnvError::file(file.path()))?;
    let path = file.into_temp_path();
    Ok((path.to_path_buf(), Some(path)))
}

/// The image in the VMM that the user gave.
struct Theirs {
    foreign: Foreign,
    /// Is removed when nobody needs it any more.
    _bzimage: Option<TempPath>,
}

/// The VMM that the user gave, with `image` where it will find it.
///
/// # Errors
/// There is none, or its program is not there.
pub(crate) fn foreign(
    settings: &Settings,
    image: &Path,
    machine: &MachineSpec,
    ring: u8,
) -> Result<Foreign, EnvError> {
    let none = || EnvError::Missing(NONE_GIVEN.to_owned());
    let vmm = settings.vmm.clone().ok_or_else(none)?;
    Ok(Foreign {
        program: vmm.program()?,
        vmm,
        image: image.to_owned(),
        bzimage: PathBuf::new(),
        machine: *machine,
        ring,
    })
}

impl Recipe for Theirs {
    fn command(&self, job: &Job) -> Result<Command, EnvError> {
        Ok(self.foreign.command(job))
    }

    /// Those of the agent, which nobody looks at.
    fn statuses(&self) -> Statuses {
        Statuses::AGENT
    }

    fn clock(&self) -> BootClock {
        BootClock::Guests
    }

    fn foreign(&self) -> Option<&Foreign> {
        Some(&self.foreign)
    }
}

/// The agent as a process.
struct Agent {
    agent: PathBuf,
    /// They say where its disk is to be.
    settings: Settings,
}

impl Recipe for Agent {
    fn command(&self, job: &Job) -> Result<Command, EnvError> {
        let mut command = Command::new(&self.agent);
        let mut job = *job;
        if job.run & block::operations() != 0 {
            let disk = command.give(disk::scratch(&self.settings, job.disk_mib)?);
            job.disk = Some(Disk::Descriptor(disk as u8));
        }
        Ok(command.words(&job.to_string()))
    }

    fn statuses(&self) -> Statuses {
        Statuses::AGENT
    }

    fn threads(&self, _: &Job) -> Option<Threads> {
        Some(Threads::FIRST)
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
    fn command(&self, job: &Job) -> Result<Command, EnvError> {
        Ok(our_vmm(
            Command::new(&self.vmm),
            &self.image,
            &self.machine,
            job,
        ))
    }

    fn statuses(&self) -> Statuses {
        Statuses::VMM
    }

    /// Its first thread runs the virtual CPU.
    fn threads(&self, job: &Job) -> Option<Threads> {
        let ticker = job.wants(Op::HostTimer);
        let line = self.machine.serial == Serial::Buffered;
        Some(Threads {
            helpers: usize::from(ticker) + usize::from(line),
            ..Threads::FIRST
        })
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
    let vmm = match job.wants(Op::HostTimer) {
        true => vmm.arg("--ticker"),
        false => vmm,
    };
    let vmm = match job.run & populate::operations() {
        0 => vmm,
        _ => vmm.words("--populate steps"),
    };
    let vmm = match machine.serial {
        Serial::Lines => vmm,
        serial => vmm.words("--serial").arg(serial.name()),
    };
    let vmm = match machine.halt {
        Halt::Exits => vmm,
        Halt::InGuest => vmm.arg("--halt-in-guest"),
    };
    with_pages(vmm, machine.pages)
        .arg("--image")
        .arg(image)
        .words(&format!("--memory {}M", machine.memory_mib))
        .words(&format!("--cpus {} --events 3 --cmdline", machine.cpus))
        .arg(job.to_string())
}

/// The arguments that say of which pages a guest's memory is.
pub(crate) fn with_pages(vmm: Command, pages: MemoryPages) -> Command {
    match pages {
        MemoryPages::File => vmm,
        pages => vmm.words("--pages").arg(pages.name()),
    }
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
    /// What keeps its clock steady, if that counts instructions.
    pub steady: Option<Arc<File>>,
    pub clock: BootClock,
}

impl Recipe for InQemu {
    fn command(&self, job: &Job) -> Result<Command, EnvError> {
        let job = qemu::adapt(job, self.ring);
        let command = self
            .qemu
            .for_image(&self.image, &self.machine, self.accelerator, &job)
            .watched_by(self.plugin.as_ref());
        Ok(match &self.steady {
            Some(steady) => command.steadied_by(Arc::clone(steady)),
            None => command,
        })
    }

    fn statuses(&self) -> Statuses {
        Statuses::QEMU
    }

    fn threads(&self, _: &Job) -> Option<Threads> {
        Some(Threads {
            vcpu: Some("CPU 0/"),
            helpers: 1,
        })
    }

    fn with_named_threads(&self, command: Command) -> Command {
        qemu::with_named_threads(command)
    }

    fn clock(&self) -> BootClock {
        self.clock
    }
}
