//! A simulated machine with a distribution's Linux on it: what it is made of, and
//! how it gets to the point from which it works.
//!
//! Its way there takes seconds and is always the same, so it is gone once: our
//! init pauses the machine when all is ready, its state is kept, and from then on it is
//! restored. What it has to do it finds when it goes on. A machine that was
//! restored and one that was booted say the same from there on, byte for byte.

use super::base::{Base, Loaded, KERNEL_WORDS, MACHINE};
use super::initramfs::Archive;
use super::listener::{Emulator, Inmates, MachineEar};
use super::module::Module;
use super::monitor::{Monitor, Transfer};
use super::script::Script;
use super::snapshot::{Draft, Snapshots, Turn};
use super::{AGENT, SYMBOLS};
use crate::environment::{Facts, Watch};
use crate::error::EnvError;
use crate::parts::{hexadecimal, sha256_of_file, Part};
use crate::plugin::Plugin;
use crate::process::{Command, Running};
use crate::qemu::{self, Qemu};
use crate::settings::{Settings, Start};
use rustix::fs::MemfdFlags;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Write};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use trapline_abi::platform::JOB_FILE;
use trapline_abi::record::Channel;

/// Settings of modules. Without this one creating a virtual machine waits for the
/// start of a helper thread, or not: 10 million instructions, or 0.3.
const MODULE_OPTIONS: [(&str, &str); 1] = [("kvm", "nx_huge_pages=never")];

/// In the first second Linux still measures its clock, and until it trusts it
/// timers have the resolution of a tick. Nothing starts before that.
const CLOCKSOURCE: (&str, &str) = (
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "tsc",
);

/// Memory beside that of its guests, in MiB.
pub const OWN_MEMORY_MIB: u32 = 1024;

/// The fact that says how the machine got to where it works.
pub const START: &str = "l1-start";

