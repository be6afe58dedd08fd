//! Load processes.

use super::programs::{LoadCommand, WorkCounter};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{memfd_create, MemfdFlags};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use trapline_abi::{Counter, Decoder, Item, Record};
use trapline_host::usage::family_cpu_ns;
use trapline_host::{Error, Limits};
use trapline_spawn::{Program, Started};

/// A load process. Dropping it ends it.
pub struct Process {
    load: LoadCommand,
    started: Started,
    reaped: bool,
    /// Its standard output, if that counts its work.
    count: File,
    errors: File,
    events: File,
    /// Its work when counting began.
    before: State,
}

/// Work of a load.
#[derive(Clone, Copy, Default)]
struct State {
    cpu_ns: u64,
    /// Its own count, if it can be read while it runs.
    done: u64,
}

/// Work of a load process while a guest was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Name of the load.
    pub name: &'static str,
    /// CPU time, in nanoseconds.
    pub cpu_ns: u64,
    done: u64,
    unit: &'static str,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.cpu_ns / 1_000_000;
        write!(f, "{} {}, {ms} ms of CPU time", self.done, self.unit)
    }
}

/// Longest time until it works.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Time to exit after SIGTERM.
const GRACE: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// Bytes of a guest's output that contain the begin of its operation, or the reason why it does not begin.
const FIRST_OUTPUT: u64 = 4096;

/// CPU time after which the guest of a VMM counts as running, in nanoseconds.
const RUNNING_NS: u64 = 20_000_000;

