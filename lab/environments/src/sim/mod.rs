//! Environments of the simulated machine.
//!
//! The simulated machine is a QEMU that counts instructions: one instruction is one tick and one nanosecond
//! of its time, and two runs are identical to the last digit. `sim` runs the image on it directly. The
//! other environments boot a distribution's Linux on it. Its initramfs has the agent as init and the files
//! of one environment, so that no figure depends on other environments of the plan.

mod build;
mod contents;
mod custom;
mod disk;
mod guests;
mod inner;
mod loads;
mod machine_guest;
mod nested;
pub(crate) mod nova;
mod xen;

pub(crate) use build::build;
pub(crate) use contents::Contents;
pub(crate) use machine_guest::{machine, with_mitigations, MachineGuest, ScriptMachine};
pub use trapline_sim::initramfs::Archive;
pub use trapline_sim::ready::START;
pub use trapline_sim::xen::code::{code as xen_code, Code as XenCode};
pub use trapline_sim::{drivers, kernel, programs};
pub(crate) use xen::{
    check as check_xen, check_device_model as check_xen_device_model, dom0_facts as xen_dom0_facts,
    facts as xen_facts, facts_on as xen_facts_on, OWN_MEMORY_MIB as XEN_MEMORY_MIB,
};

use crate::environment;
use crate::files;
use crate::guest_disk::job_with_disk;
use crate::launch::{BootClock, ClockOffset};
use crate::linux_guest::isolation_option;
use crate::network::{self, PeerDrivers, Receiver};
use crate::process_guest::ProcessGuest;
use crate::vmm_command::image_command;
use crate::wall::ImageInQemu;
use contents::LoadSupport;
use disk::{qemu_with_disk, vmm_with_disk, FILES_DISK, MACHINE_DISK};
use guests::GuestKind;
use inner::InnerLinux;
use kernel::Maker;
use machine_guest::SimLinuxMachine;
use nested::HostGuest;
use std::path::{Path, PathBuf};
use trapline_abi::files::DIRECTORY;
use trapline_abi::job::Isolation;
use trapline_abi::Job;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{Error, Facts, GuestImage, Part};
use trapline_model::layers::{Guest, Hypervisor, Level, QemuMachine, Stack, Vmm};
use trapline_model::GuestConfig;
use trapline_sim::base::Base;
use trapline_sim::initramfs::{add_as, add_program};
use trapline_sim::qemu::Qemu;
use trapline_sim::settings::Settings;
use trapline_sim::{closure, qemu, AGENT, IMAGE, SWITCH, VMM};

/// Fact: the hash of all output of a simulated machine.
pub const STREAM_HASH: &str = "stream-sha256";

/// Creates a guest on the simulated machine.
///
/// # Errors
/// A part or program is missing.
pub fn launch(
    stack: &Stack,
    settings: &Settings,
    image: &GuestImage,
    guest: &GuestConfig,
) -> Result<Box<dyn environment::Guest>, Error> {
    match (stack.guest, stack.innermost()) {
        (Guest::Image, None) => Ok(Box::new(ProcessGuest::new(Box::new(ImageInQemu {
            qemu: settings.qemu()?,
            machine: QemuMachine::DEFAULT,
            image: image.path.clone(),
            guest: *guest,
            accelerator: qemu::COUNTING,
            ring: 0,
            plugin: settings.plugin.clone(),
            steady: Some(settings.parts.open(Part::Steady)?),
            clock: BootClock::Machine,
            settings: settings.clone(),
        })))),
        (Guest::Image, Some(Level::NOVA)) => nova::launch(settings, image, guest),
        (Guest::Linux, Some(Level::NOVA)) => nova::launch_linux(settings, guest),
        (Guest::Image, Some(Level::XEN_DOM0)) => xen::launch_dom0(settings, image, guest),
        _ => {
            let contents = contents(stack, settings, image, guest)?;
            let machine = Box::new(SimLinuxMachine::new(
                settings,
                Maker::of(stack.machine),
                guest,
            ));
            Ok(MachineGuest::boxed(machine, contents))
        }
    }
}

