//! The environments on the instruction clock.
//!
//! A QEMU that counts instructions is the simulated machine: one executed
//! instruction is one tick is one nanosecond of its time, and two runs are the
//! same to the last digit. `sim` runs the image on it directly. The others boot a
//! distribution's Linux on it, with an initramfs that holds the agent as init and
//! exactly what one environment needs, so that no figure depends on what else
//! was planned.

mod beside;
mod build;
mod custom;
mod guests;
mod inner;
mod linux;
mod nested;
pub mod symbols;
mod xen;

pub(crate) use build::build;
use guests::GuestKind;
pub(crate) use guests::Guests;
pub(crate) use linux::{script, Contents};
pub use trapline_sim::initramfs::Archive;
pub use trapline_sim::ready::START;
pub use trapline_sim::xen::code::{code as xen_code, Code as XenCode};
pub use trapline_sim::{drivers, kernel, programs};
pub(crate) use xen::{
    check as check_xen, check_device_model as check_xen_device_model, dom0_facts as xen_dom0_facts,
    facts as xen_facts, facts_on as xen_facts_on, OWN_MEMORY_MIB as XEN_MEMORY_MIB,
};

use crate::environment;
use crate::guest::{BootClock, ProcessGuest};
use crate::loads::NEIGHBOUR;
use crate::observe::Offset;
use crate::wall::{our_vmm, InQemu};
use inner::InnerLinux;
use kernel::Maker;
use linux::LinuxGuest;
use nested::NestedLinux;
use std::path::{Path, PathBuf};
use trapline_abi::Job;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{Error, GuestImage, Part};
use trapline_model::layers::{Guest, Hypervisor, Level, QemuMachine, Stack, Vmm};
use trapline_model::{GuestConfig, Load};
use trapline_sim::initramfs::{add_as, add_program};
use trapline_sim::qemu::Qemu;
use trapline_sim::script::Script;
use trapline_sim::settings::Settings;
use trapline_sim::{closure, qemu, AGENT, IMAGE, VMM};

/// The fact that two runs of a simulated machine have in common if all that they
/// said was the same, byte for byte.
pub const STREAM_HASH: &str = "stream-sha256";

/// Prepares a guest on the simulated machine.
///
/// # Errors
/// A part or program is missing.
pub fn launch(
    stack: &Stack,
    settings: &Settings,
    image: &GuestImage,
    machine: &GuestConfig,
) -> Result<Box<dyn environment::Guest>, Error> {
    match (stack.guest, stack.innermost()) {
        (Guest::Image, None) => Ok(Box::new(ProcessGuest::new(Box::new(InQemu {
            qemu: Qemu::find(settings.qemu.as_deref())?,
            kind: QemuMachine::DEFAULT,
            image: image.path.clone(),
            machine: *machine,
            accelerator: qemu::COUNTING,
            ring: 0,
            plugin: settings.plugin.clone(),
            steady: Some(settings.parts.open(Part::Steady)?),
            clock: BootClock::Machine,
        })))),
        (Guest::Image, Some(Level::XEN_DOM0)) => xen::launch_dom0(settings, image, machine),
        _ => {
            let contents = contents(stack, settings, image, machine)?;
            Ok(LinuxGuest::boxed(settings, machine, contents))
        }
    }
}

/// Returns what the machine of a stack has besides its Linux and the agent.
///
/// # Errors
/// A part, a program or a package is missing.
pub(crate) fn contents(
    stack: &Stack,
    settings: &Settings,
    image: &GuestImage,
    machine: &GuestConfig,
) -> Result<Box<dyn Contents>, Error> {
    let mut contents = innermost_contents(stack, settings, image, machine)?;
    for _outer in stack.levels.iter().skip(1) {
        contents = Box::new(NestedLinux::new(settings, machine, contents)?);
    }
    Ok(contents)
}