impl Process {
    /// Starts it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(load: &LoadCommand) -> Result<Self, Error> {
        Self::try_start(load).map_err(Error::start(&load.command.program))
    }

    fn try_start(load: &LoadCommand) -> io::Result<Self> {
        let mut program = Program::new(&load.command.program)?;
        for argument in &load.command.arguments {
            program.argument(argument)?;
        }
        let count = match load.counter {
            WorkCounter::Number | WorkCounter::Output => {
                File::from(memfd_create("count", MemfdFlags::CLOEXEC)?)
            }
            WorkCounter::Events => File::options().write(true).open("/dev/null")?,
        };
        let (errors, errors_end) = stream()?;
        let (events, events_end) = stream()?;
        let input = File::open("/dev/null")?;
        for end in [&input, &count, &errors_end, &events_end] {
            program.descriptor(end.as_fd())?;
        }
        Ok(Self {
            load: load.clone(),
            started: trapline_spawn::start(&program)?,
            reaped: false,
            count,
            errors,
            events,
            before: State::default(),
        })
    }

    /// Waits until it works.
    ///
    /// # Errors
    /// It ended, or does nothing.
    pub fn await_work(&mut self, limits: &Limits) -> Result<(), Error> {
        let since = Instant::now();
        while !self.is_working()? {
            self.check()?;
            limits.check(since.elapsed(), String::new)?;
            if since.elapsed() > START_TIMEOUT {
                return Err(self.failure("does nothing"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn is_working(&self) -> Result<bool, Error> {
        let State { cpu_ns, done } = self.state();
        match self.load.counter {
            WorkCounter::Number => Ok(done > 0),
            WorkCounter::Events => Ok(cpu_ns > RUNNING_NS),
            WorkCounter::Output => self.has_begun(),
        }
    }

    /// Returns whether a guest has begun its operation.
    ///
    /// # Errors
    /// It cannot run the operation, and so neither can the measured guest.
    fn has_begun(&self) -> Result<bool, Error> {
        let length = self.count.metadata().map_or(0, |file| file.len());
        let mut output = vec![0; length.min(FIRST_OUTPUT) as usize];
        let output = match self.count.read_exact_at(&mut output, 0) {
            Ok(()) => output,
            Err(_) => Vec::new(),
        };
        let mut begun = Ok(false);
        Decoder::new().feed(&output, &mut |item: Item<'_>| {
            if let Item::Record(record, _) = item {
                match record {
                    Record::Begin { .. } => begun = Ok(true),
                    Record::Skip { reason, .. } | Record::Fail { reason, .. } => {
                        begun = Err(Error::unavailable(reason.to_owned()));
                    }
                    _ => {}
                }
            }
        });
        begun
    }

    fn state(&self) -> State {
        let done = match self.load.counter {
            WorkCounter::Number => number_in(&self.count),
            WorkCounter::Output => self.count.metadata().ok().map(|file| file.len()),
            WorkCounter::Events => None,
        };
        State {
            cpu_ns: family_cpu_ns(self.started.pid),
            done: done.unwrap_or(0),
        }
    }

    /// Returns its process id.
    pub fn pid(&self) -> i32 {
        self.started.pid
    }

    /// Begins to count its work.
    pub fn begin(&mut self) {
        self.before = self.state();
    }

    /// Ends it and returns its work since [`Self::begin`].
    ///
    /// # Errors
    /// It ended early, or did nothing.
    pub fn end(mut self) -> Result<Done, Error> {
        let done = self.work()?;
        // A load with a long unit of work may not have completed one.
        if done.cpu_ns > 0 {
            Ok(done)
        } else {
            Err(self.failure("did nothing while the guest was measured"))
        }
    }

    /// Returns its work since [`Self::begin`], which may be none.
    ///
    /// # Errors
    /// It ended early.
    pub fn work(&mut self) -> Result<Done, Error> {
        self.check()?;
        let State { cpu_ns, mut done } = self.state();
        if self.load.counter == WorkCounter::Events {
            self.terminate();
            done = self.exits();
        }
        Ok(Done {
            name: self.load.name,
            cpu_ns: cpu_ns.saturating_sub(self.before.cpu_ns),
            done: done.saturating_sub(self.before.done),
            unit: self.load.unit,
        })
    }

    /// Checks that it still runs.
    fn check(&mut self) -> Result<(), Error> {
        if self.has_ended(&Timespec::default()) {
            Err(self.failure("ended early"))
        } else {
            Ok(())
        }
    }

    fn has_ended(&self, timeout: &Timespec) -> bool {
        let mut ended = [PollFd::new(&self.started.pidfd, PollFlags::IN)];
        matches!(poll(&mut ended, Some(timeout)), Ok(1..))
    }

    fn terminate(&self) {
        self.started.signal(libc::SIGTERM);
        self.has_ended(&GRACE);
    }

    /// Returns the number of exits that `trapline-vmm` reports.
    fn exits(&mut self) -> u64 {
        let mut exits = 0;
        let mut take = |item: Item<'_>| {
            if let Item::Record(Record::Count { counter, value }, _) = item {
                if counter == Counter::UserExits {
                    exits = value;
                }
            }
        };
        Decoder::new().feed(&rest_of(&mut self.events), &mut take);
        exits
    }

    fn failure(&mut self, what: &str) -> Error {
        let errors = rest_of(&mut self.errors);
        Error::Load {
            name: self.load.name,
            what: what.to_owned(),
            output: String::from_utf8_lossy(&errors).trim_end().to_owned(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            self.started.kill_group();
            // Fails only if it was reaped already.
            let _ = self.started.reap();
            self.reaped = true;
        }
    }
}

/// Returns a pipe with a non-blocking reader.
fn stream() -> io::Result<(File, File)> {
    let (ours, theirs) = trapline_spawn::pipe()?;
    rustix::fs::fcntl_setfl(&ours, rustix::fs::OFlags::NONBLOCK)?;
    Ok((ours, theirs))
}

fn number_in(file: &File) -> Option<u64> {
    let mut number = [0; 8];
    file.read_exact_at(&mut number, 0).ok()?;
    Some(u64::from_le_bytes(number))
}

/// Returns the bytes that can be read without waiting.
fn rest_of(pipe: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Ends at the end of the stream, or with EAGAIN.
    let _ = pipe.read_to_end(&mut bytes);
    bytes
}
