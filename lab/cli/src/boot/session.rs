//! One machine from its start to its end, and what passes between it and the terminal.

use super::events::Events;
use super::keys::{Keys, Wish, HELP};
use super::raw::Raw;
use super::request::Request;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use trapline_spawn::{pipe, start, Program, Started};

const SIGTERM: i32 = 15;

/// How often is looked whether somebody asked for an end.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// How a machine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// As it was told to from here.
    Told,
}

/// A machine that runs.
pub struct Session<'a> {
    machine: Started,
    /// What the guest hears; gone when nothing more will be typed.
    input: Option<File>,
    events: Option<File>,
    api: PathBuf,
    interrupt: &'a Interrupt,
    keys: Option<Keys>,
    told: bool,
    /// Last, so that the terminal is as before when all else is done.
    _raw: Option<Raw>,
}

impl<'a> Session<'a> {
    /// Starts the machine.
    ///
    /// # Errors
    /// There can be no further process.
    pub fn start(request: &Request, interrupt: &'a Interrupt) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::new(format!("cannot start {}: {error}", request.vmm.display()))
        };
        let (heard, input) = pipe().map_err(failed)?;
        let (events, told) = pipe().map_err(failed)?;
        let program = program(request, heard.as_fd(), told.as_fd());
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
            told: false,
            _raw: raw,
        })
    }

    /// Stays until it ends.
    ///
    /// # Errors
    /// The terminal or the machine cannot be waited for.
    pub fn run(mut self, events: &mut Events) -> Result<Ended, Failure> {
        let failed = |error| Failure::new(format!("cannot wait for the machine: {error}"));
        events.begin(self.machine.exec);
        while !self.turn(events).map_err(failed)? {}
        while self.listen(events) {}
        let status = self.machine.reap().map_err(failed)?.status;
        Ok(match (status & 0x7f, self.told) {
            (_, true) => Ended::Told,
            (0, _) => Ended::Exited(status >> 8 & 0xff),
            (signal, _) => Ended::Killed(signal),
        })
    }

    /// Waits for something, and does what it asks for. True when the machine has ended.
    fn turn(&mut self, events: &mut Events) -> io::Result<bool> {
        if self.interrupt.is_asked() {
            self.end();
        }
        let stdin = io::stdin();
        // Only what the guest has room for is read.
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
        match poll(&mut waiting, Some(&LOOK)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = waiting.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(waiting);
        let has_events = self.events.is_some();
        if has_events && ready[1] {
            self.listen(events);
        }
        if room && ready[1 + usize::from(has_events)] {
            self.hear()?;
        }
        Ok(ready[0])
    }

    /// Tells what the machine says of itself. False when it has said all.
    fn listen(&mut self, events: &mut Events) -> bool {
        let Some(file) = &mut self.events else {
            return false;
        };
        let mut bytes = [0; 4096];
        match file.read(&mut bytes) {
            Ok(count) if count > 0 => events.hear(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => self.events = None,
        }
        self.events.is_some()
    }

    fn hear(&mut self) -> io::Result<()> {
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
                let wishes = keys.read(&bytes[..count], &mut through);
                wishes.into_iter().for_each(|wish| self.grant(wish));
            }
            None => through.extend(&bytes[..count]),
        }
        if let Some(input) = &mut self.input {
            // A machine that has ended hears nothing.
            let _ = input.write_all(&through);
        }
        Ok(())
    }

    fn grant(&mut self, wish: Wish) {
        match wish {
            Wish::End => self.end(),
            Wish::Help => drop(io::stderr().write_all(HELP.as_bytes())),
            Wish::Button => {
                let pressed = UnixStream::connect(&self.api)
                    .and_then(|mut machine| machine.write_all(b"button\n"));
                if let Err(error) = pressed {
                    eprint!("\r\ntrapline: the button cannot be pressed: {error}\r\n");
                }
            }
        }
    }

    /// Has the machine end, which it does at once.
    fn end(&mut self) {
        if !self.told {
            self.told = true;
            self.machine.signal(SIGTERM);
        }
    }
}

/// The VMM, whose console is our standard output, or standard error where that is for events.
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
    let console = match request.console_to_errors {
        true => errors.as_fd(),
        false => out.as_fd(),
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
