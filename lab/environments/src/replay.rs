//! Replays recorded guests, so that everything behind a process can be tested without booting.
//!
//! `TRAPLINE_RECORD=DIR` keeps the output and the exit status of each guest process in `DIR/RUN`, where
//! RUN is the set of operations of its job in hexadecimal. `TRAPLINE_REPLAY=DIR`, relative to the parts,
//! starts a shell that writes `DIR/ENVIRONMENT/RUN` again in place of each guest process; `/` in the name
//! of the environment is replaced by `-`. Decoder, runner, store and report are the real ones. Figures of
//! the wall clock are scaled by the TSC rate of the replaying host.

use crate::environment::{Environment, Guest};
use crate::launch::BootClock;
use crate::layered::Layered;
use crate::process_guest::{GuestCommand, ProcessGuest};
use crate::recording::run_name;
use crate::sim::{self, Contents, MachineGuest, ScriptMachine};
use std::path::{Path, PathBuf};
use trapline_abi::Job;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::{Command, Process};
use trapline_host::{Error, Facts, GuestImage, Limits};
use trapline_model::layers::{self, Machine, Vmm};
use trapline_model::{EnvironmentId, GuestConfig, Unavailable};
use trapline_sim::listener::{Emulator, MachineOutput, ProgramObserver};
use trapline_sim::script::Script;

/// Replays the recording in its first argument.
const SCRIPT: &str = r#"cd "$0"; cat events >&3; cat errors >&2; cat console; . ./end"#;

/// An environment whose guests are recordings. Its facts are those of the layers that it stands for.
pub struct Replayed {
    /// The environment that was recorded.
    pub layered: Layered,
    /// Directory of the recordings.
    pub recordings: PathBuf,
}

impl Environment for Replayed {
    fn id(&self) -> EnvironmentId {
        self.layered.id
    }

    fn check(&self, _: &GuestConfig) -> Result<(), Unavailable> {
        if self.directory().is_dir() {
            Ok(())
        } else {
            let (recordings, id) = (self.recordings.display(), self.id());
            let reason = format!("{recordings} has no recording of {id}");
            Err(Unavailable::new(reason).help("record it with TRAPLINE_RECORD"))
        }
    }

    fn facts(&self) -> Facts {
        let mut facts = self.layered.facts();
        let recordings = self.recordings.display().to_string();
        facts.insert("replayed-from".to_owned(), recordings);
        facts
    }

    fn nonce(&self) -> u64 {
        0
    }

    fn launch(&self, image: &GuestImage, guest: &GuestConfig) -> Result<Box<dyn Guest>, Error> {
        let directory = self.directory();
        let stack = self.id().stack();
        let on_linux = stack.guest == layers::Guest::Linux || !stack.levels.is_empty();
        if stack.machine == Machine::Host || !on_linux {
            let exit_codes = match (stack.machine, stack.innermost().and_then(|level| level.vmm)) {
                (Machine::Host, None) => ExitCodes::AGENT,
                (Machine::Host, Some(Vmm::Trapline)) => ExitCodes::VMM,
                _ => ExitCodes::QEMU,
            };
            let process = RecordedProcess {
                directory,
                exit_codes,
            };
            return Ok(Box::new(ProcessGuest::new(Box::new(process))));
        }
        let contents = sim::contents(&stack, &self.layered.settings, image, guest)?;
        let running = None;
        let machine = Box::new(RecordedMachine { directory, running });
        Ok(MachineGuest::boxed(machine, contents))
    }
}

impl Replayed {
    fn directory(&self) -> PathBuf {
        self.recordings.join(self.id().name().replace('/', "-"))
    }
}

/// Returns the command that replays the recording of a process that starts with `job`.
fn command(directory: &Path, job: &Job) -> Result<Command, Error> {
    let recording = directory.join(run_name(job));
    if !recording.join("end").is_file() {
        return Err(Error::missing(
            format!("there is no recording {}", recording.display()),
            "record these operations with TRAPLINE_RECORD",
        ));
    }
    let shell = Command::new("/bin/sh").words("-euc").arg(SCRIPT);
    Ok(shell.arg(recording))
}

/// A recorded process whose output is the guest's.
struct RecordedProcess {
    directory: PathBuf,
    exit_codes: ExitCodes,
}

impl GuestCommand for RecordedProcess {
    fn command(&self, job: &Job) -> Result<Command, Error> {
        command(&self.directory, job)
    }

    fn exit_codes(&self) -> ExitCodes {
        self.exit_codes
    }

    fn clock(&self) -> BootClock {
        BootClock::Machine
    }
}

/// A recorded machine whose init reports its guests.
struct RecordedMachine {
    directory: PathBuf,
    running: Option<Process>,
}

impl ScriptMachine for RecordedMachine {
    fn prepare(&mut self, _: &dyn Contents, _: &Script, _: &Limits) -> Result<Facts, Error> {
        Ok(Facts::new())
    }

    fn start(&mut self, jobs: &[Job], _: &Limits) -> Result<(), Error> {
        if let Some(job) = jobs.first() {
            self.running = Some(Process::start(&command(&self.directory, job)?)?);
        }
        Ok(())
    }

    fn wait(
        &mut self,
        programs: &mut dyn ProgramObserver,
        limits: &Limits,
    ) -> (String, Result<(), Error>) {
        MachineOutput::new(Emulator::QEMU, programs).wait(self.running.take(), limits)
    }

    fn process(&mut self) -> Option<&mut Process> {
        self.running.as_mut()
    }
}
