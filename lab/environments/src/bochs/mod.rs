//! The environments on the simulated machine with Intel's virtualization.
//!
//! QEMU's translator emulates AMD's virtualization only. Bochs emulates Intel's,
//! one instruction after the other, and its clock is their number: a machine as
//! exact as the other, but another, whose figures stand in a table of their own.

mod linux;

pub(crate) use linux::{facts as linux_facts, LinuxMachine};
pub(crate) use trapline_sim::bochs::machine::facts;
pub(crate) use trapline_sim::bochs::program::Bochs;
pub use trapline_sim::bochs::unpack::kernel as unpacked_kernel;

use crate::environment;
use crate::guest::{BootClock, ProcessGuest, Recipe};
use crate::sim;
use linux::LinuxGuest;
use trapline_abi::job::{Console, Shutdown};
use trapline_abi::Job;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{Error, GuestImage, Part};
use trapline_model::layers::{Guest, Stack};
use trapline_model::GuestConfig;
use trapline_sim::bochs::machine::{self, BochsMachine};
use trapline_sim::bochs::memory::Memory;
use trapline_sim::bochs::watch::{Segment, Watcher};
use trapline_sim::settings::Settings;

/// Prepares a guest on the simulated machine with Intel's virtualization. The image cannot be
/// Xen's initial domain: Xen requires an IOMMU for that, and Bochs has none.
///
/// # Errors
/// A part or program is missing.
pub fn launch(
    stack: &Stack,
    settings: &Settings,
    image: &GuestImage,
    machine: &GuestConfig,
) -> Result<Box<dyn environment::Guest>, Error> {
    let bochs = Bochs::find()?;
    let (file, segment) = match (stack.guest, stack.levels) {
        (Guest::Linux, []) => (settings.parts.get(Part::Agent)?, Segment::Program),
        _ => (image.path.clone(), Segment::Image),
    };
    let watcher = |trace| Watcher::of(trace, &file, segment, &bochs);
    let watcher = settings.trace.as_ref().map(watcher).transpose()?;
    if stack.levels.is_empty() && stack.guest == Guest::Image {
        return Ok(Box::new(ProcessGuest::new(Box::new(Image {
            watcher,
            bochs,
            memory: Memory::of_image(&image.path)?,
            memory_mib: machine.memory_mib,
        }))));
    }
    let contents = sim::contents(stack, settings, image, machine)?;
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
    fn command(&self, job: &Job) -> Result<Command, Error> {
        let job = Job {
            console: Console::Port,
            ports: false,
            ring: 0,
            shutdown: Shutdown::Reset,
            ..*job
        };
        let memory = self
            .memory
            .with_command_line(&job.to_string(), self.memory_mib);
        BochsMachine {
            bochs: &self.bochs,
            memory_mib: self.memory_mib,
            watcher: self.watcher.as_ref(),
        }
        .command(&memory)
    }

    fn exit_codes(&self) -> ExitCodes {
        machine::EXIT_CODES
    }

    fn clock(&self) -> BootClock {
        BootClock::Machine
    }
}
