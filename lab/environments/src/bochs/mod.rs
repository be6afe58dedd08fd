//! The environments on the simulated machine with Intel's virtualization.
//!
//! QEMU's translator emulates AMD's virtualization only. Bochs emulates Intel's,
//! one instruction after the other, and its clock is their number: a machine as
//! exact as the other, but another, whose figures stand in a table of their own.

mod acpi;
mod linux;
mod machine;
mod memory;
mod multiboot;
mod program;
mod unpack;
mod watch;

pub(crate) use linux::{facts as linux_facts, LinuxMachine, KERNEL_WORDS};
pub(crate) use machine::facts;
pub(crate) use program::Bochs;
pub use unpack::kernel as unpacked_kernel;

use crate::environment::Guest;
use crate::error::EnvError;
use crate::guest::{BootClock, ProcessGuest, Recipe, Statuses};
use crate::parts::{GuestImage, Part};
use crate::process::Command;
use crate::settings::Settings;
use crate::sim;
use crate::stack::{Need, Stack};
use linux::LinuxGuest;
use machine::Machine;
use memory::Memory;
use trapline_abi::job::{Console, End};
use trapline_abi::Job;
use trapline_model::{EnvironmentId, MachineSpec};
use watch::{Segment, Watcher};

/// `sim-vmx`.
pub fn bare(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::SimVmx,
        settings,
        needs: &[Need::Part(Part::Image), Need::Bochs],
        make: |_, settings, image, machine| {
            let bochs = Bochs::find()?;
            let watcher = |trace| Watcher::of(trace, &image.path, Segment::Image, &bochs);
            Ok(Box::new(ProcessGuest::new(Image {
                watcher: settings.trace.as_ref().map(watcher).transpose()?,
                bochs,
                memory: Memory::of_image(&image.path)?,
                memory_mib: machine.memory_mib,
            })))
        },
    }
}

/// `sim-vmx/linux`.
pub fn linux(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::SimVmxLinux,
        settings,
        needs: &[
            Need::Part(Part::Agent),
            Need::Part(Part::Symbols),
            Need::Bochs,
            Need::IntelLinux,
        ],
        make,
    }
}

/// `sim-vmx/kvm`.
pub fn kvm(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::SimVmxKvm,
        settings,
        needs: &[
            Need::Part(Part::Agent),
            Need::Part(Part::Symbols),
            Need::Part(Part::Vmm),
            Need::Part(Part::Image),
            Need::Bochs,
            Need::IntelLinux,
        ],
        make,
    }
}

/// `sim-vmx/qemu-kvm`.
pub fn qemu_kvm(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::SimVmxQemuKvm,
        settings,
        needs: &[
            Need::Part(Part::Agent),
            Need::Part(Part::Symbols),
            Need::Part(Part::Image),
            Need::Bochs,
            Need::IntelLinux,
            Need::Qemu,
        ],
        make,
    }
}

/// `sim-vmx/xen-pvh`. The image as the first domain, as in `sim/xen-dom0`, is not to be
/// had: Xen asks for an IOMMU then, and Bochs has none.
pub fn xen_pvh(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::SimVmxXenPvh,
        settings,
        needs: &[
            Need::Part(Part::Agent),
            Need::Part(Part::Symbols),
            Need::Part(Part::Image),
            Need::Bochs,
            Need::IntelXen,
        ],
        make,
    }
}

/// The environment on the other simulated machine whose Linux has the same in it.
pub(crate) fn alike(id: EnvironmentId) -> EnvironmentId {
    match id {
        EnvironmentId::SimVmxLinux => EnvironmentId::SimLinux,
        EnvironmentId::SimVmxKvm => EnvironmentId::SimKvm,
        EnvironmentId::SimVmxQemuKvm => EnvironmentId::SimQemuKvm,
        EnvironmentId::SimVmxXenPvh => EnvironmentId::SimXenPvh,
        other => other,
    }
}

fn make(
    id: EnvironmentId,
    settings: &Settings,
    image: &GuestImage,
    machine: &MachineSpec,
) -> Result<Box<dyn Guest>, EnvError> {
    let contents = sim::contents(alike(id), settings, image, machine)?;
    let watcher = |trace| match id {
        EnvironmentId::SimVmxLinux => {
            let agent = settings.parts.get(Part::Agent)?;
            Watcher::of(trace, &agent, Segment::Program, &Bochs::find()?)
        }
        _ => Watcher::of(trace, &image.path, Segment::Image, &Bochs::find()?),
    };
    let watcher = settings.trace.as_ref().map(watcher).transpose()?;
    let machine = LinuxMachine::new(settings, machine, contents, watcher);
    Ok(LinuxGuest::boxed(machine))
}

/// The image on the machine itself.
struct Image {
    bochs: Bochs,
    watcher: Option<Watcher>,
    memory: Memory,
    memory_mib: u32,
}

impl Recipe for Image {
    fn command(&self, job: &Job) -> Result<Command, EnvError> {
        let job = Job {
            console: Console::Port,
            ports: false,
            ring: 0,
            end: End::Reset,
            ..*job
        };
        let memory = self.memory.told(&job.to_string(), self.memory_mib);
        Machine {
            bochs: &self.bochs,
            memory_mib: self.memory_mib,
            watcher: self.watcher.as_ref(),
        }
        .command(&memory)
    }

    fn statuses(&self) -> Statuses {
        machine::STATUSES
    }

    fn clock(&self) -> BootClock {
        BootClock::Machine
    }
}
