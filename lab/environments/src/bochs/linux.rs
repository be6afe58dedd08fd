//! Linux on the machine: a distribution's kernel with the agent as its init, as on the simulated machine of
//! QEMU. The kernel is loaded unpacked. It boots within seconds, so there are no snapshots; the job is a file
//! of the initramfs.

use crate::sim::{with_mitigations, Contents, ScriptMachine};
use sha2::{Digest, Sha256};
use std::path::Path;
use trapline_abi::Job;
use trapline_host::process::Process;
use trapline_host::{hexadecimal, Error, Facts, Limits};
use trapline_model::GuestConfig;
use trapline_sim::base::BootFiles;
use trapline_sim::bochs::machine::{self, BochsMachine, Platform};
use trapline_sim::bochs::memory::Memory;
use trapline_sim::bochs::program::{Bochs, REMEDY};
use trapline_sim::bochs::watch::Watcher;
use trapline_sim::bochs::{multiboot, unpack};
use trapline_sim::initramfs::Archive;
use trapline_sim::kernel::Maker;
use trapline_sim::listener::{MachineOutput, ProgramObserver};
use trapline_sim::machine::OWN_MEMORY_MIB as LINUX_MEMORY_MIB;
use trapline_sim::module;
use trapline_sim::platform::INTEL;
use trapline_sim::programs::{Output, Outputs};
use trapline_sim::root::archive;
use trapline_sim::script::Script;
use trapline_sim::settings::Settings;

/// File with the agent's job.
const JOB: &str = "/trapline/job";

/// Returns facts known before a machine is started.
pub fn facts() -> Facts {
    [("l1-command-line".to_owned(), INTEL.words.to_owned())].into()
}

/// A machine with Linux.
pub struct LinuxMachine {
    settings: Settings,
    guest: GuestConfig,
    watcher: Option<Watcher>,
    prepared: Option<Prepared>,
    running: Option<Process>,
}

/// Inputs of a machine.
struct Prepared {
    bochs: Bochs,
    memory: Memory,
    memory_mib: u32,
    /// Command lines of the kernel, or of the hypervisor and the kernel of its first domain.
    command_lines: Vec<String>,
    facts: Facts,
}

impl LinuxMachine {
    /// Returns a machine for guests with configuration `guest`.
    pub fn new(settings: &Settings, guest: &GuestConfig, watcher: Option<Watcher>) -> Self {
        Self {
            settings: settings.clone(),
            guest: *guest,
            watcher,
            prepared: None,
            running: None,
        }
    }

    /// Returns the hash of all inputs of the machine except its job.
    ///
    /// # Errors
    /// An input is missing.
    pub fn key(&self, contents: &dyn Contents) -> Result<String, Error> {
        let prepared = self.inputs(contents, &Script::default())?;
        let mut all: Facts = machine::facts(&prepared.bochs, Platform::COMMON);
        all.extend(prepared.facts);
        all.insert("words".to_owned(), prepared.command_lines.join("\n"));
        all.insert("memory".to_owned(), prepared.memory_mib.to_string());
        let all: Vec<_> = all.into_values().collect();
        Ok(hexadecimal(&Sha256::digest(all.join("\n"))))
    }

    /// Runs a script that starts `expected` programs. Returns their results.
    ///
    /// # Errors
    /// An input is missing, or the machine failed.
    pub fn run(
        &self,
        contents: &dyn Contents,
        script: &Script,
        expected: usize,
        limits: &Limits,
    ) -> Result<Vec<Output>, Error> {
        let mut running = self.spawn(&self.inputs(contents, script)?)?;
        let mut output = MachineOutput::new(machine::EMULATOR, Outputs::of(expected));
        let exited = running.wait(&mut output, limits);
        let (outputs, _, result) = output.finish(exited);
        result.map(|()| outputs.finished).map_err(with_remedy)
    }

