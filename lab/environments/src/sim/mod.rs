//! The environments on the instruction clock.
//!
//! A QEMU that counts instructions is the simulated machine: one executed
//! instruction is one tick is one nanosecond of its time, and two runs are the
//! same to the last digit. `sim` runs the image on it directly. The others boot a
//! distribution's Linux on it, with an initramfs that holds the agent as init and
//! exactly what one environment needs, so that no figure depends on what else
//! was planned.

mod ability;
mod base;
mod beside;
mod build;
mod closure;
mod custom;
pub mod drivers;
mod initramfs;
mod inner;
pub mod kernel;
mod linux;
mod listener;
mod machine;
mod module;
mod monitor;
pub mod programs;
mod script;
mod snapshot;
pub mod symbols;
mod xen;

pub(crate) use ability::{check_counting, check_nesting};
pub(crate) use build::build;
pub use custom::custom;
pub use machine::START;
pub(crate) use machine::{
    archive, facts as linux_facts, in_memory, OWN_MEMORY_MIB as LINUX_MEMORY_MIB,
};
pub(crate) use script::Script;
pub(crate) use xen::{
    check as check_xen, check_device_model as check_xen_device_model, dom0_facts as xen_dom0_facts,
    facts as xen_facts, facts_on as xen_facts_on, OWN_MEMORY_MIB as XEN_MEMORY_MIB,
};
pub use xen::{
    code as xen_code, dom0 as xen_dom0, hvm as xen_hvm, pvh as xen_pvh, Code as XenCode,
};

use crate::environment::Guest;
use crate::error::EnvError;
use crate::guest::{BootClock, ProcessGuest, Statuses};
use crate::loads::NEIGHBOUR;
use crate::observe::Offset;
use crate::parts::{GuestImage, Part};
use crate::process::Command;
use crate::qemu::{self, Qemu};
use crate::settings::Settings;
use crate::stack::{Need, Stack};
use crate::wall::{our_vmm, InQemu};
pub(crate) use base::Loaded;
pub use initramfs::Archive;
use kernel::Maker;
use linux::LinuxGuest;
pub(crate) use linux::{script, Contents};
use listener::Inside;
pub(crate) use listener::{Emulator, Guests, MachineEar};
use std::path::{Path, PathBuf};
use trapline_abi::Job;
use trapline_model::{EnvironmentId, Load, MachineSpec};
use xen::Mode;

/// The fact that two runs of a simulated machine have in common if all that they
/// said was the same, byte for byte.
pub const STREAM_HASH: &str = "stream-sha256";

/// `sim`.
pub fn bare(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::Sim,
        settings,
        needs: &[Need::Part(Part::Image), Need::Qemu, Need::Counting],
        make: |_, settings, image, machine| {
            Ok(Box::new(ProcessGuest::new(InQemu {
                qemu: Qemu::find(settings.qemu.as_deref())?,
                image: image.path.clone(),
                machine: *machine,
                accelerator: qemu::COUNTING,
                ring: 0,
                plugin: settings.plugin.clone(),
                steady: Some(settings.parts.open(Part::Steady)?),
                clock: BootClock::Machine,
            })))
        },
    }
}

/// `sim/linux`.
pub fn linux(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::SimLinux,
        settings,
        needs: &[
            Need::Part(Part::Agent),
            Need::Part(Part::Symbols),
            Need::Qemu,
            Need::Linux,
        ],
        make,
    }
}

/// `sim/kvm`.
pub fn kvm(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::SimKvm,
        settings,
        needs: &[
            Need::Part(Part::Agent),
            Need::Part(Part::Symbols),
            Need::Part(Part::Vmm),
            Need::Part(Part::Image),
            Need::Qemu,
            Need::Linux,
        ],
        make,
    }
}

/// `sim/qemu-kvm`.
pub fn qemu_kvm(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::SimQemuKvm,
        settings,
        needs: &[
            Need::Part(Part::Agent),
            Need::Part(Part::Symbols),
            Need::Part(Part::Image),
            Need::Qemu,
            Need::Linux,
        ],
        make,
    }
}

/// `sim/kvm/linux`.
pub fn kvm_linux(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::SimKvmLinux,
        settings,
        needs: &[
            Need::Part(Part::Agent),
            Need::Part(Part::Symbols),
            Need::Part(Part::Vmm),
            Need::Qemu,
            Need::Linux,
        ],
        make,
    }
}

/// `sim/qemu-kvm/linux`.
pub fn qemu_kvm_linux(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::SimQemuKvmLinux,
        settings,
        needs: &[
            Need::Part(Part::Agent),
            Need::Part(Part::Symbols),
            Need::Qemu,
            Need::Linux,
        ],
        make,
    }
}

fn make(
    id: EnvironmentId,
    settings: &Settings,
    image: &GuestImage,
    machine: &MachineSpec,
) -> Result<Box<dyn Guest>, EnvError> {
    let contents = contents(id, settings, image, machine)?;
    Ok(LinuxGuest::boxed(settings, machine, contents))
}

