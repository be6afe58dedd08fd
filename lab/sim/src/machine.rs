//! A simulated machine with Linux: its parts, and how it reaches the state in which it accepts a job.
//!
//! Boots are identical, so each is done once: init pauses the machine when it is ready, its state is saved,
//! and later starts restore it. The machine reads its job when it continues. Restored and booted machines
//! have byte-identical output from there on.

use crate::base::{Base, BootFiles, KERNEL_WORDS, MACHINE};
use crate::initramfs::{add_program, Archive};
use crate::listener::{Emulator, MachineOutput, ProgramObserver};
use crate::module::Module;
use crate::plugin::{with_plugin, Plugin};
use crate::qemu::{self, Qemu};
use crate::qmp::{Migration, Monitor};
use crate::script::Script;
use crate::settings::{Settings, Start};
use crate::snapshot::{SnapshotDraft, SnapshotLock, Snapshots};
use crate::{AGENT, SYMBOLS};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use trapline_abi::platform::JOB_FILE;
use trapline_abi::record::Channel;
use trapline_host::process::{Command, Process};
use trapline_host::{hexadecimal, memory_file, sha256_of_file, Error, Facts, Limits, Part};

/// Module parameters. Without this one the creation of a VM takes 0.3 or 10 million instructions,
/// depending on whether it waits for the start of a helper thread.
const MODULE_OPTIONS: [(&str, &str); 1] = [("kvm", "nx_huge_pages=never")];

/// File that contains the clock source in use.
const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Clock source that Linux uses in the end, for which its init waits: in the first second Linux calibrates
/// its clock, and its timers have the resolution of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockSource {
    /// The time stamp counter, on a machine.
    Tsc,
    /// The clock that KVM offers to guests.
    Kvm,
}

impl ClockSource {
    /// Name in Linux.
    const fn name(self) -> &'static str {
        match self {
            Self::Tsc => "tsc",
            Self::Kvm => "kvm-clock",
        }
    }
}

/// Memory besides that of guests, in MiB.
pub const OWN_MEMORY_MIB: u32 = 1024;

/// Name of the fact that tells a booted from a restored machine.
pub const START: &str = "l1-start";

/// Returns facts common to all such machines.
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

/// A machine, ready to be started.
pub struct Machine {
    settings: Settings,
    qemu: Qemu,
    steady: Arc<File>,
    machine: &'static str,
    processor: &'static str,
    loaded: BootFiles,
    words: Vec<String>,
    /// In MiB.
    memory: u32,
    initramfs: Arc<File>,
    facts: Facts,
    random_state: bool,
}

/// Adds files to a machine, and commands to the script that makes it ready.
pub type Fill<'a> = &'a mut dyn FnMut(&mut Archive, &mut Script) -> Result<(), Error>;

impl Machine {
    /// Returns a machine on `base` with `guest_memory` MiB for guests, and the files of `fill`.
    ///
    /// # Errors
    /// QEMU or a part is missing, or a file cannot be read.
    pub fn new(
        settings: &Settings,
        base: Base,
        guest_memory: u32,
        fill: Fill<'_>,
    ) -> Result<Self, Error> {
        let qemu = Qemu::find(settings.qemu.as_deref())?;
        let bytes = archive(settings, ClockSource::Tsc, &base.modules, fill)?.bytes();
        let words = base.words();
        let mut facts = base.facts;
        facts.insert(
            "initramfs-sha256".to_owned(),
            hexadecimal(&Sha256::digest(&bytes)),
        );
        Ok(Self {
            initramfs: Arc::new(memory_file("initramfs", &bytes)?),
            facts,
            steady: settings.parts.open(Part::Steady)?,
            settings: settings.clone(),
            memory: OWN_MEMORY_MIB + guest_memory,
            qemu,
            machine: base.machine,
            processor: base.processor,
            random_state: base.random_state,
            loaded: base.loaded,
            words,
        })
    }

    /// Returns the hash of everything that determines the machine: parts, sizes, options and QEMU.
    ///
    /// # Errors
    /// QEMU cannot be read.
    pub fn key(&self) -> Result<String, Error> {
        let qemu = sha256_of_file(&self.qemu.program)?;
        let mut all = vec![qemu, self.qemu.version.clone(), self.memory.to_string()];
        all.extend(self.words.iter().cloned());
        all.extend(self.facts.values().cloned());
        Ok(hexadecimal(&Sha256::digest(all.join("\n"))))
    }

