//! A Linux guest of the root task: the kernel and the initramfs that Linux guests have in every VMM.

use super::output::run_machine;
use super::{facts, guest_module, NovaMachine};
use crate::environment::Guest;
use crate::launch::BootClock;
use crate::linux_guest::Linux;
use crate::process_guest::{GuestCommand, ProcessGuest};
use std::io::Write;
use tempfile::NamedTempFile;
use trapline_abi::Job;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{Error, Facts, Limits};
use trapline_model::GuestConfig;
use trapline_sim::settings::Settings;

/// Creates the guest.
///
/// # Errors
/// QEMU, NOVA, the root task, the agent or a kernel is missing.
pub fn launch(settings: &Settings, guest: &GuestConfig) -> Result<Box<dyn Guest>, Error> {
    let machine = LinuxOnNova::new(settings, guest)?;
    Ok(Box::new(ProcessGuest::new(Box::new(machine))))
}

/// Runs the build `job` in a guest with the root of `settings`. Returns its console output, and facts about the machine.
///
/// # Errors
/// A requirement of [`launch`] is missing, or the machine failed.
pub fn build(
    settings: &Settings,
    guest: &GuestConfig,
    job: &Job,
    limits: &Limits,
) -> Result<(Vec<u8>, Facts), Error> {
    let machine = LinuxOnNova::new(settings, guest)?;
    let (output, has_passed) = run_machine(&machine.command(job)?, limits)?;
    if !has_passed {
        let messages = String::from_utf8_lossy(&output.errors);
        return Err(Error::Machine(format!("the guest failed: {messages}")));
    }
    let mut facts = facts(settings);
    facts.extend(machine.facts);
    Ok((output.console, facts))
}

/// The machine with a Linux guest.
struct LinuxOnNova {
    machine: NovaMachine,
    linux: Linux,
    /// Initramfs, removed when dropped.
    initrd: NamedTempFile,
    initrd_mib: u32,
    memory_mib: u32,
    facts: Facts,
}

impl LinuxOnNova {
    /// Returns the machine with a guest whose initramfs is that of `settings`.
    ///
    /// # Errors
    /// A requirement of [`launch`] is missing.
    fn new(settings: &Settings, guest: &GuestConfig) -> Result<Self, Error> {
        let linux = Linux::new(settings, guest)?;
        let bytes = linux.root.bytes()?;
        let mut initrd = NamedTempFile::new().map_err(Error::file(std::env::temp_dir()))?;
        let written = initrd.write_all(&bytes);
        written.map_err(Error::file(initrd.path()))?;
        Ok(Self {
            machine: NovaMachine::new(settings)?,
            facts: linux.facts()?,
            linux,
            initrd,
            initrd_mib: bytes.len().div_ceil(1 << 20) as u32,
            memory_mib: guest.memory_mib,
        })
    }
}

impl GuestCommand for LinuxOnNova {
    fn command(&self, job: &Job) -> Result<Command, Error> {
        let words = self.linux.command_line(job);
        let kernel = guest_module(&self.linux.kernel, self.memory_mib, &words);
        let initrd = self.initrd.path().display().to_string();
        // The initramfs is in the machine's memory, too.
        let memory = self.memory_mib + self.initrd_mib;
        Ok(self.machine.command(memory, "", &[kernel, initrd]))
    }

    fn exit_codes(&self) -> ExitCodes {
        ExitCodes::QEMU
    }

    fn clock(&self) -> BootClock {
        BootClock::Machine
    }

    fn facts(&self) -> Facts {
        self.facts.clone()
    }
}
