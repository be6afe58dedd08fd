//! The image as Xen's dom0, without Linux and toolstack.
//!
//! Xen passes the ports of the machine that it does not use to dom0. So the image writes to the first serial
//! port, as on a bare machine, and Xen to the second. The job is in the command line of the image, so Xen boots
//! for each job, and there are no snapshots.

use crate::environment::Guest;
use crate::launch::BootClock;
use crate::process_guest::{GuestCommand, ProcessGuest};
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

/// The machine. Xen requires an IOMMU for a PVH dom0.
const MACHINE: &str = "q35";
const DEVICES: &str = "-device amd-iommu";

/// The CPU, as for other domains of Xen, with an invariant TSC: Xen would emulate `rdtsc` otherwise. QEMU
/// offers the bit under TCG only if forced.
const PROCESSOR: &str =
    "-cpu max,-smap,-rdrand,-rdseed,-x2apic,+invtsc,x-force-features=on,check=off";

/// Serial ports of the image and of Xen.
const SERIAL_PORTS: &str = "-chardev file,id=console,path=/proc/self/fd/1 \
                            -serial chardev:console -serial file:/proc/self/fd/2";

/// Options of Xen.
const XEN_OPTIONS: &str = "dom0=pvh com2=115200,8n1 console=com2 loglvl=warning \
                         guest_loglvl=warning";

/// Memory of Xen, in MiB.
pub const OWN_MEMORY_MIB: u32 = 128;

/// Exit codes: QEMU exits with 0 when Xen restarts the machine.
const EXIT_CODES: ExitCodes = ExitCodes {
    done: 0,
    panicked: None,
    reset: None,
};

/// Creates a guest that is the initial domain.
///
/// # Errors
/// QEMU or Xen is missing.
pub fn launch(
    settings: &Settings,
    image: &GuestImage,
    guest: &GuestConfig,
) -> Result<Box<dyn Guest>, Error> {
    Ok(Box::new(ProcessGuest::new(Box::new(ImageAsDom0 {
        qemu: settings.qemu()?,
        steady: settings.parts.open(Part::Steady)?,
        xen: Xen::fetched(&settings.cache)?,
        image: image.path.clone(),
        memory_mib: guest.memory_mib,
        plugin: settings.plugin.clone(),
    }))))
}

/// Returns facts about the machine, and about Xen if it is in the cache.
pub(crate) fn facts(settings: &Settings) -> Facts {
    let mut facts = Facts::from(
        [
            (
                "machine",
                format!("-M {MACHINE} {DEVICES} {COUNTING} {PROCESSOR}"),
            ),
            ("xen-command-line", XEN_OPTIONS.to_owned()),
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

struct ImageAsDom0 {
    qemu: Qemu,
    steady: Arc<File>,
    xen: Xen,
    image: PathBuf,
    memory_mib: u32,
    plugin: Option<Plugin>,
}

impl ImageAsDom0 {
    /// Returns the option of a module: the image with its job. Commas are doubled, since one separates modules.
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

impl GuestCommand for ImageAsDom0 {
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
            .arg(format!("{XEN_OPTIONS} dom0_mem={mib}M"))
            .arg("-initrd")
            .arg(self.module(job));
        Ok(with_plugin(command, self.plugin.as_ref()))
    }

    fn exit_codes(&self) -> ExitCodes {
        EXIT_CODES
    }

    fn clock(&self) -> BootClock {
        BootClock::Machine
    }
}
