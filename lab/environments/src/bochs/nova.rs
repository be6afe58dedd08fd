//! The image in the VMM as the root task of NOVA on the machine.

use crate::launch::BootClock;
use crate::process_guest::GuestCommand;
use crate::sim::nova::{job_of_image, module_words, NOVA_OPTIONS, OWN_MEMORY_MIB};
use std::path::Path;
use trapline_abi::Job;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{Error, GuestImage, Part};
use trapline_sim::bochs::machine::{self, BochsMachine, Platform};
use trapline_sim::bochs::memory::Memory;
use trapline_sim::bochs::multiboot;
use trapline_sim::bochs::program::Bochs;
use trapline_sim::bochs::watch::Watcher;
use trapline_sim::settings::Settings;

/// The machine: NOVA with the root task and the image as modules.
pub(crate) struct ImageOnNova {
    bochs: Bochs,
    watcher: Option<Watcher>,
    memory: Memory,
    guest_mib: u32,
}

impl ImageOnNova {
    /// # Errors
    /// Bochs, NOVA or the root task is missing, or NOVA's file is not suitable.
    pub fn new(
        settings: &Settings,
        image: &GuestImage,
        guest_mib: u32,
        watcher: Option<Watcher>,
    ) -> Result<Self, Error> {
        let read = |path: &Path| std::fs::read(path).map_err(Error::file(path));
        let mut memory = Memory::of_hypervisor(&settings.nova()?)?;
        memory.add_module(&read(&settings.parts.get(Part::Nova)?)?);
        memory.add_module(&read(&image.path)?);
        Ok(Self {
            bochs: Bochs::find()?,
            watcher,
            memory,
            guest_mib,
        })
    }

    /// Returns the command of the machine with words for the root task and for the image.
    ///
    /// # Errors
    /// There is no memory for the machine's files.
    pub fn with_words(&self, root_words: &str, image_words: &str) -> Result<Command, Error> {
        let modules = [root_words, &module_words(self.guest_mib, image_words)];
        let memory_mib = self.guest_mib + OWN_MEMORY_MIB;
        let memory = multiboot::with_info(
            &self.memory,
            Platform::NOVA,
            NOVA_OPTIONS,
            &modules,
            memory_mib,
        );
        let machine = BochsMachine {
            bochs: &self.bochs,
            memory_mib,
            watcher: self.watcher.as_ref(),
            platform: Platform::NOVA,
        };
        machine.command(&memory)
    }
}

impl GuestCommand for ImageOnNova {
    fn command(&self, job: &Job) -> Result<Command, Error> {
        self.with_words("", &job_of_image(job).to_string())
    }

    fn exit_codes(&self) -> ExitCodes {
        machine::EXIT_CODES
    }

    fn clock(&self) -> BootClock {
        BootClock::Machine
    }
}
