//! Environments of this host: the agent as a process, and the image in a VMM.

use crate::custom_vmm::GuestInCustomVmm;
use crate::disk;
use crate::environment::Guest;
use crate::files;
use crate::guest_disk::GuestDisk;
use crate::kvm::{self, Hardware};
use crate::launch::BootClock;
use crate::linux_guest;
use crate::loads::LoadPrograms;
use crate::network::{self, Receiver};
use crate::process_guest::{GuestCommand, ProcessGuest};
use crate::vmm_command::image_command;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tempfile::TempDir;
use trapline_abi::block::{self, Disk};
use trapline_abi::{Job, Op};
use trapline_host::affinity::Threads;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{Error, Facts, GuestImage, Part};
use trapline_model::layers::{self, Hypervisor, Level, QemuMachine, Stack, Vmm};
use trapline_model::{GuestConfig, Serial};
use trapline_sim::plugin::{with_plugin, Plugin};
use trapline_sim::qemu;
use trapline_sim::qemu::Qemu;
use trapline_sim::settings::Settings;

/// Creates a guest on this host.
///
/// # Errors
/// A part or program is missing.
pub fn launch(
    stack: &Stack,
    settings: &Settings,
    image: &GuestImage,
    guest: &GuestConfig,
) -> Result<Box<dyn Guest>, Error> {
    let command: Box<dyn GuestCommand> = match (stack.guest, stack.innermost()) {
        (_, None) => Box::new(Agent {
            agent: settings.parts.get(Part::Agent)?,
            settings: settings.clone(),
            files: Mutex::default(),
        }),
        (layers::Guest::Linux, Some(level)) => match level.vmm {
            Some(Vmm::Custom(name)) => {
                let vmm = settings.custom_vmm(name, layers::Guest::Linux)?;
                Box::new(GuestInCustomVmm::linux(vmm, settings, guest)?)
            }
            _ => linux_guest::guest_command(level, settings, guest)?,
        },
        (layers::Guest::Image, Some(level)) => image_in_vmm(level, settings, image, guest)?,
    };
    let programs = LoadPrograms {
        parts: settings.parts.clone(),
        image: image.path.clone(),
    };
    let process = ProcessGuest::new(command).with_guests(guest.guests);
    Ok(Box::new(process.with_loads(programs)))
}

fn image_in_vmm(
    level: Level,
    settings: &Settings,
    image: &GuestImage,
    guest: &GuestConfig,
) -> Result<Box<dyn GuestCommand>, Error> {
    let (image, guest) = (image.path.clone(), *guest);
    kvm::check_halt(guest.scheduling.halt)?;
    Ok(match level.vmm {
        Some(Vmm::Trapline) => Box::new(ImageInTraplineVmm {
            vmm: settings.parts.get(Part::Vmm)?,
            hypervisor: level.hypervisor,
            image,
            guest,
            settings: settings.clone(),
        }),
        Some(Vmm::Qemu(machine)) => {
            let (accelerator, ring) = match level.hypervisor {
                Hypervisor::Kvm => (qemu::KVM, Hardware::of_host().ring()),
                _ => (qemu::TCG, 0),
            };
            Box::new(ImageInQemu {
                qemu: settings.qemu()?,
                machine,
                image,
                guest,
                accelerator,
                ring,
                plugin: None,
                steady: None,
                clock: BootClock::Guest,
                settings: settings.clone(),
            })
        }
        Some(Vmm::Custom(name)) => {
            let vmm = settings.custom_vmm(name, layers::Guest::Image)?;
            let ring = Hardware::of_host().ring();
            Box::new(GuestInCustomVmm::image(vmm, &image, &guest, ring)?)
        }
        None => return Err(Error::unavailable("no VMM starts this guest")),
    })
}

/// The agent as a process.
struct Agent {
    agent: PathBuf,
    /// Location of disks.
    settings: Settings,
    /// Files of the last launch.
    files: Mutex<Option<TempDir>>,
}

