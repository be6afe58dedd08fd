//! Processes that run guests: started, read until they end, and never left behind.
//!
//! A process leads a group of its own, and the kernel kills it when the thread that started it dies
//! (see `trapline_spawn`). Dropping a [`Process`] kills and reaps the group. Only processes that a
//! custom VMM starts may survive a `kill -9` of this program, or its timeout if they clear their environment.

mod command;
mod deadline;
mod descendants;
mod divert;
mod guard;
mod output_handler;
mod recording;

pub use command::Command;
pub use deadline::Deadline;
pub use divert::Diversion;
pub use guard::Guard;
pub use output_handler::OutputHandler;

use crate::usage::ProcessProbe;
use crate::{Error, Limits};
use divert::Filter;
use recording::Recording;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use trapline_spawn::{ticks, Program, Started};

/// A source of events besides the process.
pub trait EventSource {
    /// Returns a descriptor that is readable when there is an event.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Handles events. Returns whether to stop waiting for the process.
    ///
    /// # Errors
    /// The event is a failure.
    fn handle(&mut self) -> Result<bool, Error>;
}

/// An ended process.
#[derive(Clone, Copy, Debug)]
pub struct Exited {
    /// TSC when the end was noticed, in ticks.
    pub end: u64,
    /// Its exit status.
    pub status: ExitStatus,
    /// The process was killed after [`OutputHandler::is_complete`].
    pub outlived_guest: bool,
}

/// A process that is not reaped yet.
pub struct Process {
    started: Started,
    reaped: bool,
    deadline: Deadline,
    console: Stream,
    errors: Stream,
    events: Stream,
    /// Closing it hangs up the terminal.
    _terminal: Option<File>,
    probe: ProcessProbe,
    filter: Option<Filter>,
    recording: Option<PathBuf>,
    /// Value of [`descendants::VARIABLE`] of a program of the user's.
    descendants: Option<String>,
    /// Dropped after the group that it guards has been killed.
    _guard: Option<Guard>,
}

/// Result of one poll.
#[derive(Default)]
struct Ready {
    exited: bool,
    source: bool,
}

struct Stream {
    file: File,
    open: bool,
}

/// Size of a read, in bytes.
const READ_BYTES: usize = 16 << 10;

/// Interval of checks for timeouts and stop requests.
const POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