/// What the machine of an environment has besides its Linux and the agent.
///
/// # Errors
/// Something of it is missing, or there is no Linux in this environment.
pub(crate) fn contents(
    id: EnvironmentId,
    settings: &Settings,
    image: &GuestImage,
    machine: &MachineSpec,
) -> Result<Box<dyn Contents>, EnvError> {
    let (image, machine) = (image.path.clone(), *machine);
    match id {
        EnvironmentId::SimLinux => Ok(Box::new(Agent)),
        EnvironmentId::SimKvm => Ok(Box::new(OurVmm {
            vmm: settings.parts.get(Part::Vmm)?,
            image,
            machine,
        })),
        EnvironmentId::SimQemuKvm => Ok(Box::new(InnerQemu {
            qemu: Qemu::find(settings.qemu.as_deref())?,
            image,
            machine,
        })),
        EnvironmentId::SimKvmLinux => Ok(Box::new(inner::of_our_vmm(settings, &machine)?)),
        EnvironmentId::SimQemuKvmLinux => Ok(Box::new(inner::of_qemu(settings, &machine)?)),
        EnvironmentId::SimXenPvh => xen::contents(settings, Mode::Pvh, image, &machine),
        EnvironmentId::SimXenHvm => xen::contents(settings, Mode::Hvm, image, &machine),
        EnvironmentId::SimCustom => custom::contents(settings, image, &machine),
        other => Err(EnvError::Missing(format!(
            "{other} has no Linux of its own"
        ))),
    }
}

/// Whether there is a kernel for the machine's Linux.
///
/// # Errors
/// Why not.
pub(crate) fn check_kernel(settings: &Settings, maker: Maker) -> Result<(), EnvError> {
    match &settings.kernel {
        Some((image, modules)) => kernel::given(image, modules, maker).map(drop)?,
        None => kernel::check(&settings.cache.directory, maker)?,
    }
    Ok(())
}

/// Where the initramfs has what the environments put into it.
pub(crate) const AGENT: &str = "/init";
const SYMBOLS: &str = "/trapline/symbols";
const VMM: &str = "/trapline/vmm";
const IMAGE: &str = "/trapline/image";

/// The agent, a second time, as an ordinary process.
struct Agent;

impl Contents for Agent {
    fn inside(&self) -> Inside {
        Inside {
            statuses: Statuses::AGENT,
            offset: Offset::Same,
            program: "trapline-agent",
            foreign: None,
        }
    }

    fn add_to(&self, _: &mut Archive) -> Result<(), EnvError> {
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
    machine: MachineSpec,
}

impl Contents for OurVmm {
    fn inside(&self) -> Inside {
        Inside {
            statuses: Statuses::VMM,
            offset: Offset::Heard,
            program: "trapline-vmm",
            foreign: None,
        }
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), EnvError> {
        add_program(archive, VMM, &self.vmm)?;
        add_as(archive, IMAGE, &self.image)
    }

    fn command(&self, job: &Job) -> Command {
        our_vmm(Command::new(VMM), IMAGE, &self.machine, job)
    }

    fn load(&self, script: &mut Script, load: Load) -> Result<(), EnvError> {
        beside::in_our_vmm(script, load)
    }

    fn neighbour(&self, script: &mut Script, job: &Job) -> Result<(), EnvError> {
        script.load(NEIGHBOUR, "exits", "exits", &self.command(job));
        Ok(())
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
            foreign: None,
        }
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), EnvError> {
        closure::add(archive, &self.qemu.program)?;
        closure::add_file(archive, &self.qemu.firmware()?)?;
        add_as(archive, IMAGE, &self.image)
    }

    fn command(&self, job: &Job) -> Command {
        let job = qemu::adapt(job, 0);
        self.qemu
            .for_image(Path::new(IMAGE), &self.machine, qemu::KVM, &job)
    }

    fn asks_offset(&self) -> bool {
        true
    }

    fn observed(&self) -> Option<Command> {
        let words = "-M none -nodefaults -no-user-config -display none";
        Some(Command::new(&self.qemu.program).words(words))
    }
}

/// Programs take whole multiples of this in an initramfs. How many pages its files
/// take decides where the machine's kernel has its own, and that moves some of its
/// paths by an instruction: a program that grew by a page would change figures
/// that it has nothing to do with.
const PROGRAM_ROOM: usize = 1 << 20;

/// Adds a program of ours as `name`, with room behind it. What lies behind its
/// last section is never loaded.
pub(crate) fn add_program(archive: &mut Archive, name: &str, path: &Path) -> Result<(), EnvError> {
    let mut contents = std::fs::read(path).map_err(EnvError::file(path))?;
    contents.resize(contents.len().next_multiple_of(PROGRAM_ROOM), 0);
    archive.file(name, contents);
    Ok(())
}

/// Adds a file of this host as `name`.
fn add_as(archive: &mut Archive, name: &str, path: &Path) -> Result<(), EnvError> {
    let contents = std::fs::read(path).map_err(EnvError::file(path))?;
    archive.file(name, contents);
    Ok(())
}
