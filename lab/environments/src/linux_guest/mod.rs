//! Linux guests: the kernel of the simulated machine, an initramfs with the agent as its init, and one
//! command line. They are the same in every VMM, on this host and on the simulated machine, so that
//! only the virtualization differs.
//!
//! [`host`] runs them on this host, `sim::inner` on the simulated machine. [`uml`] runs user-mode Linux, whose
//! kernel is a program.

mod device_drivers;
mod host;
mod root;
mod shell;
mod uml;

pub use device_drivers::{with_drivers, Devices};
pub use root::Root;
pub use shell::shell_root;
pub use uml::{check as check_uml, facts as uml_facts};

use crate::process_guest::GuestCommand;
use crate::vmm_command;
use std::path::{Path, PathBuf};
use trapline_abi::job::{Console, Isolation, CPUS};
use trapline_abi::Job;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{sha256_of_file, Error, Facts};
use trapline_model::layers::{Hypervisor, Level};
use trapline_model::{GuestConfig, Wake};
use trapline_sim::kernel::{self, Kernel, Maker};
use trapline_sim::qemu::Qemu;
use trapline_sim::settings::Settings;

/// Kernel command line of every guest, as of the simulated machine: no randomness, no self-tests, warnings
/// on the serial port, exit on panic, and no use of the CPU's random numbers.
pub(crate) const KERNEL_OPTIONS: &str =
    "console=ttyS0 loglevel=4 nokaslr norandmaps cryptomgr.notests \
                     panic=-1 clearcpuid=rdrand,rdseed";

/// Name of the disk of workload block in a guest.
pub(crate) const GUEST_DISK: &str = "vda";

/// A Linux guest.
pub struct Linux {
    /// Kernel image.
    pub kernel: PathBuf,
    /// Initramfs.
    pub root: Root,
    origin: String,
    /// Configuration of the guest.
    pub guest: GuestConfig,
    /// Kernel options that depend on settings and on the VMM, each after a space.
    further_options: String,
}

/// The VMM of a Linux guest.
pub enum LinuxVmm {
    /// `trapline-vmm`: program and first arguments.
    Trapline(Command),
    /// QEMU.
    Qemu {
        /// Program.
        qemu: Qemu,
        /// Option `-accel` and related ones.
        accelerator: &'static str,
    },
}

impl LinuxVmm {
    /// Returns the meaning of its exit statuses.
    pub fn exit_codes(&self) -> ExitCodes {
        match self {
            Self::Trapline(_) => ExitCodes::VMM,
            Self::Qemu { .. } => ExitCodes::QEMU,
        }
    }
}

impl Linux {
    /// Returns a guest with the user's kernel, or else the distribution's.
    ///
    /// # Errors
    /// A part or the kernel is missing.
    pub fn new(settings: &Settings, guest: &GuestConfig) -> Result<Self, Error> {
        let Kernel { image, origin, .. } = kernel::chosen(settings, Maker::Amd)?;
        Ok(Self {
            kernel: image,
            root: Root::new(settings)?,
            origin,
            guest: *guest,
            further_options: isolation_option(guest.isolation).to_owned() + idle_option(guest.wake),
        })
    }

    /// Sets the TSC rate, for machines without a clock that is reliable enough to measure it. The kernel measures its timer by
    /// the TSC and prints a warning if it fails (docs/internals/linux-guests.md).
    pub fn with_tsc_rate(self, hertz: f64) -> Self {
        let khz = hertz / 1e3;
        Self {
            further_options: self.further_options
                + &format!(" tsc_early_khz={khz:.0} tsc=reliable loglevel=5"),
            ..self
        }
    }

    /// Returns facts about kernel, initramfs and machine.
    ///
    /// # Errors
    /// The kernel or a file of the initramfs cannot be read.
    pub fn facts(&self) -> Result<Facts, Error> {
        let options = format!("{KERNEL_OPTIONS}{}", self.further_options);
        let mut facts = named([
            ("guest-kernel", self.origin.clone()),
            ("guest-kernel-sha256", sha256_of_file(&self.kernel)?),
            ("guest-command-line", options),
        ]);
        facts.extend(self.root.facts()?);
        facts.extend(machine_facts(&self.guest));
        Ok(facts)
    }

    /// Returns the kernel command line for `job`. The agent writes its records to a port, and checks that the kernel isolates
    /// programs if it is asked to.
    pub fn command_line(&self, job: &Job) -> String {
        let job = Job {
            console: Console::Port,
            ports: false,
            isolation: self.guest.isolation,
            ..*job
        };
        format!("{}{job}", self.options())
    }

    /// Returns the words before the job in the kernel command line, each followed by a space.
    pub fn options(&self) -> String {
        let (further, cpus) = (&self.further_options, self.guest.cpus);
        format!("{KERNEL_OPTIONS}{further} {CPUS}{cpus} ")
    }

    /// Returns the command that runs `job` in `vmm`. `initrd` appends the path of the initramfs.
    pub fn command(
        &self,
        vmm: &LinuxVmm,
        kernel: &Path,
        initrd: impl FnOnce(Command) -> Command,
        job: &Job,
    ) -> Command {
        let command_line = self.command_line(job);
        match vmm {
            LinuxVmm::Trapline(vmm) => {
                vmm_command::linux_command(vmm.clone(), kernel, initrd, &self.guest, &command_line)
            }
            LinuxVmm::Qemu { qemu, accelerator } => {
                let command = qemu.for_linux(&self.guest, accelerator);
                let command = command.arg("-kernel").arg(kernel).arg("-initrd");
                initrd(command).arg("-append").arg(command_line)
            }
        }
    }
}

/// Returns the kernel option of a setting, after a space (Linux, Documentation/admin-guide/kernel-parameters.txt). Without it
/// a kernel isolates programs on processors that need it.
pub(crate) fn isolation_option(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::None => "",
        Isolation::Kpti => " pti=on",
    }
}

/// Returns the kernel option of a policy of waiting, after a space. That of a module that is built in; `drivers` of the agent
/// gives it to one that is not.
fn idle_option(wake: Wake) -> &'static str {
    match wake {
        Wake::HaltPoll => " cpuidle_haltpoll.force=1",
        Wake::IdlePoll => " idle=poll",
        Wake::Halt | Wake::Poll5 | Wake::Poll50 | Wake::Poll500 | Wake::Mwait => "",
    }
}

/// Returns the default kernel of guests: the distribution's for clouds, or that of the simulated machine.
///
/// # Errors
/// It is neither in the cache nor available for download.
pub fn stock_kernel(settings: &Settings) -> Result<PathBuf, Error> {
    Ok(kernel::chosen(settings, Maker::Amd)?.image)
}

/// Returns the command of a Linux guest of this level on this host.
///
/// # Errors
/// A part, a program or the kernel is missing.
pub fn guest_command(
    level: Level,
    settings: &Settings,
    guest: &GuestConfig,
) -> Result<Box<dyn GuestCommand>, Error> {
    Ok(match level.hypervisor {
        Hypervisor::Uml => Box::new(uml::UserModeLinux::new(settings, guest)?),
        _ => Box::new(host::LinuxInVmm::new(level, settings, guest)?),
    })
}

fn machine_facts(guest: &GuestConfig) -> Facts {
    named([
        ("guest-cpus", guest.cpus.to_string()),
        ("guest-memory-mib", guest.memory_mib.to_string()),
    ])
}

fn named<const N: usize>(facts: [(&str, String); N]) -> Facts {
    facts.map(|(name, value)| (name.to_owned(), value)).into()
}
