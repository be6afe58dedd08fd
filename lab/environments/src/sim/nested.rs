//! A Linux guest of `trapline-vmm` that hosts guests itself. It is set up as the simulated machine is: the
//! same kernel, modules and agent, with the setup script in its initramfs. Its command line contains the
//! job, so that the initramfs and a snapshot of the machine serve every job.
//!
//! It has one CPU, and no paravirtual end of interrupts, see [`inner`](super::inner).

use super::contents::Contents;
use super::guests::GuestKind;
use super::inner::{without_pv_eoi, INITRD, KERNEL};
use crate::linux_guest::KERNEL_OPTIONS;
use crate::vmm_command::linux_command;
use std::path::{Path, PathBuf};
use trapline_abi::Job;
use trapline_host::process::Command;
use trapline_host::{Error, Facts, Part};
use trapline_model::GuestConfig;
use trapline_sim::base::Base;
use trapline_sim::bochs::unpack;
use trapline_sim::initramfs::{add_program, Archive};
use trapline_sim::kernel::{self, Kernel, Maker};
use trapline_sim::root::{archive, ClockSource};
use trapline_sim::script::Script;
use trapline_sim::settings::Settings;
use trapline_sim::VMM;

/// Memory of such a guest beyond that of its guest, in MiB.
const OWN_MEMORY_MIB: u32 = 512;

/// A Linux guest that hosts guests.
pub struct NestedLinux {
    vmm: PathBuf,
    kernel: Vec<u8>,
    initramfs: Vec<u8>,
    guest: GuestConfig,
    inner: Box<dyn Contents>,
}

impl NestedLinux {
    /// Returns a Linux guest that hosts the guests of `inner`, which have configuration `guest`.
    ///
    /// # Errors
    /// A part or the kernel is missing.
    pub fn new(
        settings: &Settings,
        guest: &GuestConfig,
        inner: Box<dyn Contents>,
    ) -> Result<Self, Error> {
        let Kernel { image, modules, .. } = kernel::chosen(settings, Maker::Amd)?;
        let initramfs = archive(
            settings,
            ClockSource::Kvm,
            &modules,
            &mut |files, script| {
                inner.prepare(script);
                inner.add_to(files)
            },
        )?;
        Ok(Self {
            vmm: settings.parts.get(Part::Vmm)?,
            kernel: unpacked(&image)?,
            initramfs: initramfs.bytes(),
            guest: GuestConfig {
                memory_mib: inner.memory_mib(guest) + OWN_MEMORY_MIB,
                cpus: 1,
                ..*guest
            },
            inner,
        })
    }

    fn command_of(&self, script: &Script) -> Command {
        let line = format!("{KERNEL_OPTIONS} {}", script.command_line_word());
        let vmm = Command::new(VMM).arg("--no-pv-eoi");
        let initrd = |command: Command| command.arg(INITRD);
        linux_command(vmm, Path::new(KERNEL), initrd, &self.guest, &line)
    }
}

impl Contents for NestedLinux {
    fn guest_kind(&self) -> GuestKind {
        self.inner.guest_kind()
    }

    fn base(&self, settings: &Settings, maker: Maker) -> Result<Base, Error> {
        Base::linux_with_linux_guests(settings, maker)
    }

    fn facts(&self) -> Result<Facts, Error> {
        let mut facts = self.inner.facts()?;
        let level = self.nesting() + 1;
        facts.insert(format!("l{level}-command-line"), KERNEL_OPTIONS.to_owned());
        facts.insert(
            format!("l{level}-memory-mib"),
            self.guest.memory_mib.to_string(),
        );
        facts.extend([without_pv_eoi()]);
        Ok(facts)
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), Error> {
        archive.file(INITRD, self.initramfs.clone());
        archive.file(KERNEL, self.kernel.clone());
        add_program(archive, VMM, &self.vmm)
    }

    fn memory_mib(&self, _: &GuestConfig) -> u32 {
        self.guest.memory_mib
    }

    fn command(&self, job: &Job) -> Command {
        let mut script = Script::default();
        script.allow(job);
        self.inner.launch(&mut script, job);
        self.command_of(&script)
    }

    fn launch(&self, script: &mut Script, job: &Job) {
        script.launch(&self.command(job), false);
    }

    fn launch_at(&self, level: u32, script: &mut Script, command: &Command) {
        let Some(level) = level.checked_sub(1) else {
            return script.launch(command, false);
        };
        let mut inner = Script::default();
        self.inner.launch_at(level, &mut inner, command);
        script.launch(&self.command_of(&inner), false);
    }

    fn nesting(&self) -> u32 {
        self.inner.nesting() + 1
    }
}

/// Returns the kernel as an ELF file: unpacking itself would take longer than its boot.
fn unpacked(image: &Path) -> Result<Vec<u8>, Error> {
    let file = std::fs::read(image).map_err(Error::file(image))?;
    unpack::kernel(&file).map_err(Error::file(image))
}