    /// Returns facts known before it is started.
    pub fn known(&self) -> Facts {
        self.facts.clone()
    }

    /// Starts a machine and brings it to the state in which `job` can start.
    ///
    /// # Errors
    /// It does not reach that state.
    pub fn prepare(&self, job: &Script, limits: &Limits) -> Result<ReadyMachine, Error> {
        match self.settings.start {
            Start::Boot => self.boot(job, limits, self.settings.plugin.as_ref()),
            Start::Restore => self.restore_or_boot(job, limits),
        }
    }

    fn restore_or_boot(&self, job: &Script, limits: &Limits) -> Result<ReadyMachine, Error> {
        let snapshots = Snapshots::of(&self.settings.cache);
        let key = self.key()?;
        if let Some(ready) = self.restore(&snapshots, &key, job, limits)? {
            return Ok(ready);
        }
        match snapshots.turn(&key, limits) {
            Ok(turn) => match self.restore(&snapshots, &key, job, limits)? {
                // Another process has made it meanwhile.
                Some(ready) => Ok(ready),
                None => self.boot_and_keep(&snapshots, &key, turn, job, limits),
            },
            Err(error) if is_final(&error) => Err(error),
            Err(error) => {
                let booted = self.boot(job, limits, self.settings.plugin.as_ref())?;
                Ok(booted.unkept(&error))
            }
        }
    }

    /// Boots a machine and keeps its snapshot. With a plugin, or where restored machines differ, a
    /// machine without plugin is booted, and then restored.
    fn boot_and_keep(
        &self,
        snapshots: &Snapshots<'_>,
        key: &str,
        turn: SnapshotLock,
        job: &Script,
        limits: &Limits,
    ) -> Result<ReadyMachine, Error> {
        let mut booted = self.boot(job, limits, None)?;
        let kept = snapshots
            .draft(key)
            .and_then(|draft| booted.save(snapshots, draft, limits));
        drop(turn);
        let plugin = self.settings.plugin.as_ref();
        let is_wanted = plugin.is_none() && !self.random_state;
        match (kept, is_wanted) {
            (Err(error), _) if is_final(&error) => Err(error),
            (Ok(()), true) => Ok(booted),
            (Err(error), true) => Ok(booted.unkept(&error)),
            (Ok(()), false) => match self.restore(snapshots, key, job, limits)? {
                Some(restored) => Ok(restored),
                None => self.boot(job, limits, plugin),
            },
            (Err(error), false) => Ok(self.boot(job, limits, plugin)?.unkept(&error)),
        }
    }

    /// Returns a machine restored from its snapshot, if a valid one exists.
    fn restore(
        &self,
        snapshots: &Snapshots<'_>,
        key: &str,
        job: &Script,
        limits: &Limits,
    ) -> Result<Option<ReadyMachine>, Error> {
        let Some(state) = snapshots.find(key) else {
            return Ok(None);
        };
        let plugin = self.settings.plugin.as_ref();
        let command = self.command(job, plugin)?.words("-incoming defer");
        let mut ready = self.start(command, "restored")?;
        let loaded = ready
            .monitor
            .greet(limits)
            .and_then(|()| ready.monitor.migrate(Migration::Load, &state, limits));
        match loaded {
            Ok(()) => Ok(Some(ready)),
            Err(error) if is_final(&error) => Err(error),
            Err(_) => {
                snapshots.discard(key);
                Ok(None)
            }
        }
    }

    /// Boots a machine with `plugin`, if any.
    fn boot(
        &self,
        job: &Script,
        limits: &Limits,
        plugin: Option<&Plugin>,
    ) -> Result<ReadyMachine, Error> {
        let mut ready = self.start(self.command(job, plugin)?, "booted")?;
        ready.boot(limits)?;
        Ok(ready)
    }

    /// Starts a paused QEMU.
    fn start(&self, mut command: Command, start: &str) -> Result<ReadyMachine, Error> {
        let (monitor, theirs) = Monitor::pair().map_err(Error::Output)?;
        let number = command.pass_file(Arc::new(theirs));
        let command = command
            .words(&format!("-chardev socket,id=monitor,fd={number}"))
            .words("-mon chardev=monitor,mode=control -S");
        let mut facts = self.facts.clone();
        facts.insert(START.to_owned(), start.to_owned());
        Ok(ReadyMachine {
            running: Process::start(&command)?,
            monitor,
            facts,
        })
    }