fn innermost_contents(
    stack: &Stack,
    settings: &Settings,
    image: &GuestImage,
    machine: &GuestConfig,
) -> Result<Box<dyn Contents>, Error> {
    let (image, machine) = (image.path.clone(), *machine);
    let Some(level) = stack.innermost() else {
        return Ok(Box::new(Agent));
    };
    if stack.guest == Guest::Linux {
        return Ok(Box::new(InnerLinux::of(level, settings, &machine)?));
    }
    match (level.hypervisor, level.vmm) {
        (Hypervisor::Xen(domain), _) => xen::contents(settings, domain, image, &machine),
        (_, Some(Vmm::Trapline)) => Ok(Box::new(OurVmm {
            vmm: settings.parts.get(Part::Vmm)?,
            image,
            machine,
        })),
        (_, Some(Vmm::Qemu(kind))) => Ok(Box::new(InnerQemu {
            qemu: Qemu::find(settings.qemu.as_deref())?,
            kind,
            image,
            machine,
        })),
        (_, Some(Vmm::Custom) | None) => custom::contents(settings, image, &machine),
    }
}

/// Whether there is a kernel for the machine's Linux.
///
/// # Errors
/// Why not.
pub(crate) fn check_kernel(settings: &Settings, maker: Maker) -> Result<(), Error> {
    match &settings.kernel {
        Some((image, modules)) => kernel::given(image, modules, maker).map(drop)?,
        None => kernel::check(&settings.cache.directory, maker)?,
    }
    Ok(())
}

/// The agent, a second time, as an ordinary process.
struct Agent;

impl Contents for Agent {
    fn guest_kind(&self) -> GuestKind {
        GuestKind {
            exit_codes: ExitCodes::AGENT,
            offset: Offset::Same,
            program: "trapline-agent",
            custom: None,
        }
    }

    fn add_to(&self, _: &mut Archive) -> Result<(), Error> {
        Ok(())
    }

    fn command(&self, job: &Job) -> Command {
        Command::new(AGENT).words(&job.to_string())
    }

    fn observed(&self) -> Option<Command> {
        Some(Command::new(AGENT).words("trapline.run=basic"))
    }
}

/// Our VMM and the image.
struct OurVmm {
    vmm: PathBuf,
    image: PathBuf,
    machine: GuestConfig,
}

impl Contents for OurVmm {
    fn guest_kind(&self) -> GuestKind {
        GuestKind {
            exit_codes: ExitCodes::VMM,
            offset: Offset::Heard,
            program: "trapline-vmm",
            custom: None,
        }
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), Error> {
        add_program(archive, VMM, &self.vmm)?;
        add_as(archive, IMAGE, &self.image)
    }

    fn command(&self, job: &Job) -> Command {
        our_vmm(Command::new(VMM), IMAGE, &self.machine, job)
    }

    fn load(&self, script: &mut Script, load: Load) -> Result<(), Error> {
        beside::in_our_vmm(script, load)
    }

    fn neighbour(&self, script: &mut Script, job: &Job) -> Result<(), Error> {
        script.load(NEIGHBOUR, "exits", "exits", &self.command(job));
        Ok(())
    }
}

/// QEMU with all that it needs, and the image.
struct InnerQemu {
    qemu: Qemu,
    kind: QemuMachine,
    image: PathBuf,
    machine: GuestConfig,
}

impl Contents for InnerQemu {
    fn guest_kind(&self) -> GuestKind {
        GuestKind {
            exit_codes: ExitCodes::QEMU,
            offset: Offset::Heard,
            program: "qemu-system-x86_64",
            custom: None,
        }
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), Error> {
        closure::add(archive, &self.qemu.program)?;
        for file in self.qemu.firmware(self.kind)? {
            closure::add_file(archive, &file)?;
        }
        add_as(archive, IMAGE, &self.image)
    }

    fn command(&self, job: &Job) -> Command {
        let job = qemu::adapt(job, 0);
        self.qemu
            .for_image(self.kind, Path::new(IMAGE), &self.machine, qemu::KVM, &job)
    }

    fn asks_offset(&self) -> bool {
        true
    }

    fn observed(&self) -> Option<Command> {
        let words = "-M none -nodefaults -no-user-config -display none";
        Some(Command::new(&self.qemu.program).words(words))
    }
}
