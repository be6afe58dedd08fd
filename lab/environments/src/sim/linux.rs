//! A simulated machine with a distribution's Linux on it.

use super::initramfs::Archive;
use super::kernel::{self, Kernel};
use super::listener::{Guests, Inside, MachineEar};
use super::script::Script;
use super::{AGENT, STREAM_HASH};
use crate::environment::{Facts, Guest, SampleSink, Watch, Work};
use crate::error::EnvError;
use crate::parts::{hexadecimal, sha256_of_file, Part};
use crate::process::{Command, Running};
use crate::qemu::{self, Qemu};
use crate::settings::Settings;
use rustix::fs::MemfdFlags;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;
use trapline_abi::Job;
use trapline_plan::MachineSpec;

/// What an environment puts on the machine besides the agent.
pub trait Contents {
    /// What its guests are.
    fn inside(&self) -> Inside;

    /// Adds files.
    ///
    /// # Errors
    /// One cannot be read.
    fn add_to(&self, archive: &mut Archive) -> Result<(), EnvError>;

    /// The program, on the machine, that runs `job`.
    fn command(&self, job: &Job) -> Command;

    /// Whether the machine's kernel has to be asked for a guest's TSC offset.
    fn asks_offset(&self) -> bool {
        false
    }
}

/// The machine. Without PCI its Linux boots fast; without ACPI it would not find
/// the local APIC, whose timer every later timer depends on.
const MACHINE: &str = "-M microvm,acpi=on,rtc=on -bios qboot.rom";

/// What its Linux is told: no randomness, no self-tests of its ciphers (two
/// thirds of the instructions of a boot), its warnings on the serial port, and
/// to end where it cannot go on. Mitigations stay as the distribution has them.
const KERNEL_WORDS: &str = "console=ttyS0 loglevel=4 nokaslr norandmaps \
                            cryptomgr.notests panic=-1";

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

/// A machine in preparation, or running.
pub struct LinuxGuest {
    settings: Settings,
    machine: MachineSpec,
    contents: Box<dyn Contents>,
    jobs: Vec<Job>,
    prepared: Option<Prepared>,
    running: Option<Running>,
}

/// A machine that can be started.
pub struct Prepared {
    /// What starts it.
    pub command: Command,
    facts: Facts,
}

impl Prepared {
    /// What stands for all that the machine is made of.
    pub fn key(&self) -> String {
        let hashes = ["l1-kernel-sha256", "initramfs-sha256"];
        let hashes = hashes.map(|name| self.facts.get(name).map_or("", String::as_str));
        let all = [hashes[0], hashes[1], MACHINE, KERNEL_WORDS].concat();
        hexadecimal(&Sha256::digest(all))
    }
}

impl LinuxGuest {
    /// A machine with `contents` whose guests get `machine`.
    ///
    /// # Errors
    /// The agent is missing.
    pub fn boxed(
        settings: &Settings,
        machine: &MachineSpec,
        contents: impl Contents + 'static,
    ) -> Result<Box<dyn Guest>, EnvError> {
        settings.parts.get(Part::Agent)?;
        Ok(Box::new(Self {
            settings: settings.clone(),
            machine: *machine,
            contents: Box::new(contents),
            jobs: Vec::new(),
            prepared: None,
            running: None,
        }))
    }

    fn prepare(&self) -> Result<Prepared, EnvError> {
        prepare(
            &self.settings,
            self.machine.memory_mib,
            &mut |archive, script| {
                self.contents.add_to(archive)?;
                for job in &self.jobs {
                    let command = self.contents.command(job);
                    script.launch(&command, self.contents.asks_offset());
                }
                Ok(())
            },
        )
    }
}

/// Puts files and launches on a machine.
type Fill<'a> = &'a mut dyn FnMut(&mut Archive, &mut Script) -> Result<(), EnvError>;