impl GuestCommand for Agent {
    fn command(&self, job: &Job) -> Result<Command, Error> {
        let mut command = Command::new(&self.agent);
        let mut job = *job;
        if job.run.intersects(block::operations()) {
            let disk = command.pass_file(disk::scratch(&self.settings, job.disk_mib)?);
            job.disk = Some(Disk::Descriptor(disk as u8));
        }
        if files::are_read(&job) {
            let tree = files::tree(&self.settings, job.file_mib)?;
            let opened = File::open(tree.path()).map_err(Error::file(tree.path()))?;
            let directory = command.pass_file(Arc::new(opened));
            job.disk = Some(Disk::Descriptor(directory as u8));
            // The files of the previous launch are removed.
            *self.files.lock().unwrap_or_else(PoisonError::into_inner) = Some(tree);
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
        BootClock::Host
    }
}

struct ImageInTraplineVmm {
    vmm: PathBuf,
    hypervisor: Hypervisor,
    image: PathBuf,
    guest: GuestConfig,
    /// Location of disks.
    settings: Settings,
}

impl GuestCommand for ImageInTraplineVmm {
    fn command(&self, job: &Job) -> Result<Command, Error> {
        let vmm = Command::new(&self.vmm);
        let image = &self.image;
        let vmm = match GuestDisk::new(&self.settings, job, layers::Guest::Image)? {
            Some(disk) => disk.for_trapline_vmm(vmm),
            None => vmm,
        };
        let command = image_command(vmm, self.hypervisor, image, &self.guest, job);
        let parts = &self.settings.parts;
        let receiver = || -> Result<_, Error> {
            let (switch, hypervisor) = (parts.get(Part::Switch)?, self.hypervisor);
            Ok(Receiver::image(
                switch,
                &self.vmm,
                hypervisor,
                image,
                &self.guest,
            ))
        };
        let cards = self.guest.with_cards(job.run);
        let receiver = cards.packets.then(receiver).transpose()?;
        let command = network::with_peers(command, parts.get(Part::Agent)?, &cards, receiver);
        Ok(match self.hypervisor {
            Hypervisor::Process => command.with_children(),
            _ => command,
        })
    }

    fn facts(&self) -> Facts {
        let switch = network::switch(&self.settings, &self.guest);
        let facts = switch.and_then(|file| network::switch_facts(file.as_deref()));
        facts.unwrap_or_default()
    }

    fn exit_codes(&self) -> ExitCodes {
        ExitCodes::VMM
    }

    /// The first thread runs the vCPU. A disk may have further ones, a network card has one.
    fn threads(&self, job: &Job) -> Option<Threads> {
        let ticker = job.selects(Op::HostTimer);
        let writer = self.guest.serial == Serial::Buffered;
        let disk = job.run.intersects(block::operations()) || files::are_read(job);
        let cards = self.guest.with_cards(job.run);
        Some(Threads {
            helpers: [ticker, writer, disk, cards.network, cards.packets]
                .map(usize::from)
                .iter()
                .sum(),
            ..Threads::FIRST
        })
    }

    fn clock(&self) -> BootClock {
        BootClock::Guest
    }
}

/// The image in QEMU.
pub(crate) struct ImageInQemu {
    pub qemu: Qemu,
    pub machine: QemuMachine,
    pub image: PathBuf,
    pub guest: GuestConfig,
    /// Option `-accel` and related ones.
    pub accelerator: &'static str,
    /// Ring in which the image runs.
    pub ring: u8,
    /// Instruction counter.
    pub plugin: Option<Plugin>,
    /// Preload library of a QEMU that counts instructions.
    pub steady: Option<Arc<File>>,
    pub clock: BootClock,
    /// Location of disks.
    pub settings: Settings,
}

impl GuestCommand for ImageInQemu {
    fn command(&self, job: &Job) -> Result<Command, Error> {
        let job = qemu::adapt(job, self.ring);
        let command = self.qemu.for_image(
            self.machine,
            &self.image,
            &self.guest,
            self.accelerator,
            &job,
        );
        let command = match GuestDisk::new(&self.settings, &job, layers::Guest::Image)? {
            Some(disk) => disk.for_qemu(command),
            None => command,
        };
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
