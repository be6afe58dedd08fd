//! Replays recorded guests, so that everything behind a process can be tested without booting.
//!
//! `TRAPLINE_RECORD=DIR` keeps the output and the exit status of each guest process in `DIR/RUN`, where
//! RUN is the set of operations of its job in hexadecimal. `TRAPLINE_REPLAY=DIR`, relative to the parts,
//! starts a shell that writes `DIR/ENVIRONMENT/RUN` again in place of each guest process; `/` in the name
//! of the environment is replaced by `-`. Decoder, runner, store and report are the real ones. Figures of
//! the wall clock are scaled by the TSC rate of the replaying host.

use crate::environment::{Availability, Guest, SampleSink, Work};
use crate::guest::{BootClock, ProcessGuest, Recipe};
use crate::recording::run_name;
use crate::sim::{self, Contents, Guests, STREAM_HASH};
use std::path::{Path, PathBuf};
use std::time::Duration;
use trapline_abi::Job;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::{Command, Process};
use trapline_host::{Error, GuestImage, Limits};
use trapline_model::layers::{self, Machine, Vmm};
use trapline_model::{EnvironmentId, GuestConfig};
use trapline_sim::listener::{Emulator, MachineOutput};
use trapline_sim::nested;
use trapline_sim::settings::Settings;

/// Replays the recording in its first argument.
const SCRIPT: &str = r#"cd "$0"; cat events >&3; cat errors >&2; cat console; . ./end"#;

/// Returns whether `recordings` contain the environment.
pub fn supports(recordings: &Path, id: EnvironmentId) -> Availability {
    match directory(recordings, id).is_dir() {
        true => Availability::Ready,
        false => Availability::Missing(format!(
            "{} has no recording of {id}: record it with TRAPLINE_RECORD",
            recordings.display()
        )),
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
    machine: &GuestConfig,
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
        let recipe = Recording {
            directory,
            exit_codes,
        };
        return Ok(Box::new(ProcessGuest::new(Box::new(recipe))));
    }
    let contents = sim::contents(&stack, settings, image, machine)?;
    Ok(Box::new(RecordedMachine {
        directory,
        contents,
        jobs: Vec::new(),
        running: None,
    }))
}

fn directory(recordings: &Path, id: EnvironmentId) -> PathBuf {
    recordings.join(id.name().replace('/', "-"))
}

/// Returns the command that replays the recording of a process that starts with `job`.
fn command(directory: &Path, job: &Job) -> Result<Command, Error> {
    let recording = directory.join(run_name(job));
    if !recording.join("end").is_file() {
        return Err(Error::unavailable(format!(
            "there is no recording {}: record these operations with TRAPLINE_RECORD",
            recording.display()
        )));
    }
    let shell = Command::new("/bin/sh").words("-euc").arg(SCRIPT);
    Ok(shell.arg(recording))
}

/// A recorded process whose output is the guest's.
struct Recording {
    directory: PathBuf,
    exit_codes: ExitCodes,
}

impl Recipe for Recording {
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
    contents: Box<dyn Contents>,
    jobs: Vec<Job>,
    running: Option<Process>,
}

impl Guest for RecordedMachine {
    fn ready(&mut self, work: &Work, _: &Limits) -> Result<(), Error> {
        self.jobs = work.jobs();
        Ok(())
    }

    fn go(&mut self, _: &Limits) -> Result<(), Error> {
        if let Some(job) = self.jobs.first() {
            self.running = Some(Process::start(&command(&self.directory, job)?)?);
        }
        Ok(())
    }

    fn collect(&mut self, limits: &Limits, out: &mut dyn SampleSink) -> Result<(), Error> {
        let Some(mut running) = self.running.take() else {
            return Ok(());
        };
        let mut guests = Guests::new(self.contents.guest_kind(), &self.jobs, out);
        let programs = nested::at_level(self.contents.nesting(), &mut guests);
        let mut output = MachineOutput::new(Emulator::QEMU, programs);
        let exited = running.wait(&mut output, limits);
        let (_, hash, result) = output.finish(exited);
        drop(guests);
        out.fact(STREAM_HASH, hash);
        result
    }

    fn stop(mut self: Box<Self>, grace: Duration) {
        if let Some(running) = &mut self.running {
            running.terminate(grace);
        }
    }
}
