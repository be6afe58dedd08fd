//! Runs one machine and connects it to the terminal.

use super::events::{Ended, Events};
use super::keys::{KeyCommand, Keys, HELP};
use super::raw::Raw;
use super::request::Request;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use trapline_runner::{Failure, Interrupt};
use trapline_spawn::{pipe, start, Program, Started};

const SIGTERM: i32 = 15;

/// Interval at which cancellation is polled.
const POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// A running machine.
pub struct Session<'a> {
    machine: Started,
    /// The guest's input; `None` after the end of standard input.
    input: Option<File>,
    events: Option<File>,
    api: PathBuf,
    interrupt: &'a Interrupt,
    keys: Option<Keys>,
    is_ending: bool,
    /// Last field: the terminal is restored after everything else is dropped.
    _raw: Option<Raw>,
}

impl<'a> Session<'a> {
    /// Starts the machine.
    ///
    /// # Errors
    /// A process or pipe cannot be created.
    pub fn start(request: &Request, interrupt: &'a Interrupt) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::new(format!("cannot start {}: {error}", request.vmm.display()))
        };
        let (stdin, input) = pipe().map_err(failed)?;
        let (events, events_out) = pipe().map_err(failed)?;
        let program = program(request, stdin.as_fd(), events_out.as_fd());
        let machine = program
            .and_then(|program| start(&program))
            .map_err(failed)?;
        let raw = Raw::enter();
        Ok(Self {
            machine,
            input: Some(input),
            events: Some(events),
            api: request.api.clone(),
            interrupt,
            keys: raw.is_some().then(Keys::default),
            is_ending: false,
            _raw: raw,
        })
    }

    /// Waits until the machine ends.
    ///
    /// # Errors
    /// Waiting fails.
    pub fn run(mut self, events: &mut Events) -> Result<Ended, Failure> {
        let failed = |error| Failure::new(format!("cannot wait for the machine: {error}"));
        events.begin(self.machine.exec);
        while !self.turn(events).map_err(failed)? {}
        while self.read_events(events) {}
        let status = self.machine.reap().map_err(failed)?.status;
        Ok(match (status & 0x7f, self.is_ending) {
            (_, true) => Ended::Requested,
            (0, _) => Ended::Exited(status >> 8 & 0xff),
            (signal, _) => Ended::Killed(signal),
        })
    }

    /// Waits for input, events or the end, and handles them. Returns true after the end.
    fn turn(&mut self, events: &mut Events) -> io::Result<bool> {
        if self.interrupt.is_requested() {
            self.end();
        }
        let stdin = io::stdin();
        // Reads only while the pipe to the guest has room.
        let room = self
            .input
            .as_ref()
            .is_some_and(|input| has_room(input.as_fd()));
        let typing: Option<BorrowedFd<'_>> = room.then(|| stdin.as_fd());
        let all = [
            Some(self.machine.pidfd.as_fd()),
            self.events.as_ref().map(File::as_fd),
            typing,
        ];
        let mut waiting: Vec<PollFd<'_>> = all
            .iter()
            .flatten()
            .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
            .collect();
        match poll(&mut waiting, Some(&POLL_INTERVAL)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = waiting.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(waiting);
        let has_events = self.events.is_some();
        if has_events && ready[1] {
            self.read_events(events);
        }
        if room && ready[1 + usize::from(has_events)] {
            self.read_input()?;
        }
        Ok(ready[0])
    }

    /// Reads events. Returns false at their end.
    fn read_events(&mut self, events: &mut Events) -> bool {
        let Some(file) = &mut self.events else {
            return false;
        };
        let mut bytes = [0; 4096];
        match file.read(&mut bytes) {
            Ok(count) if count > 0 => events.receive(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => self.events = None,
        }
        self.events.is_some()
    }

    fn read_input(&mut self) -> io::Result<()> {
        let mut bytes = [0; 512];
        let count = match io::stdin().read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            read => read.unwrap_or(0),
        };
        if count == 0 {
            self.input = None;
            return Ok(());
        }
        let mut through = Vec::new();
        match &mut self.keys {
            Some(keys) => {
                let commands = keys.read(&bytes[..count], &mut through);
                commands
                    .into_iter()
                    .for_each(|command| self.execute(command));
            }
            None => through.extend(&bytes[..count]),
        }
        if let Some(input) = &mut self.input {
            // The machine may have ended.
            let _ = input.write_all(&through);
        }
        Ok(())
    }

    fn execute(&mut self, command: KeyCommand) {
        match command {
            KeyCommand::End => self.end(),
            KeyCommand::Help => drop(io::stderr().write_all(HELP.as_bytes())),
            KeyCommand::Button => {
                let pressed = UnixStream::connect(&self.api)
                    .and_then(|mut machine| machine.write_all(b"button\n"));
                if let Err(error) = pressed {
                    let line = format!("\r\ntrapline: cannot press the power button: {error}\r\n");
                    let _ = io::stderr().write_all(line.as_bytes());
                }
            }
        }
    }

    /// Ends the machine.
    fn end(&mut self) {
        if !self.is_ending {
            self.is_ending = true;
            self.machine.signal(SIGTERM);
        }
    }
}

/// Returns the command of the VMM. Its console is our standard output, or standard error if that has events.
fn program(
    request: &Request,
    input: BorrowedFd<'_>,
    events: BorrowedFd<'_>,
) -> io::Result<Program> {
    let (out, errors) = (io::stdout(), io::stderr());
    let mut program = Program::new(&request.vmm)?;
    for argument in request.arguments() {
        program.argument(argument)?;
    }
    let console = if request.console_to_errors {
        errors.as_fd()
    } else {
        out.as_fd()
    };
    for descriptor in [input, console, errors.as_fd(), events] {
        program.descriptor(descriptor)?;
    }
    Ok(program)
}

fn has_room(pipe: BorrowedFd<'_>) -> bool {
    let mut waiting = [PollFd::from_borrowed_fd(pipe, PollFlags::OUT)];
    let now = Timespec::default();
    poll(&mut waiting, Some(&now)).is_ok() && waiting[0].revents() == PollFlags::OUT
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.machine.signal(9);
    }
}
