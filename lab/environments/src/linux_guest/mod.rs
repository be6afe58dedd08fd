//! A Linux guest: the kernel of the simulated machine, an initramfs with the agent as its
//! init, and one command line - the same whatever runs it, here or on the simulated
//! machine, so that what differs is the virtualization.
//!
//! [`Linux`] is that; who runs it is in [`wall`], in [`uml`], whose kernel is a program
//! of its own, and in `sim::inner`.

mod disk;
mod root;
mod uml;
mod wall;

pub use root::Root;
pub use uml::{check as check_uml, facts as uml_facts};

use crate::guest::Recipe;
use crate::wall::with_pages;
use std::path::{Path, PathBuf};
use trapline_abi::job::{Console, CPUS};
use trapline_abi::Job;
use trapline_host::process::Command;
use trapline_host::{sha256_of_file, Error, Facts};
use trapline_model::layers::{Hypervisor, Level};
use trapline_model::GuestConfig;
use trapline_sim::kernel;
use trapline_sim::kernel::{Kernel, Maker};
use trapline_sim::qemu::Qemu;
use trapline_sim::settings::Settings;

/// What every guest's Linux is told, as the simulated machine's own is: no randomness, no
/// self-tests, its warnings on the serial port, to end where it cannot go on, and to leave
/// the processor's random numbers alone.
pub(crate) const WORDS: &str = "console=ttyS0 loglevel=4 nokaslr norandmaps cryptomgr.notests \
                     panic=-1 clearcpuid=rdrand,rdseed";

/// What a guest boots, and the machine that it gets.
pub struct Linux {
    /// The kernel's file.
    pub kernel: PathBuf,
    /// What it unpacks into its root.
    pub root: Root,
    origin: String,
    machine: GuestConfig,
    /// What it is told besides, where that depends on who runs it.
    further: String,
}

impl Linux {
    /// The user's kernel or the distribution's, for this machine.
    ///
    /// # Errors
    /// A part or the kernel is missing.
    pub fn new(settings: &Settings, machine: &GuestConfig) -> Result<Self, Error> {
        let Kernel { image, origin, .. } = kernel::chosen(settings, Maker::Amd)?;
        Ok(Self {
            kernel: image,
            root: Root::new(settings)?,
            origin,
            machine: *machine,
            further: String::new(),
        })
    }

    /// The same on a machine without a clock by which its time stamp counter could be
    /// measured for sure: it is told the counter's rate, and to trust it.
    pub fn with_rate(self, hertz: f64) -> Self {
        let khz = hertz / 1e3;
        Self {
            further: format!(" tsc_early_khz={khz:.0} tsc=reliable"),
            ..self
        }
    }

    /// What is to be told about it.
    ///
    /// # Errors
    /// The kernel or a file of the initramfs cannot be read.
    pub fn facts(&self) -> Result<Facts, Error> {
        let facts = [
            ("guest-kernel", self.origin.clone()),
            ("guest-kernel-sha256", sha256_of_file(&self.kernel)?),
            ("guest-command-line", format!("{WORDS}{}", self.further)),
        ];
        let mut facts: Facts = named(facts);
        facts.extend(self.root.facts()?);
        facts.extend(machine_facts(&self.machine));
        Ok(facts)
    }

    /// The command line for `job`. The agent's records leave through a port.
    fn words(&self, job: &Job) -> String {
        let job = Job {
            console: Console::Port,
            ports: false,
            ..*job
        };
        let (further, cpus) = (&self.further, self.machine.cpus);
        format!("{WORDS}{further} {CPUS}{cpus} {job}")
    }

    /// Lets our VMM run it with its events on descriptor 3. `initrd` appends the path of
    /// its initramfs.
    pub fn in_our_vmm(
        &self,
        vmm: Command,
        kernel: &Path,
        initrd: impl FnOnce(Command) -> Command,
        job: &Job,
    ) -> Command {
        linux_in_our_vmm(vmm, kernel, initrd, &self.machine, &self.words(job))
    }

    /// Lets QEMU run it, with `accelerator` in QEMU's words.
    pub fn in_qemu(
        &self,
        qemu: &Qemu,
        kernel: &Path,
        initrd: impl FnOnce(Command) -> Command,
        accelerator: &str,
        job: &Job,
    ) -> Command {
        let command = qemu.for_linux(&self.machine, accelerator);
        let command = command.arg("-kernel").arg(kernel).arg("-initrd");
        initrd(command).arg("-append").arg(self.words(job))
    }
}

/// Returns the command of our VMM for a Linux guest, with its events on descriptor 3. `initrd` appends the
/// path of its initramfs.
pub(crate) fn linux_in_our_vmm(
    vmm: Command,
    kernel: &Path,
    initrd: impl FnOnce(Command) -> Command,
    machine: &GuestConfig,
    command_line: &str,
) -> Command {
    let GuestConfig {
        memory_mib,
        cpus,
        pages,
        ..
    } = *machine;
    let vmm = with_pages(vmm, pages);
    let command = vmm.arg("--kernel").arg(kernel).arg("--initrd");
    initrd(command)
        .words(&format!("--memory {memory_mib}M --cpus {cpus} --events 3"))
        .arg("--cmdline")
        .arg(command_line)
}

/// The kernel that guests boot where nobody names one: the distribution's for clouds, or
/// what was given for the simulated machine.
///
/// # Errors
/// There is none, and it cannot be fetched.
pub fn stock_kernel(settings: &Settings) -> Result<PathBuf, Error> {
    Ok(kernel::chosen(settings, Maker::Amd)?.image)
}

/// Returns how a Linux guest of this level of this host is run.
///
/// # Errors
/// Something that it is made of is missing.
pub fn recipe(
    level: Level,
    settings: &Settings,
    machine: &GuestConfig,
) -> Result<Box<dyn Recipe>, Error> {
    Ok(match level.hypervisor {
        Hypervisor::Uml => Box::new(uml::recipe(settings, machine)?),
        _ => Box::new(wall::recipe(level, settings, machine)?),
    })
}

/// The machine that a guest's Linux was given.
fn machine_facts(machine: &GuestConfig) -> Facts {
    named([
        ("guest-cpus", machine.cpus.to_string()),
        ("guest-memory-mib", machine.memory_mib.to_string()),
    ])
}

fn named<const N: usize>(facts: [(&str, String); N]) -> Facts {
    facts.map(|(name, value)| (name.to_owned(), value)).into()
}
