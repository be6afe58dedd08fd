//! Contents of a machine with Linux.

use super::disk;
use super::guests::GuestKind;
use crate::custom_vmm;
use crate::network::PeerDrivers;
use trapline_abi::{Job, Workload};
use trapline_host::process::Command;
use trapline_host::{Error, Facts};
use trapline_model::GuestConfig;
use trapline_sim::base::Base;
use trapline_sim::initramfs::Archive;
use trapline_sim::kernel::Maker;
use trapline_sim::listener::Emulator;
use trapline_sim::script::Script;
use trapline_sim::settings::Settings;

/// Setting of Linux for transparent huge pages.
pub const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Programs on a machine that can run loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadSupport {
    /// None: programs cannot run beside its guests.
    None,
    /// The agent.
    Agent,
    /// The agent and `trapline-vmm` with the image.
    Vmm,
}

/// Files and commands that an environment adds to a machine with the agent as init.
pub trait Contents {
    /// Returns the kind of its guests.
    fn guest_kind(&self) -> GuestKind;

    /// Returns the machine without contents.
    ///
    /// # Errors
    /// The kernel is missing.
    fn base(&self, settings: &Settings, maker: Maker) -> Result<Base, Error> {
        Base::linux(settings, maker)
    }

    /// Returns facts about the guests.
    ///
    /// # Errors
    /// A file cannot be read.
    fn facts(&self) -> Result<Facts, Error> {
        Ok(Facts::new())
    }

    /// Adds files.
    ///
    /// # Errors
    /// One cannot be read.
    fn add_to(&self, archive: &mut Archive) -> Result<(), Error>;

    /// Adds commands that prepare the machine.
    fn prepare(&self, _: &mut Script) {}

    /// Returns the modules that peers of its guests or programs need.
    fn peer_drivers(&self) -> Option<&PeerDrivers> {
        None
    }

    /// Returns the command on the machine that runs `job`.
    fn command(&self, job: &Job) -> Command;

    /// Adds the launch of `job`.
    fn launch(&self, script: &mut Script, job: &Job) {
        let command = self.command(job);
        if disk::is_measured(job) {
            script.disk(&disk::path(), job.disk_mib);
        }
        if let Some(drivers) = self.peer_drivers() {
            drivers.load(script, job);
        }
        let custom = self.guest_kind().custom;
        // To read the memory takes time, which would be a part of the stages of a start.
        let is_start = job.run.is_subset(Workload::Boot.set());
        if !is_start && (custom.is_some() || self.asks_offset()) {
            script.report_memory();
        }
        match custom {
            Some(vmm) => custom_vmm::launch(script, &vmm, &command, job),
            None => script.launch(&command, self.asks_offset()),
        }
    }

    /// Returns whether init reads a guest's TSC offset from the kernel.
    fn asks_offset(&self) -> bool {
        false
    }

    /// Returns the programs that can run loads.
    fn load_support(&self) -> LoadSupport {
        LoadSupport::Agent
    }

    /// Returns the memory of guests with configuration `guest` and of their disks, in MiB.
    fn memory_mib(&self, guest: &GuestConfig) -> u32 {
        guest.guests * guest.touched_mib() + guest.window_mib + guest.disk_mib
    }

    /// Returns whether the machine gives the memory of its guests small pages on request. That of a guest which is a host itself
    /// is as the kernel has it.
    fn has_small_pages(&self) -> bool {
        true
    }

    /// Returns the VMMs of the guests between the machine and the program that runs guests, outermost first.
    fn hosts(&self) -> Vec<Emulator> {
        Vec::new()
    }

    /// Adds the launch of a program without a guest at a level of nesting: 0 is the machine.
    fn launch_at(&self, _level: usize, script: &mut Script, command: &Command) {
        script.launch(command, false);
    }

    /// Returns a command of the program that runs guests, if its load address depends on the loader.
    fn located_command(&self) -> Option<Command> {
        None
    }
}
