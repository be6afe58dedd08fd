//! A Linux in a virtual machine on the simulated machine: the kernel of the machine a
//! second time, with the agent as its init.

use super::base::Base;
use super::initramfs::Archive;
use super::kernel::{self, Maker};
use super::linux::Contents;
use super::listener::Inside;
use super::{add_as, add_program, AGENT, VMM};
use crate::error::EnvError;
use crate::guest::Statuses;
use crate::observe::Offset;
use crate::parts::Part;
use crate::process::Command;
use crate::settings::Settings;
use std::path::PathBuf;
use trapline_abi::Job;
use trapline_plan::MachineSpec;

/// Where the machine has what its guests are made of.
const KERNEL: &str = "/trapline/kernel";
const INITRD: &str = "/trapline/initrd";

/// What the guest's Linux is told, as the machine's own: no randomness, no self-tests, its
/// warnings on the serial port, to end where it cannot go on, and to leave the
/// processor's random numbers alone.
const WORDS: &str = "console=ttyS0 loglevel=4 nokaslr norandmaps cryptomgr.notests \
                     panic=-1 clearcpuid=rdrand,rdseed";

/// The least that a distribution's kernel unpacks itself in, with its initramfs, in MiB.
const LEAST_MEMORY: u32 = 256;

/// A kernel, the agent, and our VMM.
pub struct InnerLinux {
    vmm: PathBuf,
    agent: PathBuf,
    kernel: PathBuf,
    machine: MachineSpec,
}

/// The Linux guest of our VMM.
///
/// # Errors
/// A part or the kernel is missing.
pub fn of_our_vmm(settings: &Settings, machine: MachineSpec) -> Result<InnerLinux, EnvError> {
    Ok(InnerLinux {
        vmm: settings.parts.get(Part::Vmm)?,
        agent: settings.parts.get(Part::Agent)?,
        kernel: kernel::chosen(settings, Maker::Amd)?.image,
        machine,
    })
}

impl Contents for InnerLinux {
    fn inside(&self) -> Inside {
        Inside {
            statuses: Statuses::VMM,
            offset: Offset::Heard,
            program: "trapline-vmm",
            foreign: None,
        }
    }

    /// Its guest runs long enough for the machine's kernel to draw random numbers anew.
    fn base(&self, settings: &Settings, maker: Maker) -> Result<Base, EnvError> {
        Ok(Base {
            draws_lots: true,
            ..Base::linux(settings, maker)?
        })
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), EnvError> {
        let mut inner = Archive::default();
        inner.directory("dev");
        inner.directory("proc");
        add_program(&mut inner, AGENT, &self.agent)?;
        archive.file(INITRD, inner.bytes());
        add_program(archive, VMM, &self.vmm)?;
        add_as(archive, KERNEL, &self.kernel)
    }

    fn command(&self, job: &Job) -> Command {
        let MachineSpec {
            memory_mib, cpus, ..
        } = self.machine;
        let memory = memory_mib.max(LEAST_MEMORY);
        Command::new(VMM)
            .words(&format!("--kernel {KERNEL} --initrd {INITRD} --events 3"))
            .words(&format!("--memory {memory}M --cpus {cpus} --cmdline"))
            .arg(format!("{WORDS} {job}"))
    }
}
