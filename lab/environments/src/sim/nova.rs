//! The image, or Linux, in the VMM as the root task of NOVA.
//!
//! The machine boots NOVA by multiboot, with the root task and the guest as modules; the job is in the command line of
//! the guest, so NOVA boots for each job, and there are no snapshots. The hypervisor is a file of the user's.

mod linux;
mod output;

pub(super) use linux::{build, launch as launch_linux};
pub(crate) use output::{run_machine, Output};

use crate::environment::Guest;
use crate::launch::BootClock;
use crate::process_guest::{GuestCommand, ProcessGuest};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::NamedTempFile;
use trapline_abi::job::Console;
use trapline_abi::Job;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{sha256_of_file, Error, Facts, GuestImage, Part};
use trapline_model::GuestConfig;
use trapline_sim::elf32;
use trapline_sim::plugin::{with_plugin, Plugin};
use trapline_sim::qemu::{console, with_steady_clock, Qemu, COUNTING};
use trapline_sim::settings::Settings;

/// The machine, with what NOVA needs of a PC.
const MACHINE: &str = "pc";

/// Option of NOVA: messages on the first serial port.
pub(crate) const NOVA_OPTIONS: &str = "serial";

/// Memory of NOVA and the root task, in MiB.
pub const OWN_MEMORY_MIB: u32 = 128;

/// Size limit of the hypervisor's file.
const LARGEST: u64 = 64 << 20;

/// Creates the guest.
///
/// # Errors
/// QEMU, NOVA or the root task is missing, or NOVA's file is not suitable.
pub fn launch(
    settings: &Settings,
    image: &GuestImage,
    guest: &GuestConfig,
) -> Result<Box<dyn Guest>, Error> {
    let machine = ImageOnNova::new(settings, image, guest.memory_mib)?;
    Ok(Box::new(ProcessGuest::new(Box::new(machine))))
}

/// Returns facts about QEMU as the machine.
pub(crate) fn machine_facts() -> Facts {
    [("machine".to_owned(), format!("-M {MACHINE} {COUNTING}"))].into()
}

/// Returns facts about NOVA.
pub(crate) fn facts(settings: &Settings) -> Facts {
    let mut facts = Facts::new();
    facts.insert("nova-command-line".to_owned(), NOVA_OPTIONS.to_owned());
    let hash = settings.nova().and_then(|file| sha256_of_file(&file));
    facts.extend(hash.map(|hash| ("nova-sha256".to_owned(), hash)));
    facts
}

/// Writes the hypervisor to a temporary file that QEMU can load.
fn loadable(file: &Path) -> Result<NamedTempFile, Error> {
    let size = std::fs::metadata(file).map_err(Error::file(file))?.len();
    let unsuitable = |reason: String| {
        Error::missing(
            format!("{} is not a NOVA hypervisor: {reason}", file.display()),
            "--nova FILE with the hypervisor that NOVA's build makes",
        )
    };
    if size > LARGEST {
        return Err(unsuitable(format!("it has {} MiB", size >> 20)));
    }
    let bytes = std::fs::read(file).map_err(Error::file(file))?;
    let converted = elf32::converted(&bytes).map_err(unsuitable)?;
    let mut output = NamedTempFile::new().map_err(Error::file(std::env::temp_dir()))?;
    let written = output.write_all(&converted);
    written.map_err(Error::file(output.path()))?;
    Ok(output)
}

/// The machine with NOVA and the root task.
struct NovaMachine {
    qemu: Qemu,
    steady: Arc<File>,
    /// Removed when dropped.
    nova: NamedTempFile,
    root: PathBuf,
    plugin: Option<Plugin>,
}

impl NovaMachine {
    fn new(settings: &Settings) -> Result<Self, Error> {
        Ok(Self {
            qemu: settings.qemu()?,
            steady: settings.parts.open(Part::Steady)?,
            nova: loadable(&settings.nova()?)?,
            root: settings.parts.get(Part::Nova)?,
            plugin: settings.plugin.clone(),
        })
    }

    /// Returns the command of the machine with a memory of this size beside its own, with words for the root task, and
    /// with further modules: a file and its words each.
    fn command(&self, memory_mib: u32, root_words: &str, modules: &[String]) -> Command {
        let root = format!("{} {root_words}", self.root.display());
        // Commas are doubled in each module, since one separates them.
        let all = std::iter::once(&root).chain(modules);
        let all: Vec<_> = all.map(|module| module.replace(',', ",,")).collect();
        let memory = memory_mib + OWN_MEMORY_MIB;
        let command = self.qemu.machine(MACHINE, memory, 1);
        let command = with_steady_clock(command, Arc::clone(&self.steady))
            .words(COUNTING)
            .words("-serial file:/proc/self/fd/2 -serial file:/proc/self/fd/3")
            .words(&console("console", "/proc/self/fd/1"))
            .arg("-kernel")
            .arg(self.nova.path())
            .arg("-append")
            .arg(NOVA_OPTIONS)
            .arg("-initrd")
            .arg(all.join(","));
        with_plugin(command, self.plugin.as_ref())
    }
}

/// Returns the module of a guest: its file, and its words.
fn guest_module(file: &Path, memory_mib: u32, words: &str) -> String {
    format!("{} {}", file.display(), module_words(memory_mib, words))
}

/// Returns the words of the module of a guest: the size of its memory, and its own.
pub(crate) fn module_words(memory_mib: u32, words: &str) -> String {
    format!("memory={memory_mib} {words}")
}

/// Returns a job as the image executes it on NOVA.
pub(crate) fn job_of_image(job: &Job) -> Job {
    Job {
        console: Console::Frames,
        ports: true,
        ring: 0,
        ..*job
    }
}

/// The machine with the image.
pub(crate) struct ImageOnNova {
    machine: NovaMachine,
    image: PathBuf,
    memory_mib: u32,
}

impl ImageOnNova {
    /// # Errors
    /// QEMU, NOVA or the root task is missing, or NOVA's file is not suitable.
    pub fn new(settings: &Settings, image: &GuestImage, memory_mib: u32) -> Result<Self, Error> {
        Ok(Self {
            machine: NovaMachine::new(settings)?,
            image: image.path.clone(),
            memory_mib,
        })
    }

    /// Returns the command of the machine with words for the root task and for the image.
    pub fn with_words(&self, root_words: &str, image_words: &str) -> Command {
        let image = guest_module(&self.image, self.memory_mib, image_words);
        self.machine.command(self.memory_mib, root_words, &[image])
    }
}

impl GuestCommand for ImageOnNova {
    fn command(&self, job: &Job) -> Result<Command, Error> {
        Ok(self.with_words("", &job_of_image(job).to_string()))
    }

    fn exit_codes(&self) -> ExitCodes {
        ExitCodes::QEMU
    }

    fn clock(&self) -> BootClock {
        BootClock::Machine
    }
}
