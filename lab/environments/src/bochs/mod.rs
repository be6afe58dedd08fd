//! Environments of the simulated machine with VMX.
//!
//! QEMU's TCG emulates SVM, not VMX. Bochs emulates VMX; its clock counts instructions, too, and is as exact.
//! It is another machine, so its figures have a table of their own.

mod linux;
mod nova;

pub(crate) use linux::{facts as linux_facts, LinuxMachine};
pub(crate) use nova::ImageOnNova;
pub(crate) use trapline_sim::bochs::machine::{facts, Platform};
pub(crate) use trapline_sim::bochs::program::Bochs;
pub use trapline_sim::bochs::unpack::kernel as unpacked_kernel;

use crate::environment;
use crate::launch::BootClock;
use crate::process_guest::{GuestCommand, ProcessGuest};
use crate::sim::{self, MachineGuest};
use trapline_abi::job::{Console, Shutdown};
use trapline_abi::Job;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{Error, GuestImage};
use trapline_model::layers::{Guest, Level, Stack};
use trapline_model::GuestConfig;
use trapline_sim::bochs::machine::{self, BochsMachine};
use trapline_sim::bochs::memory::Memory;
use trapline_sim::bochs::watch::Watcher;
use trapline_sim::settings::Settings;

/// Creates a guest on the simulated machine with VMX. The image cannot be Xen's initial domain: Xen requires
/// an IOMMU for that, and Bochs has none.
///
/// # Errors
/// A part or program is missing.
pub fn launch(
    stack: &Stack,
    settings: &Settings,
    image: &GuestImage,
    guest: &GuestConfig,
) -> Result<Box<dyn environment::Guest>, Error> {
    let bochs = Bochs::find()?;
    let watcher = |trace| Watcher::of(trace, &bochs);
    let watcher = settings.trace.as_ref().map(watcher).transpose()?;
    if stack.innermost() == Some(Level::NOVA) {
        let machine = ImageOnNova::new(settings, image, guest.memory_mib, watcher)?;
        return Ok(Box::new(ProcessGuest::new(Box::new(machine))));
    }
    if stack.levels.is_empty() && stack.guest == Guest::Image {
        return Ok(Box::new(ProcessGuest::new(Box::new(BareImage {
            watcher,
            bochs,
            memory: Memory::of_image(&image.path)?,
            memory_mib: guest.memory_mib,
        }))));
    }
    let contents = sim::contents(stack, settings, image, guest)?;
    let machine = LinuxMachine::new(settings, guest, watcher);
    Ok(MachineGuest::boxed(Box::new(machine), contents))
}

/// The image directly on the machine.
struct BareImage {
    bochs: Bochs,
    watcher: Option<Watcher>,
    memory: Memory,
    memory_mib: u32,
}

impl GuestCommand for BareImage {
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
            platform: Platform::COMMON,
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
