//! Linux on the machine: a distribution's kernel with the agent as its init, as on
//! QEMU's machine, and entered at once instead of unpacking itself first. It is
//! there within seconds, so no state of it is kept: the job is among its files.

use crate::environment::{Guest, SampleSink, Work};
use crate::sim::{script, Contents, Guests, STREAM_HASH};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::time::Duration;
use trapline_abi::Job;
use trapline_host::process::Process;
use trapline_host::{hexadecimal, Error, Facts, Limits};
use trapline_model::GuestConfig;
use trapline_sim::base::BootFiles;
use trapline_sim::bochs::machine::{self, BochsMachine};
use trapline_sim::bochs::memory::Memory;
use trapline_sim::bochs::program::{Bochs, REMEDY};
use trapline_sim::bochs::watch::Watcher;
use trapline_sim::bochs::{multiboot, unpack, KERNEL_WORDS};
use trapline_sim::initramfs::Archive;
use trapline_sim::kernel::Maker;
use trapline_sim::listener::MachineOutput;
use trapline_sim::machine::OWN_MEMORY_MIB as LINUX_MEMORY_MIB;
use trapline_sim::programs::{Output, Outputs};
use trapline_sim::root::{archive, ClockSource};
use trapline_sim::script::Script;
use trapline_sim::settings::Settings;

/// The agent looks for its job here. The file is longer than any job.
const JOB: &str = "/trapline/job";
const JOB_BYTES: usize = 64 << 10;

/// What is known about every such machine before it is started.
pub fn facts() -> Facts {
    [("l1-command-line".to_owned(), KERNEL_WORDS.to_owned())].into()
}

/// What such a machine is made of.
pub struct LinuxMachine {
    settings: Settings,
    machine: GuestConfig,
    contents: Box<dyn Contents>,
    watcher: Option<Watcher>,
}

/// A machine that can be started.
struct Prepared {
    bochs: Bochs,
    memory: Memory,
    memory_mib: u32,
    /// What its kernel is told, or its hypervisor and the kernel of the first domain.
    words: Vec<String>,
    facts: Facts,
}

impl LinuxMachine {
    /// A machine with `contents` whose guests get `machine`.
    pub fn new(
        settings: &Settings,
        machine: &GuestConfig,
        contents: Box<dyn Contents>,
        watcher: Option<Watcher>,
    ) -> Self {
        Self {
            settings: settings.clone(),
            machine: *machine,
            contents,
            watcher,
        }
    }

    /// The hash of all that the machine is made of but what it has to do.
    ///
    /// # Errors
    /// Something of that is missing.
    pub fn key(&self) -> Result<String, Error> {
        let prepared = self.prepare(&Script::default())?;
        let mut all: Facts = machine::facts(&prepared.bochs);
        all.extend(prepared.facts);
        all.insert("words".to_owned(), prepared.words.join("\n"));
        all.insert("memory".to_owned(), prepared.memory_mib.to_string());
        let all: Vec<_> = all.into_values().collect();
        Ok(hexadecimal(&Sha256::digest(all.join("\n"))))
    }

    /// Lets it follow a script that starts so many programs: what each did.
    ///
    /// # Errors
    /// Something is missing, or the machine did not end well.
    pub fn run(
        &self,
        script: &Script,
        expected: usize,
        limits: &Limits,
    ) -> Result<Vec<Output>, Error> {
        let mut running = self.start(&self.prepare(script)?)?;
        let mut ear = MachineOutput::new(machine::EMULATOR, Outputs::of(expected));
        let heard = running.wait(&mut ear, limits);
        let (outputs, _, judged) = ear.finish(heard);
        judged.map(|()| outputs.finished).map_err(with_remedy)
    }

    fn prepare(&self, script: &Script) -> Result<Prepared, Error> {
        let base = self.contents.base(&self.settings, Maker::Intel)?;
        let mut fill = |archive: &mut Archive, readiness: &mut Script| {
            self.contents.prepare(readiness);
            self.fill(archive, script)
        };
        let initramfs =
            archive(&self.settings, ClockSource::Tsc, &base.modules, &mut fill)?.bytes();
        let hash = hexadecimal(&Sha256::digest(&initramfs));
        let memory_mib = LINUX_MEMORY_MIB + self.machine.memory_mib;
        let mut facts = base.facts;
        facts.insert("initramfs-sha256".to_owned(), hash);
        Ok(Prepared {
            bochs: Bochs::find()?,
            memory: initial_memory(&base.loaded, &initramfs, memory_mib)?,
            memory_mib,
            words: base.loaded.all_words().map(str::to_owned).collect(),
            facts,
        })
    }