/// Returns the contents of the machine of a stack.
///
/// # Errors
/// A part, a program or a package is missing.
pub(crate) fn contents(
    stack: &Stack,
    settings: &Settings,
    image: &GuestImage,
    guest: &GuestConfig,
) -> Result<Box<dyn Contents>, Error> {
    let mut contents = innermost_contents(stack, settings, image, guest)?;
    for _outer in stack.levels.iter().skip(1) {
        contents = Box::new(HostGuest::new(settings, guest, contents)?);
    }
    Ok(contents)
}

fn innermost_contents(
    stack: &Stack,
    settings: &Settings,
    image: &GuestImage,
    guest: &GuestConfig,
) -> Result<Box<dyn Contents>, Error> {
    let (image, guest) = (image.path.clone(), *guest);
    let Some(level) = stack.innermost() else {
        return Ok(Box::new(Agent {
            file_mib: guest.file_mib,
            isolation: guest.isolation,
            loopback: PeerDrivers::for_loopback(settings, &guest)?,
        }));
    };
    if let Some(Vmm::Custom(name)) = level.vmm {
        let vmm = settings.custom_vmm(name, stack.guest)?;
        return match stack.guest {
            Guest::Image => custom::contents(settings, vmm, image, &guest),
            Guest::Linux => custom::linux_contents(settings, vmm, &guest),
        };
    }
    if stack.guest == Guest::Linux {
        return Ok(Box::new(InnerLinux::new(level, settings, &guest)?));
    }
    match (level.hypervisor, level.vmm) {
        (Hypervisor::Xen(domain), vmm) => {
            let vmm = vmm.map(|_| settings.parts.get(Part::Vmm)).transpose()?;
            xen::contents(settings, domain, vmm, image, &guest)
        }
        (_, Some(Vmm::Trapline)) => Ok(Box::new(InnerTraplineVmm {
            vmm: settings.parts.get(Part::Vmm)?,
            hypervisor: level.hypervisor,
            image,
            guest,
            taps: PeerDrivers::new(settings, &guest)?,
            switch: network::switch(settings, &guest)?,
        })),
        (_, Some(Vmm::Qemu(machine))) => Ok(Box::new(InnerQemu {
            qemu: settings.qemu()?,
            machine,
            image,
            guest,
        })),
        (_, Some(Vmm::Custom(_)) | None) => Err(Error::unavailable("no VMM starts this guest")),
    }
}

/// The agent as a process of the machine's Linux.
struct Agent {
    /// Size of the large file that it reads, in MiB; 0 if it reads no files.
    file_mib: u32,
    /// Page tables of the machine's Linux.
    isolation: Isolation,
    /// The transport of vsock over loopback, if it connects to a peer by that.
    loopback: PeerDrivers,
}

impl Contents for Agent {
    fn has_small_pages(&self) -> bool {
        false
    }

    fn base(&self, settings: &Settings, maker: Maker) -> Result<Base, Error> {
        let base = Base::linux(settings, maker)?;
        Ok(base.with_option(isolation_option(self.isolation)))
    }

    fn guest_kind(&self) -> GuestKind {
        GuestKind::new("trapline-agent", ExitCodes::AGENT, ClockOffset::Same)
    }

    fn peer_drivers(&self) -> Option<&PeerDrivers> {
        Some(&self.loopback)
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), Error> {
        self.loopback.add_to(archive);
        if self.file_mib != 0 {
            for (path, content) in files::contents(self.file_mib) {
                archive.document(Path::new(DIRECTORY).join(path), content);
            }
        }
        Ok(())
    }

    fn command(&self, job: &Job) -> Command {
        let job = if files::are_read(job) {
            *job
        } else {
            job_with_disk(job, MACHINE_DISK)
        };
        Command::new(AGENT).words(&job.to_string())
    }

    fn located_command(&self) -> Option<Command> {
        Some(Command::new(AGENT).words("trapline.run=basic"))
    }
}

const WITHOUT_SMAP: &str = "-cpu max,-smap";

/// The image in `trapline-vmm`.
struct InnerTraplineVmm {
    vmm: PathBuf,
    hypervisor: Hypervisor,
    image: PathBuf,
    guest: GuestConfig,
    taps: PeerDrivers,
    /// The switch, if guests send packets to each other.
    switch: Option<PathBuf>,
}