/// What is known about every such machine before it is started.
pub fn facts() -> Facts {
    let modules: Vec<_> = MODULE_OPTIONS
        .iter()
        .map(|(module, options)| format!("{module}.{options}"))
        .collect();
    [
        ("machine", format!("{MACHINE} {}", qemu::COUNTING)),
        ("l1-command-line", KERNEL_WORDS.to_owned()),
        ("l1-settings", modules.join(" ")),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// All that a machine is made of.
pub struct Machine {
    settings: Settings,
    qemu: Qemu,
    steady: Arc<File>,
    machine: &'static str,
    processor: &'static str,
    loaded: Loaded,
    words: Vec<String>,
    /// In MiB.
    memory: u32,
    initramfs: Arc<File>,
    facts: Facts,
    draws_lots: bool,
}

/// Puts files on a machine, and into its script what is to be done with them before
/// it is ready.
pub type Fill<'a> = &'a mut dyn FnMut(&mut Archive, &mut Script) -> Result<(), EnvError>;

impl Machine {
    /// A machine on `base` with `guest_memory` MiB for the guests of what `fill` puts
    /// on it.
    ///
    /// # Errors
    /// There is no QEMU, a part is missing, or a file cannot be read.
    pub fn new(
        settings: &Settings,
        base: Base,
        guest_memory: u32,
        fill: Fill<'_>,
    ) -> Result<Self, EnvError> {
        let qemu = Qemu::find(settings.qemu.as_deref())?;
        let bytes = archive(settings, &base.modules, fill)?.bytes();
        let words = base.words();
        let mut facts = base.facts;
        facts.insert(
            "initramfs-sha256".to_owned(),
            hexadecimal(&Sha256::digest(&bytes)),
        );
        Ok(Self {
            initramfs: Arc::new(in_memory("initramfs", &bytes)?),
            facts,
            steady: settings.parts.open(Part::Steady)?,
            settings: settings.clone(),
            memory: OWN_MEMORY_MIB + guest_memory,
            qemu,
            machine: base.machine,
            processor: base.processor,
            draws_lots: base.draws_lots,
            loaded: base.loaded,
            words,
        })
    }

    /// The hash of all that the machine is made of: its parts, their sizes, the
    /// words by which they are started, and the QEMU that makes it.
    ///
    /// # Errors
    /// QEMU cannot be read.
    pub fn key(&self) -> Result<String, EnvError> {
        let qemu = sha256_of_file(&self.qemu.program)?;
        let mut all = vec![qemu, self.qemu.version.clone(), self.memory.to_string()];
        all.extend(self.words.iter().cloned());
        all.extend(self.facts.values().cloned());
        Ok(hexadecimal(&Sha256::digest(all.join("\n"))))
    }

    /// What is known about it before it is started.
    pub fn known(&self) -> Facts {
        self.facts.clone()
    }

    /// Brings a machine of this kind to where `job` can start.
    ///
    /// # Errors
    /// It does not get there.
    pub fn poise(&self, job: &Script, watch: &Watch) -> Result<Poised, EnvError> {
        match self.settings.start {
            Start::Boot => self.boot(job, watch, self.settings.plugin.as_ref()),
            Start::Restore => self.restore_or_boot(job, watch),
        }
    }

    fn restore_or_boot(&self, job: &Script, watch: &Watch) -> Result<Poised, EnvError> {
        let snapshots = Snapshots::of(&self.settings.cache);
        let key = self.key()?;
        if let Some(poised) = self.restore(&snapshots, &key, job, watch)? {
            return Ok(poised);
        }
        match snapshots.turn(&key, watch) {
            Ok(turn) => match self.restore(&snapshots, &key, job, watch)? {
                // Somebody else has made it while we waited.
                Some(poised) => Ok(poised),
                None => self.boot_and_keep(&snapshots, &key, turn, job, watch),
            },
            Err(error) if is_final(&error) => Err(error),
            Err(error) => {
                let booted = self.boot(job, watch, self.settings.plugin.as_ref())?;
                Ok(booted.unkept(&error))
            }
        }
    }

    /// A machine that has booted and whose snapshot was kept. Where somebody
    /// watches it, its boot is not what he wants to see, and takes ten times as
    /// long: one boots that nobody watches, to be restored. So it is where a restored one
    /// goes other ways.
    fn boot_and_keep(
        &self,
        snapshots: &Snapshots<'_>,
        key: &str,
        turn: Turn,
        job: &Script,
        watch: &Watch,
    ) -> Result<Poised, EnvError> {
        let mut booted = self.boot(job, watch, None)?;
        let kept = snapshots
            .draft(key)
            .and_then(|draft| booted.save(snapshots, draft, watch));
        drop(turn);
        let plugin = self.settings.plugin.as_ref();
        let is_wanted = plugin.is_none() && !self.draws_lots;
        match (kept, is_wanted) {
            (Err(error), _) if is_final(&error) => Err(error),
            (Ok(()), true) => Ok(booted),
            (Err(error), true) => Ok(booted.unkept(&error)),
            (Ok(()), false) => match self.restore(snapshots, key, job, watch)? {
                Some(restored) => Ok(restored),
                None => self.boot(job, watch, plugin),
            },
            (Err(error), false) => Ok(self.boot(job, watch, plugin)?.unkept(&error)),
        }
    }

    /// A machine from its snapshot, if there is one that can be used.
    fn restore(
        &self,
        snapshots: &Snapshots<'_>,
        key: &str,
        job: &Script,
        watch: &Watch,
    ) -> Result<Option<Poised>, EnvError> {
        let Some(state) = snapshots.find(key) else {
            return Ok(None);
        };
        let plugin = self.settings.plugin.as_ref();
        let command = self.command(job, plugin)?.words("-incoming defer");
        let mut poised = self.start(command, "restored")?;
        let loaded = poised
            .monitor
            .greet(watch)
            .and_then(|()| poised.monitor.transfer(Transfer::Load, &state, watch));
        match loaded {
            Ok(()) => Ok(Some(poised)),
            Err(error) if is_final(&error) => Err(error),
            Err(_) => {
                snapshots.discard(key);
                Ok(None)
            }
        }
    }

    /// A machine that has booted, watched by `plugin` if there is one.
    fn boot(
        &self,
        job: &Script,
        watch: &Watch,
        plugin: Option<&Plugin>,
    ) -> Result<Poised, EnvError> {
        let mut poised = self.start(self.command(job, plugin)?, "booted")?;
        poised.boot(watch)?;
        Ok(poised)
    }

    /// Starts QEMU, which waits to be told what to do.
    fn start(&self, mut command: Command, start: &str) -> Result<Poised, EnvError> {
        let (monitor, theirs) = Monitor::pair().map_err(EnvError::Deaf)?;
        let number = command.give(Arc::new(theirs));
        let command = command
            .words(&format!("-chardev socket,id=monitor,fd={number}"))
            .words("-mon chardev=monitor,mode=control -S");
        let mut facts = self.facts.clone();
        facts.insert(START.to_owned(), start.to_owned());
        Ok(Poised {
            running: Running::start(&command)?,
            monitor,
            facts,
        })
    }

    fn command(&self, job: &Script, plugin: Option<&Plugin>) -> Result<Command, EnvError> {
        let job = Arc::new(in_memory("job", job.text().as_bytes())?);
        let command = Command::new(&self.qemu.program)
            .steadied_by(Arc::clone(&self.steady))
            .words("-nodefaults -no-user-config -display none -no-reboot -smp 1")
            .words(&format!(
                "{} -action panic=pause -m {}M",
                self.machine, self.memory
            ))
            .words(qemu::COUNTING)
            .words(self.processor)
            .words(&qemu::console("e9", "/proc/self/fd/1"))
            .words("-serial file:/proc/self/fd/3");
        let mut command = self.loaded.load_into(command, &self.initramfs);
        let number = command.give(job);
        Ok(command
            .arg("-fw_cfg")
            .arg(format!("name={JOB_FILE},file=/proc/self/fd/{number}"))
            .watched_by(plugin))
    }
}

/// A machine that stands still where its job starts.
pub struct Poised {
    /// What is known about it.
    pub facts: Facts,
    running: Running,
    monitor: Monitor,
}

impl Poised {
    /// Lets it go.
    ///
    /// # Errors
    /// It does not.
    pub fn go(&mut self, watch: &Watch) -> Result<(), EnvError> {
        self.monitor.go(watch)
    }

    /// Hears what its inmates say until it ends, see [`MachineEar::finish`].
    pub fn hear<I: Inmates>(
        &mut self,
        inmates: I,
        watch: &Watch,
    ) -> (I, String, Result<(), EnvError>) {
        let mut ear = MachineEar::new(Emulator::QEMU, inmates);
        let heard = self.running.hear(&mut ear, watch);
        ear.finish(heard)
    }

    /// The process.
    pub fn running(&mut self) -> &mut Running {
        &mut self.running
    }

    /// Lets it boot to its pause.
    fn boot(&mut self, watch: &Watch) -> Result<(), EnvError> {
        let mut ear = MachineEar::new(Emulator::QEMU, Nobody);
        let greeted = self.monitor.greet(watch);
        let heard = match greeted.and_then(|()| self.monitor.go(watch)) {
            Ok(()) => self.running.hear_until(&mut self.monitor, &mut ear, watch),
            Err(error) if is_final(&error) => return Err(error),
            // How it ends says more than that it hung up; if it does end.
            Err(error) => match self.running.hear(&mut ear, &soon(watch)) {
                Ok(over) => Ok(Some(over)),
                Err(_) => Err(error),
            },
        };
        match heard {
            Ok(None) => Ok(()),
            Ok(Some(over)) => ear.finish(Ok(over)).2,
            Err(error) => ear.finish(Err(error)).2,
        }
    }

    fn save(
        &mut self,
        snapshots: &Snapshots<'_>,
        draft: Draft,
        watch: &Watch,
    ) -> Result<(), EnvError> {
        self.monitor.transfer(Transfer::Save, draft.file(), watch)?;
        snapshots.keep(draft)
    }

    /// Notes why no snapshot was kept: the next start takes as long.
    fn unkept(mut self, error: &EnvError) -> Self {
        let told = format!("booted; it could not be kept: {error}");
        self.facts.insert(START.to_owned(), told);
        self
    }
}

/// Nobody is on a machine that boots.
struct Nobody;

impl Inmates for Nobody {
    fn expected(&self) -> usize {
        0
    }

    fn start(&mut self, _: u64) {}

    fn relay(&mut self, _: Channel, _: &[u8]) -> Result<(), EnvError> {
        Ok(())
    }

    fn end(&mut self, _: ExitStatus, _: u64) -> Result<(), EnvError> {
        Ok(())
    }

    fn cut(&mut self, _: &str) {}
}

/// The same with the patience that a QEMU deserves which has hung up.
fn soon(watch: &Watch) -> Watch {
    Watch {
        patience: watch.patience.min(Duration::from_secs(5)),
        stop: Arc::clone(&watch.stop),
    }
}

/// Whether there is no other way to be tried.
fn is_final(error: &EnvError) -> bool {
    matches!(error, EnvError::Stopped | EnvError::Hung { .. })
}

/// The initramfs of a machine with `modules` and what `fill` adds.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn archive(
    settings: &Settings,
    modules: &[Module],
    fill: Fill<'_>,
) -> Result<Archive, EnvError> {
    let mut archive = Archive::default();
    let mut script = Script::default();
    for directory in ["dev", "proc", "sys", "tmp"] {
        archive.directory(directory);
    }
    super::add_program(&mut archive, AGENT, &settings.parts.get(Part::Agent)?)?;
    super::add_program(&mut archive, SYMBOLS, &settings.parts.get(Part::Symbols)?)?;
    script.wait(CLOCKSOURCE.0, CLOCKSOURCE.1);
    for module in modules {
        let path = format!("/trapline/{}.ko", module.name);
        script.module(&path, options_of(&module.name));
        archive.file(&path, module.bytes.clone());
    }
    fill(&mut archive, &mut script)?;
    archive.file("/trapline/script", script.text().as_bytes().to_vec());
    Ok(archive)
}

fn options_of(module: &str) -> &'static str {
    let found = MODULE_OPTIONS.iter().find(|(name, _)| *name == module);
    found.map_or("", |(_, options)| options)
}

/// A file without a name, so that nothing is left of it whatever ends us.
///
/// # Errors
/// There is no memory for it.
pub(crate) fn in_memory(name: &str, bytes: &[u8]) -> Result<File, EnvError> {
    let write = || -> io::Result<File> {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
        let mut file = File::from(file);
        file.write_all(bytes)?;
        Ok(file)
    };
    write().map_err(EnvError::file(format!("{name} in memory")))
}
