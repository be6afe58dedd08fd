//! Replays recorded guests, so that everything behind a process can be tested without booting.
//!
//! `TRAPLINE_RECORD=DIR` keeps the output and the exit status of each guest process in `DIR/RUN`, where
//! RUN is the set of operations of its job in hexadecimal. `TRAPLINE_REPLAY=DIR`, relative to the parts,
//! starts a shell that writes `DIR/ENVIRONMENT/RUN` again in place of each guest process; `/` in the name
//! of the environment is replaced by `-`. Decoder, runner, store and report are the real ones. Figures of
//! the wall clock are scaled by the TSC rate of the replaying host.

use crate::environment::Guest;
use crate::launch::BootClock;
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
use trapline_sim::settings::Settings;

/// Replays the recording in its first argument.
const SCRIPT: &str = r#"cd "$0"; cat events >&3; cat errors >&2; cat console; . ./end"#;

/// Checks that `recordings` contain the environment.
///
/// # Errors
/// They do not.
pub fn check(recordings: &Path, id: EnvironmentId) -> Result<(), Unavailable> {
    match directory(recordings, id).is_dir() {
        true => Ok(()),
        false => {
            let reason = format!("{} has no recording of {id}", recordings.display());
            Err(Unavailable::new(reason).help("record it with TRAPLINE_RECORD"))
        }
    }
}

/// Returns a guest that replays the recordings of `id`.
///
/// # Errors
/// A part or program that the environment is made of is missing.
pub fn launch(
    recordings: &Path,
    id: EnvironmentId,
    settings: &Settings,
    image: &GuestImage,
    guest: &GuestConfig,
) -> Result<Box<dyn Guest>, Error> {
    let stack = id.stack();
    let directory = directory(recordings, id);
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
    let contents = sim::contents(&stack, settings, image, guest)?;
    let running = None;
    let machine = Box::new(RecordedMachine { directory, running });
    Ok(MachineGuest::boxed(machine, contents))
}

fn directory(recordings: &Path, id: EnvironmentId) -> PathBuf {
    recordings.join(id.name().replace('/', "-"))
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