/// Prepares a machine with `guest_memory` MiB for what `fill` puts on it.
///
/// # Errors
/// There is no kernel, no QEMU, or a file cannot be read or written.
pub fn prepare(
    settings: &Settings,
    guest_memory: u32,
    fill: Fill<'_>,
) -> Result<Prepared, EnvError> {
    let kernel = match &settings.kernel {
        Some((image, modules)) => kernel::given(image, modules)?,
        None => kernel::fetched(&settings.cache)?,
    };
    let qemu = Qemu::find(settings.qemu.as_deref())?;
    let bytes = archive(settings, &kernel, fill)?.bytes();
    let initramfs = in_memory(&bytes).map_err(EnvError::file("initramfs in memory"))?;
    let facts = [
        ("l1-kernel", kernel.origin.clone()),
        ("l1-kernel-sha256", sha256_of_file(&kernel.image)?),
        ("initramfs-sha256", hexadecimal(&Sha256::digest(&bytes))),
    ];
    Ok(Prepared {
        command: command(&qemu, OWN_MEMORY_MIB + guest_memory, &kernel, initramfs)
            .watched_by(settings.plugin.as_ref()),
        facts: facts.map(|(name, value)| (name.to_owned(), value)).into(),
    })
}

fn archive(settings: &Settings, kernel: &Kernel, fill: Fill<'_>) -> Result<Archive, EnvError> {
    let mut archive = Archive::default();
    let mut script = Script::default();
    for directory in ["dev", "proc", "sys", "tmp"] {
        archive.directory(directory);
    }
    super::add_program(&mut archive, AGENT, &settings.parts.get(Part::Agent)?)?;
    script.wait(CLOCKSOURCE.0, CLOCKSOURCE.1);
    for module in &kernel.modules {
        let path = format!("/trapline/{}.ko", module.name);
        script.module(&path, options_of(&module.name));
        archive.file(&path, module.bytes.clone());
    }
    fill(&mut archive, &mut script)?;
    archive.file("/trapline/script", script.text().as_bytes().to_vec());
    Ok(archive)
}

fn command(qemu: &Qemu, memory: u32, kernel: &Kernel, initramfs: File) -> Command {
    Command::new(&qemu.program)
        .words("-nodefaults -no-user-config -display none -no-reboot -smp 1")
        .words(&format!("{MACHINE} -m {memory}M"))
        .words(qemu::COUNTING)
        .words(&qemu::console("e9", "/proc/self/fd/1"))
        .words("-serial file:/proc/self/fd/3")
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .file(Arc::new(initramfs))
        .arg("-append")
        .arg(KERNEL_WORDS)
}

fn options_of(module: &str) -> &'static str {
    let found = MODULE_OPTIONS.iter().find(|(name, _)| *name == module);
    found.map_or("", |(_, options)| options)
}

/// A file without a name, so that nothing is left of it whatever ends us.
fn in_memory(bytes: &[u8]) -> io::Result<File> {
    let file = rustix::fs::memfd_create("initramfs", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(bytes)?;
    Ok(file)
}

impl Guest for LinuxGuest {
    fn ready(&mut self, work: &Work) -> Result<(), EnvError> {
        self.jobs = work.jobs();
        self.prepared = Some(self.prepare()?);
        Ok(())
    }

    fn go(&mut self) -> Result<(), EnvError> {
        if let Some(prepared) = &self.prepared {
            self.running = Some(Running::start(&prepared.command)?);
        }
        Ok(())
    }

    fn collect(&mut self, watch: &Watch, out: &mut dyn SampleSink) -> Result<(), EnvError> {
        for (name, value) in self.prepared.iter().flat_map(|prepared| &prepared.facts) {
            out.fact(name, value.clone());
        }
        let Some(mut running) = self.running.take() else {
            return Ok(());
        };
        let guests = Guests::new(self.contents.inside(), &self.jobs, out);
        let mut ear = MachineEar::new(guests);
        let heard = running.hear(&mut ear, watch);
        let (guests, hash, judged) = ear.finish(heard);
        drop(guests);
        out.fact(STREAM_HASH, hash);
        judged
    }

    fn stop(mut self: Box<Self>, grace: Duration) {
        if let Some(running) = &mut self.running {
            running.ask_to_end(grace);
        }
    }
}
