//! The environments on the wall clock: the agent as a process, the image in our
//! VMM, and the image in QEMU with and without KVM.

use crate::disk;
use crate::environment;
use crate::guest::{BootClock, ProcessGuest, Recipe};
use crate::kvm::{self, Hardware};
use crate::linux_guest;
use crate::loads::Crew;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::{NamedTempFile, TempPath};
use trapline_abi::block::{self, Disk};
use trapline_abi::job::Console;
use trapline_abi::{Job, Op};
use trapline_host::affinity::Threads;
use trapline_host::custom_vmm::{none_given, CustomGuest, CustomVmm};
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{Error, GuestImage, Part};
use trapline_model::layers::{Guest, Hypervisor, Level, QemuMachine, Stack, Vmm};
use trapline_model::{populate, GuestConfig, Halt, MemoryPages, Serial};
use trapline_sim::plugin::{with_plugin, Plugin};
use trapline_sim::qemu::Qemu;
use trapline_sim::settings::Settings;
use trapline_sim::{bzimage, qemu};

/// Prepares a guest on this host.
///
/// # Errors
/// A part or program is missing.
pub fn launch(
    stack: &Stack,
    settings: &Settings,
    image: &GuestImage,
    machine: &GuestConfig,
) -> Result<Box<dyn environment::Guest>, Error> {
    let recipe: Box<dyn Recipe> = match (stack.guest, stack.innermost()) {
        (_, None) => Box::new(Agent {
            agent: settings.parts.get(Part::Agent)?,
            settings: settings.clone(),
        }),
        (Guest::Linux, Some(level)) => linux_guest::recipe(level, settings, machine)?,
        (Guest::Image, Some(level)) => image_recipe(level, settings, image, machine)?,
    };
    let guest = ProcessGuest::new(recipe);
    Ok(Box::new(guest.beside(crew(settings, image))))
}

fn image_recipe(
    level: Level,
    settings: &Settings,
    image: &GuestImage,
    machine: &GuestConfig,
) -> Result<Box<dyn Recipe>, Error> {
    let (image, machine) = (image.path.clone(), *machine);
    kvm::check_halt(machine.scheduling.halt)?;
    Ok(match level.vmm {
        Some(Vmm::Trapline) => Box::new(OurVmm {
            vmm: settings.parts.get(Part::Vmm)?,
            image,
            machine,
        }),
        Some(Vmm::Qemu(kind)) => {
            let (accelerator, ring) = match level.hypervisor {
                Hypervisor::Kvm => (qemu::KVM, Hardware::of_this_host().ring()),
                _ => (qemu::TCG, 0),
            };
            Box::new(InQemu {
                qemu: Qemu::find(settings.qemu.as_deref())?,
                kind,
                image,
                machine,
                accelerator,
                ring,
                plugin: None,
                steady: None,
                clock: BootClock::Guests,
            })
        }
        Some(Vmm::Custom) | None => custom_recipe(settings, &image, &machine)?,
    })
}

fn custom_recipe(
    settings: &Settings,
    image: &Path,
    machine: &GuestConfig,
) -> Result<Box<dyn Recipe>, Error> {
    let ring = Hardware::of_this_host().ring();
    let (bzimage, file) = bzimage_file(settings, image)?;
    let foreign = CustomGuest {
        bzimage,
        ..foreign(settings, image, machine, ring)?
    };
    Ok(Box::new(Theirs {
        foreign,
        _bzimage: file,
    }))
}

/// Who disturbs guests on this host.
pub(crate) fn crew(settings: &Settings, image: &GuestImage) -> Crew {
    Crew {
        parts: settings.parts.clone(),
        image: image.path.clone(),
    }
}

/// The image as a bzImage in a file, if the user's VMM wants that.
fn bzimage_file(settings: &Settings, image: &Path) -> Result<(PathBuf, Option<TempPath>), Error> {
    let wanted = settings.vmm.as_ref().is_some_and(CustomVmm::wants_bzimage);
    if !wanted {
        return Ok((PathBuf::new(), None));
    }
    let mut file = NamedTempFile::new().map_err(Error::file(std::env::temp_dir()))?;
    let written = file.write_all(&bzimage::of(image)?);
    written.map_err(Error::file(file.path()))?;
    let path = file.into_temp_path();
    Ok((path.to_path_buf(), Some(path)))
}

/// The image in the VMM that the user gave.
struct Theirs {
    foreign: CustomGuest,
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
    machine: &GuestConfig,
    ring: u8,
) -> Result<CustomGuest, Error> {
    let vmm = settings.vmm.clone().ok_or_else(none_given)?;
    Ok(CustomGuest {
        program: vmm.program()?,
        vmm,
        image: image.to_owned(),
        bzimage: PathBuf::new(),
        machine: *machine,
        ring,
    })
}

impl Recipe for Theirs {
    fn command(&self, job: &Job) -> Result<Command, Error> {
        Ok(self.foreign.command(job))
    }

    /// Those of the agent, which nobody looks at.
    fn exit_codes(&self) -> ExitCodes {
        ExitCodes::AGENT
    }

    fn clock(&self) -> BootClock {
        BootClock::Guests
    }

    fn foreign(&self) -> Option<&CustomGuest> {
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
    fn command(&self, job: &Job) -> Result<Command, Error> {
        let mut command = Command::new(&self.agent);
        let mut job = *job;
        if job.run & block::operations() != 0 {
            let disk = command.pass_file(disk::scratch(&self.settings, job.disk_mib)?);
            job.disk = Some(Disk::Descriptor(disk as u8));
        }
        Ok(command.words(&job.to_string()))
    }

    fn exit_codes(&self) -> ExitCodes {
        ExitCodes::AGENT
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
    machine: GuestConfig,
}

impl Recipe for OurVmm {
    fn command(&self, job: &Job) -> Result<Command, Error> {
        Ok(our_vmm(
            Command::new(&self.vmm),
            &self.image,
            &self.machine,
            job,
        ))
    }

    fn exit_codes(&self) -> ExitCodes {
        ExitCodes::VMM
    }

    /// Its first thread runs the virtual CPU.
    fn threads(&self, job: &Job) -> Option<Threads> {
        let ticker = job.selects(Op::HostTimer);
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
    machine: &GuestConfig,
    job: &Job,
) -> Command {
    let job = Job {
        console: Console::Frames,
        ports: true,
        ..*job
    };
    let vmm = match job.selects(Op::HostTimer) {
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
    let vmm = match machine.scheduling.halt {
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
    pub kind: QemuMachine,
    pub image: PathBuf,
    pub machine: GuestConfig,
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
    fn command(&self, job: &Job) -> Result<Command, Error> {
        let job = qemu::adapt(job, self.ring);
        let command = self.qemu.for_image(
            self.kind,
            &self.image,
            &self.machine,
            self.accelerator,
            &job,
        );
        let command = with_plugin(command, self.plugin.as_ref());
        Ok(match &self.steady {
            Some(steady) => qemu::with_steady_clock(command, Arc::clone(steady)),
            None => command,
        })
    }

    fn exit_codes(&self) -> ExitCodes {
        ExitCodes::QEMU
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
