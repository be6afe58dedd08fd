//! The image in the VMM as the root task of NOVA, without Linux.
//!
//! The machine boots NOVA by multiboot, with the root task and the image as modules; the job is in the command line of
//! the image, so NOVA boots for each job, and there are no snapshots. The hypervisor is a file of the user's.

mod conformance;

pub use conformance::run_conformance;

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
const NOVA_OPTIONS: &str = "serial";

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

/// Returns facts about the machine and NOVA.
pub(crate) fn facts(settings: &Settings) -> Facts {
    let mut facts = Facts::new();
    facts.insert("machine".to_owned(), format!("-M {MACHINE} {COUNTING}"));
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

struct ImageOnNova {
    qemu: Qemu,
    steady: Arc<File>,
    /// Removed when dropped.
    nova: NamedTempFile,
    root: PathBuf,
    image: PathBuf,
    memory_mib: u32,
    plugin: Option<Plugin>,
}

impl ImageOnNova {
    fn new(settings: &Settings, image: &GuestImage, memory_mib: u32) -> Result<Self, Error> {
        Ok(Self {
            qemu: settings.qemu()?,
            steady: settings.parts.open(Part::Steady)?,
            nova: loadable(&settings.nova()?)?,
            root: settings.parts.get(Part::Nova)?,
            image: image.path.clone(),
            memory_mib,
            plugin: settings.plugin.clone(),
        })
    }

    /// Returns the option of the modules, with words for the root task and for the image. Commas are doubled in each,
    /// since one separates them.
    fn modules(&self, root_words: &str, image_words: &str) -> String {
        let doubled = |text: String| text.replace(',', ",,");
        let (root, image) = (self.root.display(), self.image.display());
        let image = format!("{image} memory={} {image_words}", self.memory_mib);
        let root = format!("{root}{root_words}");
        format!("{},{}", doubled(root), doubled(image))
    }

    /// Returns the command of the machine with these modules.
    fn with_modules(&self, modules: String) -> Command {
        let memory = self.memory_mib + OWN_MEMORY_MIB;
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
            .arg(modules);
        with_plugin(command, self.plugin.as_ref())
    }
}

impl GuestCommand for ImageOnNova {
    fn command(&self, job: &Job) -> Result<Command, Error> {
        let job = Job {
            console: Console::Frames,
            ports: true,
            ring: 0,
            ..*job
        };
        Ok(self.with_modules(self.modules("", &job.to_string())))
    }

    fn exit_codes(&self) -> ExitCodes {
        ExitCodes::QEMU
    }

    fn clock(&self) -> BootClock {
        BootClock::Machine
    }
}
