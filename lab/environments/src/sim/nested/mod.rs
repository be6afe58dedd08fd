//! A guest that hosts guests itself. It is set up as the simulated machine is: it boots what the machine
//! would boot for the same guests, a Linux, or Xen with a Linux as its first domain, with the same modules and
//! agent, and with the setup script in its initramfs. Its command line contains the job, so that the initramfs
//! and a snapshot of the machine serve every job.
//!
//! It has one CPU, and no paravirtual end of interrupts, see [`inner`](super::inner).

mod linux;
mod xen;

use super::contents::Contents;
use super::guests::GuestKind;
use super::inner::{without_pv_eoi, INITRD};
use linux::LinuxInTrapline;
use trapline_abi::Job;
use trapline_host::process::Command;
use trapline_host::{Error, Facts};
use trapline_model::GuestConfig;
use trapline_sim::base::Base;
use trapline_sim::initramfs::Archive;
use trapline_sim::kernel::Maker;
use trapline_sim::listener::Emulator;
use trapline_sim::root::{archive, KVM_CLOCK};
use trapline_sim::script::Script;
use trapline_sim::settings::Settings;
use xen::XenInQemu;

/// The system of such a guest, and the VMM that runs it.
trait HostSystem {
    /// Returns the VMM's exit statuses.
    fn emulator(&self) -> Emulator;

    /// Returns its memory beyond that of its guests, in MiB.
    fn own_memory_mib(&self) -> u32;

    /// Returns its command line without the job.
    fn options(&self) -> &str;

    /// Adds its kernel and the VMM.
    ///
    /// # Errors
    /// A file cannot be read.
    fn add_to(&self, archive: &mut Archive) -> Result<(), Error>;

    /// Returns the command that boots it, with `word` for its init.
    fn command(&self, guest: &GuestConfig, word: &str) -> Command;

    /// Returns a command of the VMM, if its load address depends on the loader.
    fn located_command(&self) -> Option<Command> {
        None
    }
}

/// A guest that hosts guests.
pub struct HostGuest {
    system: Box<dyn HostSystem>,
    initramfs: Vec<u8>,
    guest: GuestConfig,
    inner: Box<dyn Contents>,
    /// CPU options of the machine that its guests need.
    processor: &'static str,
    /// Facts about its kernel, and about its hypervisor if it has one.
    system_facts: Facts,
}

impl HostGuest {
    /// Returns a guest that hosts the guests of `inner`, which have configuration `guest`.
    ///
    /// # Errors
    /// A part, a program or the kernel is missing.
    pub fn new(
        settings: &Settings,
        guest: &GuestConfig,
        inner: Box<dyn Contents>,
    ) -> Result<Self, Error> {
        let base = inner.base(settings, Maker::Amd)?;
        let clock = match base.loaded.module {
            Some(_) => None,
            None => Some(KVM_CLOCK),
        };
        let initramfs = archive(
            settings,
            base.platform,
            clock,
            &base.modules,
            &mut |files, script| {
                inner.prepare(script);
                inner.add_to(files)
            },
        )?;
        let system: Box<dyn HostSystem> = match base.loaded.module {
            Some(dom0) => Box::new(XenInQemu {
                qemu: settings.qemu()?,
                hypervisor: base.loaded.kernel,
                words: base.loaded.words,
                dom0,
            }),
            None => Box::new(LinuxInTrapline::new(settings, &base.loaded.kernel)?),
        };
        Ok(Self {
            guest: GuestConfig {
                memory_mib: inner.memory_mib(guest) + system.own_memory_mib(),
                cpus: 1,
                ..*guest
            },
            initramfs: initramfs.bytes(),
            processor: base.processor,
            system_facts: base.facts,
            system,
            inner,
        })
    }

    fn command_of(&self, script: &Script) -> Command {
        self.system
            .command(&self.guest, &script.command_line_word())
    }
}

impl Contents for HostGuest {
    fn has_small_pages(&self) -> bool {
        false
    }

    fn guest_kind(&self) -> GuestKind {
        self.inner.guest_kind()
    }

    fn base(&self, settings: &Settings, maker: Maker) -> Result<Base, Error> {
        Ok(Base {
            processor: self.processor,
            ..Base::linux_with_linux_guests(settings, maker)?
        })
    }

    fn facts(&self) -> Result<Facts, Error> {
        let mut facts = self.inner.facts()?;
        let level = self.hosts().len() + 1;
        let of_level = |name: &str| format!("l{level}-{name}");
        let memory = self.guest.memory_mib.to_string();
        facts.insert(of_level("command-line"), self.system.options().to_owned());
        facts.insert(of_level("memory-mib"), memory);
        for (name, value) in &self.system_facts {
            let name = name.strip_prefix("l1-").map_or(name.clone(), of_level);
            facts.insert(name, value.clone());
        }
        if !self.processor.is_empty() {
            facts.insert("processor".to_owned(), self.processor.to_owned());
        }
        facts.extend([without_pv_eoi()]);
        Ok(facts)
    }

    fn add_to(&self, archive: &mut Archive) -> Result<(), Error> {
        archive.file(INITRD, self.initramfs.clone());
        self.system.add_to(archive)
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

    fn launch_at(&self, level: usize, script: &mut Script, command: &Command) {
        let Some(level) = level.checked_sub(1) else {
            return script.launch(command, false);
        };
        let mut inner = Script::default();
        self.inner.launch_at(level, &mut inner, command);
        script.launch(&self.command_of(&inner), false);
    }

    fn hosts(&self) -> Vec<Emulator> {
        let inner = self.inner.hosts();
        [self.system.emulator()].into_iter().chain(inner).collect()
    }

    fn located_command(&self) -> Option<Command> {
        self.system.located_command()
    }
}
