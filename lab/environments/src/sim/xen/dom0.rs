//! The image as Xen's first domain, alone on the machine: no Linux, no toolstack.
//!
//! Xen hands the ports of the machine to its first domain, except those that it uses.
//! So the image speaks on the first serial port, as on a bare machine, and Xen on the
//! second. Xen boots anew for each job, which lies beside the image: the state of such
//! a machine cannot be kept, because nobody in it would read another job later.

use super::packages::Xen;
use crate::environment::{Facts, Guest};
use crate::error::EnvError;
use crate::guest::{BootClock, ProcessGuest, Recipe, Statuses};
use crate::parts::{sha256_of_file, GuestImage, Part};
use crate::plugin::Plugin;
use crate::process::Command;
use crate::qemu::{Qemu, COUNTING};
use crate::settings::Settings;
use crate::stack::{Need, Stack};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use trapline_abi::job::{Console, End};
use trapline_abi::Job;
use trapline_model::{EnvironmentId, MachineSpec};

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
const STATUSES: Statuses = Statuses {
    done: 0,
    panicked: None,
    reset: None,
};

/// `sim/xen-dom0`.
pub fn dom0(settings: Settings) -> Stack {
    Stack {
        id: EnvironmentId::SimXenDom0,
        settings,
        needs: &[Need::Part(Part::Image), Need::Qemu, Need::XenAlone],
        make,
    }
}

fn make(
    _: EnvironmentId,
    settings: &Settings,
    image: &GuestImage,
    machine: &MachineSpec,
) -> Result<Box<dyn Guest>, EnvError> {
    Ok(Box::new(ProcessGuest::new(FirstDomain {
        qemu: Qemu::find(settings.qemu.as_deref())?,
        steady: settings.parts.open(Part::Steady)?,
        xen: Xen::fetched(&settings.cache)?,
        image: image.path.clone(),
        memory_mib: machine.memory_mib,
        plugin: settings.plugin.clone(),
    })))
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
            end: End::XenMachine,
            ports: false,
            ring: 0,
            ..*job
        };
        format!("{} {job}", self.image.display()).replace(',', ",,")
    }
}

impl Recipe for FirstDomain {
    fn command(&self, job: &Job) -> Result<Command, EnvError> {
        let mib = self.memory_mib;
        Ok(self
            .qemu
            .machine(MACHINE, mib + OWN_MEMORY_MIB, 1)
            .steadied_by(Arc::clone(&self.steady))
            .words(COUNTING)
            .words(PROCESSOR)
            .words(DEVICES)
            .words(SERIAL_PORTS)
            .arg("-kernel")
            .arg(self.xen.hypervisor())
            .arg("-append")
            .arg(format!("{XEN_WORDS} dom0_mem={mib}M"))
            .arg("-initrd")
            .arg(self.module(job))
            .watched_by(self.plugin.as_ref()))
    }

    fn statuses(&self) -> Statuses {
        STATUSES
    }

    fn clock(&self) -> BootClock {
        BootClock::Machine
    }
}