    fn fill(&self, archive: &mut Archive, script: &Script) -> Result<(), Error> {
        self.contents.add_to(archive)?;
        let mut text = script.text().as_bytes().to_vec();
        text.resize(text.len().max(JOB_BYTES), 0);
        archive.file(JOB, text);
        Ok(())
    }

    fn start(&self, prepared: &Prepared) -> Result<Process, Error> {
        let machine = BochsMachine {
            bochs: &prepared.bochs,
            memory_mib: prepared.memory_mib,
            watcher: self.watcher.as_ref(),
        };
        Process::start(&machine.command(&prepared.memory)?)
    }
}

/// Guests in Linux on the machine.
pub struct LinuxGuest {
    machine: LinuxMachine,
    jobs: Vec<Job>,
    prepared: Option<Prepared>,
    running: Option<Process>,
}

impl LinuxGuest {
    /// Guests on `machine`.
    pub fn boxed(machine: LinuxMachine) -> Box<dyn Guest> {
        Box::new(Self {
            machine,
            jobs: Vec::new(),
            prepared: None,
            running: None,
        })
    }
}

/// A Bochs can be built without what the module wants.
fn with_remedy(error: Error) -> Error {
    match error {
        Error::Machine(told) if told.contains("kvm_intel.ko") => Error::Machine(format!(
            "{told}; if this Bochs was built without VMX, the distribution's has it: {REMEDY}"
        )),
        other => other,
    }
}

/// What is booted with this initramfs, in a machine with `mib` of memory: a kernel, or a
/// hypervisor with the kernel of its first domain.
fn initial_memory(loaded: &BootFiles, initramfs: &[u8], mib: u32) -> Result<Memory, Error> {
    let BootFiles {
        kernel,
        words,
        module,
    } = loaded;
    let Some((of_first_domain, its_words)) = module else {
        let mut memory = Memory::of_kernel(kernel, &unpacked(kernel)?)?;
        memory.add_module(initramfs);
        return Ok(memory.with_command_line(words, mib));
    };
    let mut memory = Memory::of_hypervisor(kernel)?;
    memory.add_module(&unpacked(of_first_domain)?);
    memory.add_module(initramfs);
    Ok(multiboot::with_info(&memory, words, &[its_words, ""], mib))
}

fn unpacked(kernel: &Path) -> Result<Vec<u8>, Error> {
    let read = std::fs::read(kernel).and_then(|file| unpack::kernel(&file));
    read.map_err(Error::file(kernel))
}

impl Guest for LinuxGuest {
    fn ready(&mut self, work: &Work, _: &Limits) -> Result<(), Error> {
        self.jobs = work.jobs();
        let script = script(self.machine.contents.as_ref(), &self.jobs, work)?;
        self.prepared = Some(self.machine.prepare(&script)?);
        Ok(())
    }

    fn go(&mut self, _: &Limits) -> Result<(), Error> {
        if let Some(prepared) = &self.prepared {
            self.running = Some(self.machine.start(prepared)?);
        }
        Ok(())
    }

    fn collect(&mut self, limits: &Limits, out: &mut dyn SampleSink) -> Result<(), Error> {
        let Some(mut running) = self.running.take() else {
            return Ok(());
        };
        for (name, value) in self.prepared.iter().flat_map(|prepared| &prepared.facts) {
            out.fact(name, value.clone());
        }
        let guests = Guests::new(self.machine.contents.guest_kind(), &self.jobs, out);
        let mut ear = MachineOutput::new(machine::EMULATOR, guests);
        let heard = running.wait(&mut ear, limits);
        let (guests, hash, judged) = ear.finish(heard);
        drop(guests);
        out.fact(STREAM_HASH, hash);
        judged.map_err(with_remedy)
    }

    fn stop(mut self: Box<Self>, grace: Duration) {
        if let Some(running) = &mut self.running {
            running.terminate(grace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_without_vmx_is_told_with_its_remedy() {
        let told = "line 5: module /trapline/kvm_intel.ko: Operation not supported";
        let error = with_remedy(Error::Machine(told.to_owned())).to_string();
        assert!(error.contains("built without VMX"), "{error}");
        assert!(error.ends_with(REMEDY), "{error}");
        let other = with_remedy(Error::Machine("its Linux stopped".to_owned()));
        assert!(!other.to_string().contains("VMX"));
    }
}