impl Process {
    /// Starts `command`. Standard input is empty unless the command has one; descriptor 3 is for events.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(command: &Command) -> Result<Self, Error> {
        Self::try_start(command).map_err(Error::start(&command.program))
    }

    fn try_start(command: &Command) -> io::Result<Self> {
        let mut program = Program::new(&command.program)?;
        for argument in &command.arguments {
            program.argument(argument)?;
        }
        for (name, value) in &command.environment {
            program.environment(name, value)?;
        }
        let descendants = command.is_foreign.then(descendants::unique_value);
        if let Some(value) = &descendants {
            program.environment(descendants::VARIABLE, value.as_ref())?;
        }
        let (terminal, input) = match (command.terminal, &command.input) {
            (true, _) => {
                trapline_spawn::terminal().map(|(ours, theirs)| (Some(ours), Arc::new(theirs)))?
            }
            (false, Some(input)) => (None, Arc::clone(input)),
            (false, None) => (None, Arc::new(File::open("/dev/null")?)),
        };
        program.descriptor(input.as_fd())?;
        let console = Stream::add_to(&mut program)?;
        let errors = Stream::add_to(&mut program)?;
        let events = Stream::add_to(&mut program)?;
        for file in &command.files {
            program.descriptor(file.as_fd())?;
        }
        let started = trapline_spawn::start(&program)?;
        let mut process = Self {
            probe: ProcessProbe::new(started.pid),
            reaped: false,
            deadline: if command.is_emulator {
                Deadline::cpu(started.pid)
            } else {
                Deadline::wall()
            },
            console,
            errors,
            events,
            _terminal: terminal,
            filter: command.diversion.clone().map(Filter::new),
            recording: None,
            descendants,
            _guard: None,
            started,
        };
        if let Some(agent) = &command.guard {
            process._guard = Some(Guard::start(agent, process.started.pid)?);
        }
        if command.works_in_children || command.guard.is_some() {
            process.probe.include_children();
        }
        Ok(process)
    }

    /// Returns the probe of its resource usage.
    pub fn probe(&self) -> &ProcessProbe {
        &self.probe
    }

    /// Returns its process id.
    pub fn pid(&self) -> i32 {
        self.started.pid
    }

    /// Returns the TSC right before its exec, in ticks.
    pub fn exec(&self) -> u64 {
        self.started.exec
    }

    /// Records the output of [`Self::wait`] in `directory`, if one is given.
    pub fn record(&mut self, directory: Option<PathBuf>) {
        self.recording = directory;
    }

    /// Passes output to `handler` until the process ends.
    ///
    /// # Errors
    /// A limit was reached, the handler failed, or the output cannot be read. The process may still
    /// run; dropping it kills it.
    pub fn wait(
        &mut self,
        handler: &mut dyn OutputHandler,
        limits: &Limits,
    ) -> Result<Exited, Error> {
        let Some(directory) = self.recording.take() else {
            return self.wait_for_end(handler, limits);
        };
        let mut recording = Recording::new(handler);
        let exited = self.wait_for_end(&mut recording, limits)?;
        recording.save(&directory, exited.status)?;
        Ok(exited)
    }

    fn wait_for_end(
        &mut self,
        handler: &mut dyn OutputHandler,
        limits: &Limits,
    ) -> Result<Exited, Error> {
        loop {
            if let Some(exited) = self.handle_output(handler, limits, None)? {
                return Ok(exited);
            }
        }
    }

    /// Passes output to `handler` until `source` stops it, or the process ends: then its end is
    /// returned. Output written before the event has been handled.
    ///
    /// # Errors
    /// See [`Self::wait`], or the source failed.
    pub fn wait_for(
        &mut self,
        source: &mut dyn EventSource,
        handler: &mut dyn OutputHandler,
        limits: &Limits,
    ) -> Result<Option<Exited>, Error> {
        self.handle_output(handler, limits, Some(source))
    }

    fn handle_output(
        &mut self,
        handler: &mut dyn OutputHandler,
        limits: &Limits,
        mut source: Option<&mut dyn EventSource>,
    ) -> Result<Option<Exited>, Error> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let ready = self.poll(source.as_deref()).map_err(Error::Output)?;
            let stop = match &mut source {
                Some(source) if ready.source => source.handle(),
                _ => Ok(false),
            };
            let end = ticks();
            self.read_streams(handler, &mut buffer, end)?;
            let complete = !ready.exited && handler.is_complete(self.deadline.elapsed())?;
            if ready.exited || complete {
                self.kill_all();
                let status = self.reap().map_err(Error::Output)?;
                return Ok(Some(Exited {
                    end,
                    status,
                    outlived_guest: complete,
                }));
            }
            if stop? {
                return Ok(None);
            }
            self.deadline.check(limits, || handler.last_output())?;
        }
    }

    /// Waits for output, an event or the end, at most [`POLL_INTERVAL`].
    fn poll(&self, source: Option<&dyn EventSource>) -> io::Result<Ready> {
        let mut descriptors = vec![PollFd::new(&self.started.pidfd, PollFlags::IN)];
        // A stream at its end is always readable.
        let streams = [&self.console, &self.errors, &self.events];
        let open = streams.into_iter().filter(|stream| stream.open);
        descriptors.extend(open.map(|stream| PollFd::new(&stream.file, PollFlags::IN)));
        let source = source.map(EventSource::descriptor);
        descriptors.extend(
            source
                .iter()
                .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)),
        );
        match poll(&mut descriptors, Some(&POLL_INTERVAL)) {
            Ok(_) => Ok(Ready {
                exited: !descriptors[0].revents().is_empty(),
                source: source.is_some()
                    && descriptors
                        .last()
                        .is_some_and(|fd| !fd.revents().is_empty()),
            }),
            Err(rustix::io::Errno::INTR) => Ok(Ready::default()),
            Err(error) => Err(error.into()),
        }
    }

    fn read_streams(
        &mut self,
        handler: &mut dyn OutputHandler,
        buffer: &mut [u8],
        mut at: u64,
    ) -> Result<(), Error> {
        let Self {
            console,
            errors,
            events,
            probe,
            filter,
            ..
        } = self;
        events.read(buffer, &mut |bytes| {
            handler.events(bytes);
            handler.check()
        })?;
        console.read(buffer, &mut |bytes| {
            match filter {
                Some(filter) => {
                    let kept = filter.filter(bytes).map_err(Error::Output)?;
                    handler.console(&kept, at, probe);
                }
                None => handler.console(bytes, at, probe),
            }
            at = ticks();
            handler.check()
        })?;
        errors.read(buffer, &mut |bytes| {
            handler.errors(bytes);
            handler.check()
        })
    }

    /// Kills the process, its group, and all processes that a program of the user's started.
    fn kill_all(&self) {
        self.started.kill_group();
        if let Some(value) = &self.descendants {
            descendants::kill(value);
        }
    }

    fn reap(&mut self) -> io::Result<ExitStatus> {
        let ended = self.started.reap()?;
        self.reaped = true;
        Ok(ExitStatus::from_raw(ended.status))
    }

    /// Sends SIGTERM and waits at most `grace` for the end.
    pub fn terminate(&mut self, grace: Duration) {
        self.started.signal(libc::SIGTERM);
        let grace = Timespec {
            tv_sec: grace.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: grace.subsec_nanos().into(),
        };
        let mut ended = [PollFd::new(&self.started.pidfd, PollFlags::IN)];
        // Dropping the process kills and reaps it in any case.
        let _ = poll(&mut ended, Some(&grace));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill_all();
            // Fails only if there is nothing to reap.
            let _ = self.started.reap();
        }
    }
}

impl Stream {
    /// Adds a pipe as the next descriptor of `program`.
    fn add_to(program: &mut Program) -> io::Result<Self> {
        let (file, theirs) = trapline_spawn::pipe()?;
        rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::NONBLOCK)?;
        program.descriptor(theirs.as_fd())?;
        Ok(Self { file, open: true })
    }

    /// Passes everything that can be read now to `handle`.
    fn read(
        &mut self,
        buffer: &mut [u8],
        handle: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        while self.open {
            match self.file.read(buffer) {
                Ok(0) => self.open = false,
                Ok(length) => handle(&buffer[..length])?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Output(error)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
