//! One process of a load.

use super::crew::{Task, Telling};
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

/// A process that works beside a guest. Dropping it ends it.
pub struct Process {
    task: Task,
    started: Started,
    reaped: bool,
    /// Its standard output, where that is its count.
    count: File,
    errors: File,
    events: File,
    /// When what it does began to count.
    before: State,
}

/// How far it has come.
#[derive(Clone, Copy, Default)]
struct State {
    cpu_ns: u64,
    /// What it counts itself, where that can be seen while it runs.
    done: u64,
}

/// What one process of a load did while a guest was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The load's name.
    pub name: &'static str,
    cpu_ns: u64,
    done: u64,
    unit: &'static str,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.cpu_ns / 1_000_000;
        write!(f, "{} {}, {ms} ms of CPU time", self.done, self.unit)
    }
}

/// How long it may take until it works.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long it may take to end when it is asked to.
const GRACE: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// In so many bytes a guest has said that it begins, or why it does not.
const FIRST_WORDS: u64 = 4096;

/// CPU time by which a machine shows that its guest runs, in nanoseconds.
const AT_WORK_NS: u64 = 20_000_000;

impl Process {
    /// Starts it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(task: &Task) -> Result<Self, Error> {
        Self::try_start(task).map_err(|source| Error::Start {
            program: task.command.program.clone(),
            source,
        })
    }

    fn try_start(task: &Task) -> io::Result<Self> {
        let mut program = Program::new(&task.command.program)?;
        for argument in &task.command.arguments {
            program.argument(argument)?;
        }
        let count = match task.telling {
            Telling::Count | Telling::Output => {
                File::from(memfd_create("count", MemfdFlags::CLOEXEC)?)
            }
            Telling::Events => File::options().write(true).open("/dev/null")?,
        };
        let (errors, errors_end) = stream()?;
        let (events, events_end) = stream()?;
        let input = File::open("/dev/null")?;
        for end in [&input, &count, &errors_end, &events_end] {
            program.descriptor(end.as_fd())?;
        }
        Ok(Self {
            task: task.clone(),
            started: trapline_spawn::start(&program)?,
            reaped: false,
            count,
            errors,
            events,
            before: State::default(),
        })
    }

    /// Waits until it has done something.
    ///
    /// # Errors
    /// It has ended, or does nothing.
    pub fn await_work(&mut self, limits: &Limits) -> Result<(), Error> {
        let since = Instant::now();
        while !self.is_at_work()? {
            self.check()?;
            limits.check(since, String::new)?;
            if since.elapsed() > PATIENCE {
                return Err(self.failure("has done nothing"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn is_at_work(&self) -> Result<bool, Error> {
        let State { cpu_ns, done } = self.state();
        match self.task.telling {
            Telling::Count => Ok(done > 0),
            Telling::Events => Ok(cpu_ns > AT_WORK_NS),
            Telling::Output => self.has_begun(),
        }
    }

    /// Whether a guest has begun with what it is to do. If it cannot do that, nor can the
    /// one beside which it was to run.
    fn has_begun(&self) -> Result<bool, Error> {
        let length = self.count.metadata().map_or(0, |file| file.len());
        let mut said = vec![0; length.min(FIRST_WORDS) as usize];
        let said = match self.count.read_exact_at(&mut said, 0) {
            Ok(()) => said,
            Err(_) => Vec::new(),
        };
        let mut begun = Ok(false);
        Decoder::new().feed(&said, &mut |item: Item<'_>| {
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
        let done = match self.task.telling {
            Telling::Count => number_in(&self.count),
            Telling::Output => self.count.metadata().ok().map(|file| file.len()),
            Telling::Events => None,
        };
        State {
            cpu_ns: family_cpu_ns(self.started.pid),
            done: done.unwrap_or(0),
        }
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.started.pid
    }

    /// From here on it counts.
    pub fn begin(&mut self) {
        self.before = self.state();
    }

    /// Ends it; what it did since it began to count.
    ///
    /// # Errors
    /// It has ended by itself, or did nothing.
    pub fn end(mut self) -> Result<Done, Error> {
        self.check()?;
        let State { cpu_ns, mut done } = self.state();
        if self.task.telling == Telling::Events {
            self.ask_to_end();
            done = self.exits();
        }
        let done = Done {
            name: self.task.name,
            cpu_ns: cpu_ns.saturating_sub(self.before.cpu_ns),
            done: done.saturating_sub(self.before.done),
            unit: self.task.unit,
        };
        // What takes long may have been at it all the time and not have ended once.
        match done.cpu_ns > 0 {
            true => Ok(done),
            false => Err(self.failure("did nothing while the guest was measured")),
        }
    }

    /// Whether it still runs.
    fn check(&mut self) -> Result<(), Error> {
        match self.has_ended(&Timespec::default()) {
            false => Ok(()),
            true => Err(self.failure("has ended by itself")),
        }
    }

    fn has_ended(&self, patience: &Timespec) -> bool {
        let mut ended = [PollFd::new(&self.started.pidfd, PollFlags::IN)];
        matches!(poll(&mut ended, Some(patience)), Ok(1..))
    }

    fn ask_to_end(&self) {
        self.started.signal(libc::SIGTERM);
        self.has_ended(&GRACE);
    }

    /// What a VMM of ours says of its guest's exits.
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
        let words = rest_of(&mut self.errors);
        Error::Load {
            name: self.task.name,
            what: what.to_owned(),
            output: String::from_utf8_lossy(&words).trim_end().to_owned(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            self.started.kill_group();
            // Fails only if there is nothing to reap.
            let _ = self.started.reap();
            self.reaped = true;
        }
    }
}

/// A pipe whose reader never waits.
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

/// What can be read now.
fn rest_of(pipe: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    // It ends with the writer's end, or with the word that there is no more yet.
    let _more_later = pipe.read_to_end(&mut bytes);
    bytes
}