impl Contents for InnerTraplineVmm {
    fn guest_kind(&self) -> GuestKind {
        GuestKind::TRAPLINE_VMM
    }

    /// TCG of QEMU 7.2 makes a process's `iretq` access its stack as the kernel would, which SMAP forbids.
    fn base(&self, settings: &Settings, maker: Maker) -> Result<Base, Error> {
        let base = Base::linux(settings, maker)?;
        let base = network::random_state(base, &self.guest);
        Ok(match (self.hypervisor, maker) {
            // With workload `system` it runs for a second, after which the machine's kernel draws random numbers anew.
            (Hypervisor::Process, Maker::Amd) => Base {
                processor: WITHOUT_SMAP,
                random_state: true,
                ..base
            },
            _ => base,
        })
    }

    fn facts(&self) -> Result<Facts, Error> {
        let processor = ("processor".to_owned(), WITHOUT_SMAP.to_owned());
        let is_process = self.hypervisor == Hypervisor::Process;
        let mut facts = network::switch_facts(self.switch.as_deref())?;
        facts.extend(is_process.then_some(processor));
        Ok(facts)
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), Error> {
        self.taps.add_to(archive);
        if let Some(switch) = &self.switch {
            add_program(archive, SWITCH, switch)?;
        }
        add_program(archive, VMM, &self.vmm)?;
        add_archive(archive, &self.guest)?;
        add_as(archive, IMAGE, &self.image)
    }

    fn peer_drivers(&self) -> Option<&PeerDrivers> {
        Some(&self.taps)
    }

    fn command(&self, job: &Job) -> Command {
        let vmm = vmm_with_disk(Command::new(VMM), job);
        let command = image_command(vmm, self.hypervisor, IMAGE, &self.guest, job);
        let receiver = || Receiver::image(SWITCH, VMM, self.hypervisor, IMAGE, &self.guest);
        let cards = self.guest.with_cards(job.run);
        let receiver = cards.packets.then(receiver);
        network::with_peers(command, AGENT, &cards, receiver)
    }

    fn load_support(&self) -> LoadSupport {
        LoadSupport::Vmm
    }
}

/// The image in QEMU.
struct InnerQemu {
    qemu: Qemu,
    machine: QemuMachine,
    image: PathBuf,
    guest: GuestConfig,
}

impl Contents for InnerQemu {
    fn guest_kind(&self) -> GuestKind {
        GuestKind::QEMU
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), Error> {
        add_qemu(archive, &self.qemu, self.machine)?;
        add_archive(archive, &self.guest)?;
        add_as(archive, IMAGE, &self.image)
    }

    fn command(&self, job: &Job) -> Command {
        let job = qemu::adapt(job, 0);
        let image = Path::new(IMAGE);
        let command = self
            .qemu
            .for_image(self.machine, image, &self.guest, qemu::KVM, &job);
        qemu_with_disk(command, &job)
    }

    fn asks_offset(&self) -> bool {
        true
    }

    fn located_command(&self) -> Option<Command> {
        Some(qemu_located(&self.qemu))
    }
}

/// Adds the disk with an archive that an image with configuration `guest` reads files from.
fn add_archive(archive: &mut Archive, guest: &GuestConfig) -> Result<(), Error> {
    if guest.file_mib != 0 {
        archive.document(FILES_DISK, files::archive_bytes(guest.file_mib)?);
    }
    Ok(())
}

/// Returns a command of QEMU without a machine.
fn qemu_located(qemu: &Qemu) -> Command {
    let words = "-M none -nodefaults -no-user-config -display none";
    Command::new(&qemu.program).words(words)
}

/// Adds QEMU with its libraries and the firmware of a machine type.
fn add_qemu(archive: &mut Archive, qemu: &Qemu, machine: QemuMachine) -> Result<(), Error> {
    closure::add(archive, &qemu.program)?;
    let mut files = qemu.firmware(machine)?.into_iter();
    files.try_for_each(|file| closure::add_file(archive, &file))
}
