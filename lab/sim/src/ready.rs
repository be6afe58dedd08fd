//! A simulated machine that accepts a job, and its run.

use crate::listener::{Emulator, MachineOutput, ProgramObserver};
use crate::qmp::{Migration, Monitor};
use crate::snapshot::{SnapshotDraft, Snapshots};
use std::fs::File;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use trapline_abi::record::Channel;
use trapline_host::process::{Command, Process};
use trapline_host::{Error, Facts, Limits};

/// Fact: whether a machine was booted or restored.
pub const START: &str = "l1-start";

/// A paused machine at the start of its job.
pub struct ReadyMachine {
    /// Facts about it.
    pub facts: Facts,
    running: Process,
    monitor: Monitor,
    emulator: Emulator,
    /// Its memory; of a restored machine the snapshot, at the start of the migration stream.
    memory: Arc<File>,
}

impl ReadyMachine {
    /// Starts a paused QEMU whose command maps `memory`, `start` being the value of [`START`].
    ///
    /// # Errors
    /// QEMU cannot be started.
    pub(crate) fn start(
        mut command: Command,
        memory: Arc<File>,
        emulator: Emulator,
        facts: &Facts,
        start: &str,
    ) -> Result<Self, Error> {
        let (mut monitor, theirs) = Monitor::pair().map_err(Error::Output)?;
        let number = command.pass_file(Arc::new(theirs));
        let command = command
            .words(&format!("-chardev socket,id=monitor,fd={number}"))
            .words("-mon chardev=monitor,mode=control -S");
        let mut facts = facts.clone();
        facts.insert(START.to_owned(), start.to_owned());
        let running = Process::start(&command)?;
        monitor.watch(running.pid());
        Ok(Self {
            running,
            monitor,
            emulator,
            memory,
            facts,
        })
    }

    /// Loads its state from the snapshot that is its memory.
    ///
    /// # Errors
    /// The snapshot cannot be loaded.
    pub(crate) fn load(&mut self, limits: &Limits) -> Result<(), Error> {
        self.monitor.greet(limits)?;
        self.monitor.migrate(Migration::Load, &self.memory, limits)
    }

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
        let mut output = MachineOutput::new(self.emulator, programs);
        let exited = self.running.wait(&mut output, limits);
        output.finish(exited)
    }

    /// Returns its process.
    pub fn running(&mut self) -> &mut Process {
        &mut self.running
    }

    /// Boots it to its pause.
    ///
    /// # Errors
    /// It ends before.
    pub(crate) fn boot(&mut self, limits: &Limits) -> Result<(), Error> {
        let mut output = MachineOutput::new(self.emulator, NoPrograms);
        let greeted = self.monitor.greet(limits);
        let exited = match greeted.and_then(|()| self.monitor.go(limits)) {
            Ok(()) => self
                .running
                .wait_for(&mut self.monitor, &mut output, limits),
            Err(error) if is_final(&error) => return Err(error),
            // The exit status explains more than the closed monitor.
            Err(error) => match self.running.wait(&mut output, &soon(limits)) {
                Ok(exited) => Ok(Some(exited)),
                Err(_) => Err(error),
            },
        };
        match exited {
            Ok(None) => Ok(()),
            Ok(Some(exited)) => output.finish(Ok(exited)).2,
            Err(error) => output.finish(Err(error)).2,
        }
    }

    /// Saves its state as a snapshot, with its memory.
    ///
    /// # Errors
    /// QEMU or the cache refuses.
    pub(crate) fn save(
        &mut self,
        snapshots: &Snapshots<'_>,
        draft: SnapshotDraft,
        limits: &Limits,
    ) -> Result<(), Error> {
        let stream = draft.with_memory(&self.memory)?;
        self.monitor.migrate(Migration::Save, stream, limits)?;
        snapshots.keep(draft)
    }

    /// Records why no snapshot was kept: the next start boots again.
    pub(crate) fn unkept(mut self, error: &Error) -> Self {
        let start = format!("booted; it could not be kept: {error}");
        self.facts.insert(START.to_owned(), start);
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
pub(crate) fn is_final(error: &Error) -> bool {
    matches!(error, Error::Stopped | Error::TimedOut { .. })
}