    fn inputs(&self, contents: &dyn Contents, script: &Script) -> Result<Prepared, Error> {
        let base = contents.base(&self.settings, Maker::Intel)?;
        let base = with_mitigations(base, self.guest.mitigations);
        let mut fill = |archive: &mut Archive, preparation: &mut Script| {
            contents.prepare(preparation);
            contents.add_to(archive)?;
            archive.file(JOB, script.padded());
            Ok(())
        };
        let initramfs = archive(
            &self.settings,
            base.platform,
            None,
            &base.modules,
            &mut fill,
        )?
        .bytes();
        let hash = hexadecimal(&Sha256::digest(&initramfs));
        let memory_mib = LINUX_MEMORY_MIB + self.guest.memory_mib;
        let mut facts = base.facts;
        facts.insert("initramfs-sha256".to_owned(), hash);
        facts.insert("l1-settings".to_owned(), module::options(&base.modules));
        Ok(Prepared {
            bochs: Bochs::find()?,
            memory: initial_memory(&base.loaded, &initramfs, memory_mib)?,
            memory_mib,
            command_lines: base.loaded.all_words().map(str::to_owned).collect(),
            facts,
        })
    }

    fn spawn(&self, prepared: &Prepared) -> Result<Process, Error> {
        let machine = BochsMachine {
            bochs: &prepared.bochs,
            memory_mib: prepared.memory_mib,
            watcher: self.watcher.as_ref(),
            platform: Platform::COMMON,
        };
        Process::start(&machine.command(&prepared.memory)?)
    }
}

impl ScriptMachine for LinuxMachine {
    fn prepare(
        &mut self,
        contents: &dyn Contents,
        script: &Script,
        _: &Limits,
    ) -> Result<Facts, Error> {
        let prepared = self.inputs(contents, script)?;
        Ok(self.prepared.insert(prepared).facts.clone())
    }

    fn start(&mut self, _: &[Job], _: &Limits) -> Result<(), Error> {
        if let Some(prepared) = &self.prepared {
            self.running = Some(self.spawn(prepared)?);
        }
        Ok(())
    }

    fn wait(
        &mut self,
        programs: &mut dyn ProgramObserver,
        limits: &Limits,
    ) -> (String, Result<(), Error>) {
        let output = MachineOutput::new(machine::EMULATOR, programs);
        let (hash, result) = output.wait(self.running.take(), limits);
        (hash, result.map_err(with_remedy))
    }

    fn process(&mut self) -> Option<&mut Process> {
        self.running.as_mut()
    }
}

/// Adds the remedy for a Bochs built without VMX.
fn with_remedy(error: Error) -> Error {
    match error {
        Error::Machine(reason) if reason.contains("kvm_intel.ko") => Error::Machine(format!(
            "{reason}; if this Bochs was built without VMX, the distribution's has it: {REMEDY}"
        )),
        other => other,
    }
}

/// Returns the initial memory of a machine with `mib` MiB that boots `loaded`: a kernel, or a hypervisor with
/// the kernel of its first domain.
fn initial_memory(loaded: &BootFiles, initramfs: &[u8], mib: u32) -> Result<Memory, Error> {
    let BootFiles {
        kernel,
        words,
        module,
    } = loaded;
    let Some((dom0_kernel, dom0_words)) = module else {
        let mut memory = Memory::of_kernel(kernel, &unpacked(kernel)?)?;
        memory.add_module(initramfs);
        return Ok(memory.with_command_line(words, mib));
    };
    let mut memory = Memory::of_hypervisor(kernel)?;
    memory.add_module(&unpacked(dom0_kernel)?);
    memory.add_module(initramfs);
    Ok(multiboot::with_info(
        &memory,
        Platform::COMMON,
        words,
        &[dom0_words, ""],
        mib,
    ))
}

fn unpacked(kernel: &Path) -> Result<Vec<u8>, Error> {
    let unpacked = std::fs::read(kernel).and_then(|file| unpack::kernel(&file));
    unpacked.map_err(Error::file(kernel))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn missing_vmx_is_reported_with_a_remedy() {
        let reason = "line 5: module /trapline/kvm_intel.ko: Operation not supported";
        let errors = [reason, "its Linux stopped"]
            .map(|reason| with_remedy(Error::Machine(reason.to_owned())).to_string());
        expect![[r#"
            simulated machine failed: line 5: module /trapline/kvm_intel.ko: Operation not supported; if this Bochs was built without VMX, the distribution's has it: sudo apt-get install --no-install-recommends bochs bochs-term
            simulated machine failed: its Linux stopped"#]].assert_eq(&errors.join("\n"));
    }
}
