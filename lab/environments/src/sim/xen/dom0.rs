//! The image as Xen's first domain, alone on the machine: no Linux, no toolstack.
//!
//! Xen hands the ports of the machine to its first domain, except those that it uses.
//! So the image speaks on the first serial port, as on a bare machine, and Xen on the
//! second. Xen boots anew for each job, which lies beside the image: the state of such
//! a machine cannot be kept, because nobody in it would read another job later.

use crate::environment::Guest;
use crate::guest::{BootClock, ProcessGuest, Recipe};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use trapline_abi::job::{Console, Shutdown};
use trapline_abi::Job;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{sha256_of_file, Error, Facts, GuestImage, Part};
use trapline_model::GuestConfig;
use trapline_sim::plugin::{with_plugin, Plugin};
use trapline_sim::qemu::{with_steady_clock, Qemu, COUNTING};
use trapline_sim::settings::Settings;
use trapline_sim::xen::packages::Xen;

/// The machine. Xen runs its first domain fully virtualized only with an IOMMU.
const MACHINE: &str = "q35";
const DEVICES: &str = "-device amd-iommu";

/// Its processor, as for other domains of Xen, and with a time stamp counter that is
/// called invariant. It is, for it counts instructions, but QEMU grants the bit on
/// hardware only, unless forced. Xen would emulate `rdtsc` without it.
const PROCESSOR: &str = "-cpu max,-smap,-rdrand,-rdseed,+invtsc,x-force-features=on,check=off";

/// Where the image speaks, and where Xen does.
const SERIAL_PORTS: &str = "-chardev file,id=console,path=/proc/self/fd/1 \
                            -serial chardev:console -serial file:/proc/self/fd/2";

/// What Xen is told.
const XEN_WORDS: &str = "dom0=pvh com2=115200,8n1 console=com2 loglvl=warning \
                         guest_loglvl=warning";

/// What Xen takes of the machine for itself, in MiB.
pub const OWN_MEMORY_MIB: u32 = 128;

/// A machine that Xen restarts ends.
const STATUSES: ExitCodes = ExitCodes {
    done: 0,
    panicked: None,
    reset: None,
};

/// Prepares the image as the initial domain.
///
/// # Errors
/// QEMU or Xen is missing.
pub fn launch(
    settings: &Settings,
    image: &GuestImage,
    machine: &GuestConfig,
) -> Result<Box<dyn Guest>, Error> {
    Ok(Box::new(ProcessGuest::new(Box::new(FirstDomain {
        qemu: Qemu::find(settings.qemu.as_deref())?,
        steady: settings.parts.open(Part::Steady)?,
        xen: Xen::fetched(&settings.cache)?,
        image: image.path.clone(),
        memory_mib: machine.memory_mib,
        plugin: settings.plugin.clone(),
    }))))
}

/// What is known about the machine, and about its Xen if that is here.
pub(crate) fn facts(settings: &Settings) -> Facts {
    let mut facts = Facts::from(
        [
            (
                "machine",
                format!("-M {MACHINE} {DEVICES} {COUNTING} {PROCESSOR}"),
            ),
            ("xen-command-line", XEN_WORDS.to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    if let Some(xen) = Xen::kept(&settings.cache) {
        facts.insert("xen".to_owned(), xen.origin());
        let hash = sha256_of_file(&xen.hypervisor());
        facts.extend(hash.map(|hash| ("xen-sha256".to_owned(), hash)));
    }
    facts
}

/// Xen with the image as its first domain.
struct FirstDomain {
    qemu: Qemu,
    steady: Arc<File>,
    xen: Xen,
    image: PathBuf,
    memory_mib: u32,
    plugin: Option<Plugin>,
}

impl FirstDomain {
    /// The image and its job as a module. A comma would end it, two are one.
    fn module(&self, job: &Job) -> String {
        let job = Job {
            console: Console::Serial,
            shutdown: Shutdown::XenMachine,
            ports: false,
            ring: 0,
            ..*job
        };
        format!("{} {job}", self.image.display()).replace(',', ",,")
    }
}

impl Recipe for FirstDomain {
    fn command(&self, job: &Job) -> Result<Command, Error> {
        let mib = self.memory_mib;
        let command = self.qemu.machine(MACHINE, mib + OWN_MEMORY_MIB, 1);
        let command = with_steady_clock(command, Arc::clone(&self.steady))
            .words(COUNTING)
            .words(PROCESSOR)
            .words(DEVICES)
            .words(SERIAL_PORTS)
            .arg("-kernel")
            .arg(self.xen.hypervisor())
            .arg("-append")
            .arg(format!("{XEN_WORDS} dom0_mem={mib}M"))
            .arg("-initrd")
            .arg(self.module(job));
        Ok(with_plugin(command, self.plugin.as_ref()))
    }

    fn exit_codes(&self) -> ExitCodes {
        STATUSES
    }

    fn clock(&self) -> BootClock {
        BootClock::Machine
    }
}
