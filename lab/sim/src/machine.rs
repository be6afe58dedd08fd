//! A simulated machine with Linux: its parts, and its preparation by boot or snapshot.
//!
//! Boots are identical, so each is done once: init pauses the machine when it is ready, its state is saved,
//! and later starts restore it. The machine reads its job when it continues. Restored and booted machines
//! have byte-identical output from there on.

use crate::base::{Base, BootFiles, LAYOUT_FILE};
use crate::initramfs::Archive;
use crate::module;
use crate::platform::Platform;
use crate::plugin::{with_plugin, Plugin};
use crate::qemu::{self, Qemu};
use crate::ready::{is_final, ReadyMachine};
use crate::root::{self, Fill};
use crate::script::Script;
use crate::settings::{Settings, Start};
use crate::snapshot::{SnapshotLock, Snapshots};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::sync::Arc;
use trapline_abi::platform::JOB_FILE;
use trapline_host::process::Command;
use trapline_host::{
    hexadecimal, memory_file, sha256_of_file, Activity, Error, Facts, Limits, Part,
};

/// Memory besides that of guests, in MiB.
pub const OWN_MEMORY_MIB: u32 = 1024;

/// Returns facts common to all machines of a kind.
pub fn facts(platform: &Platform) -> Facts {
    let options = [platform.machine, qemu::COUNTING, platform.processor];
    [
        ("machine", options.join(" ").trim_end().to_owned()),
        ("l1-command-line", platform.words.to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// A machine, ready to be started.
pub struct SimMachine {
    settings: Settings,
    qemu: Qemu,
    steady: Arc<File>,
    platform: &'static Platform,
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

impl SimMachine {
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
        let qemu = settings.qemu_of(base.platform)?;
        let fill = &mut |archive: &mut Archive, script: &mut Script| {
            fill(archive, script)?;
            if base.control_group {
                script.enter_control_group();
            }
            if base.layout.file_bytes > 0 {
                archive.document(LAYOUT_FILE, vec![0; base.layout.file_bytes]);
            }
            Ok(())
        };
        let archive = root::archive(settings, base.platform, None, &base.modules, fill)?;
        let bytes = archive.bytes();
        let words = base.words();
        let mut facts = base.facts;
        facts.insert(
            "initramfs-sha256".to_owned(),
            hexadecimal(&Sha256::digest(&bytes)),
        );
        facts.insert("l1-settings".to_owned(), module::options(&base.modules));
        Ok(Self {
            initramfs: Arc::new(memory_file("initramfs", &bytes)?),
            facts,
            steady: settings.parts.open(Part::Steady)?,
            settings: settings.clone(),
            memory: OWN_MEMORY_MIB + guest_memory + base.layout.memory_mib,
            qemu,
            platform: base.platform,
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
        let activity =
            Activity::begin("boots this machine once, about 40 s; later runs restore it");
        let mut booted = self.boot(job, limits, None)?;
        let kept = snapshots
            .draft(key)
            .and_then(|draft| booted.save(snapshots, draft, limits));
        drop(turn);
        drop(activity);
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
        let Some(snapshot) = snapshots.find(key, self.memory_bytes()) else {
            return Ok(None);
        };
        let snapshot = Arc::new(snapshot);
        let plugin = self.settings.plugin.as_ref();
        let command = self.command(&snapshot, "share=off", job, plugin)?;
        let command = command.words("-incoming defer");
        let mut ready = self.ready(command, snapshot, "restored")?;
        match ready.load(limits) {
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
        let memory = memory_file("memory", &[])?;
        memory.set_len(self.memory_bytes()).map_err(Error::Output)?;
        let memory = Arc::new(memory);
        let command = self.command(&memory, "share=on", job, plugin)?;
        let mut ready = self.ready(command, memory, "booted")?;
        ready.boot(limits)?;
        Ok(ready)
    }

    fn ready(&self, command: Command, memory: Arc<File>, how: &str) -> Result<ReadyMachine, Error> {
        ReadyMachine::start(command, memory, self.platform.emulator, &self.facts, how)
    }

    fn memory_bytes(&self) -> u64 {
        u64::from(self.memory) << 20
    }

    /// Returns the command of a machine whose memory is the start of the file `memory`. With `share=off` it copies
    /// the pages that it writes.
    fn command(
        &self,
        memory: &Arc<File>,
        share: &str,
        job: &Script,
        plugin: Option<&Plugin>,
    ) -> Result<Command, Error> {
        let job = Arc::new(memory_file("job", &job.padded())?);
        let command = Command::new(&self.qemu.program);
        let command = qemu::with_steady_clock(command, Arc::clone(&self.steady))
            .words("-nodefaults -no-user-config -display none -no-reboot -smp 1")
            .words(&format!(
                "{} -action panic=pause -m {}M",
                self.machine, self.memory
            ))
            .words(qemu::COUNTING)
            .words(self.processor)
            .words(&consoles(self.platform));
        let mut command = self.loaded.load_into(command, &self.initramfs);
        let number = command.pass_file(Arc::clone(memory));
        let mut command = command
            .words("-machine memory-backend=memory -object")
            .arg(format!(
                "memory-backend-file,id=memory,size={}M,mem-path=/proc/self/fd/{number},{share}",
                self.memory
            ));
        let number = command.pass_file(job);
        let command = command
            .arg("-fw_cfg")
            .arg(format!("name={JOB_FILE},file=/proc/self/fd/{number}"));
        Ok(with_plugin(command, plugin))
    }
}

/// Returns the options of the devices that records, and messages of the kernel, are sent through.
fn consoles(platform: &Platform) -> String {
    const MESSAGES: &str = "/proc/self/fd/3";
    const RECORDS: &str = "/proc/self/fd/1";
    if platform.has_ports {
        format!("{} -serial file:{MESSAGES}", qemu::console("e9", RECORDS))
    } else {
        format!("-serial file:{RECORDS} -chardev file,id=messages,path={MESSAGES} -device pci-serial,chardev=messages")
    }
}