    fn command(&self, job: &Script, plugin: Option<&Plugin>) -> Result<Command, Error> {
        let job = Arc::new(memory_file("job", job.text().as_bytes())?);
        let command = Command::new(&self.qemu.program);
        let command = qemu::with_steady_clock(command, Arc::clone(&self.steady))
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
        let number = command.pass_file(job);
        let command = command
            .arg("-fw_cfg")
            .arg(format!("name={JOB_FILE},file=/proc/self/fd/{number}"));
        Ok(with_plugin(command, plugin))
    }
}

/// A paused machine at the start of its job.
pub struct ReadyMachine {
    /// Facts about it.
    pub facts: Facts,
    running: Process,
    monitor: Monitor,
}

impl ReadyMachine {
    /// Continues it.
    ///
    /// # Errors
    /// It cannot continue.
    pub fn go(&mut self, limits: &Limits) -> Result<(), Error> {
        self.monitor.go(limits)
    }

    /// Passes its output to `programs` until it ends, see [`MachineOutput::finish`].
    pub fn wait<I: ProgramObserver>(
        &mut self,
        programs: I,
        limits: &Limits,
    ) -> (I, String, Result<(), Error>) {
        let mut ear = MachineOutput::new(Emulator::QEMU, programs);
        let heard = self.running.wait(&mut ear, limits);
        ear.finish(heard)
    }

    /// Returns its process.
    pub fn running(&mut self) -> &mut Process {
        &mut self.running
    }

    /// Boots it to its pause.
    fn boot(&mut self, limits: &Limits) -> Result<(), Error> {
        let mut ear = MachineOutput::new(Emulator::QEMU, NoPrograms);
        let greeted = self.monitor.greet(limits);
        let heard = match greeted.and_then(|()| self.monitor.go(limits)) {
            Ok(()) => self.running.wait_for(&mut self.monitor, &mut ear, limits),
            Err(error) if is_final(&error) => return Err(error),
            // The exit status explains more than the closed monitor.
            Err(error) => match self.running.wait(&mut ear, &soon(limits)) {
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
        draft: SnapshotDraft,
        limits: &Limits,
    ) -> Result<(), Error> {
        self.monitor
            .migrate(Migration::Save, draft.file(), limits)?;
        snapshots.keep(draft)
    }

    /// Records why no snapshot was kept: the next start boots again.
    fn unkept(mut self, error: &Error) -> Self {
        let told = format!("booted; it could not be kept: {error}");
        self.facts.insert(START.to_owned(), told);
        self
    }
}

/// No programs run during a boot.
struct NoPrograms;

impl ProgramObserver for NoPrograms {
    fn expected(&self) -> usize {
        0
    }

    fn start(&mut self, _: u64) {}

    fn output(&mut self, _: Channel, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    fn end(&mut self, _: ExitStatus, _: u64) -> Result<(), Error> {
        Ok(())
    }

    fn abort(&mut self, _: &str) {}
}

/// Returns limits for a QEMU that closed its monitor.
fn soon(limits: &Limits) -> Limits {
    Limits {
        timeout: limits.timeout.min(Duration::from_secs(5)),
        stop: Arc::clone(&limits.stop),
    }
}

/// Returns whether no other start is to be tried.
fn is_final(error: &Error) -> bool {
    matches!(error, Error::Stopped | Error::TimedOut { .. })
}

/// Returns the initramfs of a machine, or of a guest that hosts guests, with `modules` and the files of
/// `fill`.
///
/// # Errors
/// A file cannot be read.
pub fn archive(
    settings: &Settings,
    clock: ClockSource,
    modules: &[Module],
    fill: Fill<'_>,
) -> Result<Archive, Error> {
    let mut archive = Archive::default();
    let mut script = Script::default();
    for directory in ["dev", "proc", "sys", "tmp"] {
        archive.directory(directory);
    }
    add_program(&mut archive, AGENT, &settings.parts.get(Part::Agent)?)?;
    add_program(&mut archive, SYMBOLS, &settings.parts.get(Part::Symbols)?)?;
    script.wait(CLOCKSOURCE, clock.name());
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
