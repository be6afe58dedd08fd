//! One process that runs a guest: started, heard to its end, watched from
//! outside, and never left behind.
//!
//! The process leads a group of its own and is killed by the kernel when the
//! thread that started it dies (see `trapline_spawn`); dropping a [`Running`]
//! kills and reaps it, with all that is in its group. So neither an error, nor a
//! panic, nor `kill -9` of the lab leaves an orphan; only what a VMM of the user's
//! has itself started may outlive the last of these.

mod guard;

use crate::environment::Watch;
use crate::error::EnvError;
use crate::plugin::{escaped, Plugin};
use crate::trace::{Sieve, Trace};
use crate::transcript::{Seen, Witness};
use crate::witness::ProcessWitness;
use guard::Guard;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trapline_spawn::{ticks, Program, Started};

/// A program and its arguments.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program's file.
    pub program: PathBuf,
    /// Its arguments, without its own name.
    pub arguments: Vec<OsString>,
    /// What stands in its environment beside its search path.
    environment: Vec<(&'static str, OsString)>,
    /// Files it gets as descriptors, from [`FIRST_FILE`].
    files: Vec<Arc<File>>,
    /// Whether its standard input is a terminal.
    terminal: bool,
    /// Who is told what it traces.
    trace: Option<Trace>,
    /// The program that guards its group.
    guard: Option<PathBuf>,
}

/// Descriptors below are the three standard ones and that for events.
const FIRST_FILE: usize = 4;

impl Command {
    /// A program without arguments yet.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            files: Vec::new(),
            terminal: false,
            trace: None,
            guard: None,
        }
    }

    /// Lets `agent` see to it that nothing of the program's group outlives us: it starts
    /// processes of its own, which the kernel does not kill with us.
    pub fn guarded_by(mut self, agent: impl Into<PathBuf>) -> Self {
        self.guard = Some(agent.into());
        self
    }

    /// Appends the path by which the program will find `file`, which needs no name
    /// of its own and so is gone when nobody uses it any more.
    pub fn file(mut self, file: Arc<File>) -> Self {
        let number = self.give(file);
        self.arg(format!("/proc/self/fd/{number}"))
    }

    /// Gives the program `file`; the number of the descriptor that it gets.
    pub fn give(&mut self, file: Arc<File>) -> usize {
        self.files.push(file);
        FIRST_FILE + self.files.len() - 1
    }

    /// Lets a QEMU that counts instructions be started with [`Part::Steady`], which finds
    /// the thread of its CPU by its name. It comes as a descriptor: the loader takes
    /// neither a space nor a colon in a path.
    ///
    /// [`Part::Steady`]: crate::parts::Part::Steady
    pub fn steadied_by(mut self, library: Arc<File>) -> Self {
        let number = self.give(library);
        let path = format!("/proc/self/fd/{number}");
        self.environment.push(("LD_PRELOAD", path.into()));
        self.words("-name debug-threads=on")
    }

    /// Lets a QEMU load `plugin`, if there is one.
    pub fn watched_by(mut self, plugin: Option<&Plugin>) -> Self {
        let Some(Plugin {
            library,
            output,
            words,
        }) = plugin
        else {
            return self;
        };
        let number = self.give(Arc::clone(output));
        let mut told = format!("{},out=/proc/self/fd/{number}", escaped(library));
        for word in words {
            told.push(',');
            told.push_str(word);
        }
        self.arg("-plugin").arg(told)
    }

    /// Lets standard input be a terminal on which nobody types.
    pub fn with_terminal(mut self) -> Self {
        self.terminal = true;
        self
    }

    /// What it traces on its standard output goes to `trace`, all else is heard.
    pub fn traced_by(mut self, trace: Option<Trace>) -> Self {
        self.trace = trace;
        self
    }

    /// Appends an argument.
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Appends the words of `text`, separated by spaces.
    pub fn words(mut self, text: &str) -> Self {
        self.arguments
            .extend(text.split_ascii_whitespace().map(OsString::from));
        self
    }

    /// The program's name without its directory.
    pub fn name(&self) -> String {
        let name = self.program.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// Who takes what a process writes.
pub trait Ear {
    /// Its standard output, heard at `at` ticks.
    fn console(&mut self, bytes: &[u8], at: u64, witness: &mut dyn Witness);
    /// Its standard error.
    fn errors(&mut self, bytes: &[u8]);
    /// Its descriptor 3.
    fn events(&mut self, bytes: &[u8]);
    /// Called after each piece.
    ///
    /// # Errors
    /// What was heard is reason to stop.
    fn consider(&mut self) -> Result<(), EnvError>;
    /// Called now and then, when the process has run for so long: whether there is
    /// nothing more to hear of it, and it is to be killed.
    ///
    /// # Errors
    /// It is not to be heard any longer, and that is no good end.
    fn enough(&mut self, _: Duration) -> Result<bool, EnvError> {
        Ok(false)
    }
    /// The last that was heard.
    fn last_words(&self) -> String;
}

/// Something besides the process that news may come from.
pub trait Bystander {
    /// Readable when there is news.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// There is; whether the process is to be heard no further.
    ///
    /// # Errors
    /// The news is bad.
    fn consider(&mut self) -> Result<bool, EnvError>;
}

/// A process that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Over {
    /// The TSC when its end was noticed, in ticks.
    pub end: u64,
    /// How it ended.
    pub status: ExitStatus,
    /// Whether it was killed because there was nothing more to hear of it.
    pub outstayed: bool,
}

/// A process of ours that is not reaped yet.
pub struct Running {
    started: Started,
    reaped: bool,
    since: Instant,
    console: Stream,
    errors: Stream,
    events: Stream,
    /// Our end of its terminal; when that is closed the terminal hangs up.
    _terminal: Option<File>,
    witness: ProcessWitness,
    sieve: Option<Sieve>,
    /// Ended after all that it guards.
    _guard: Option<Guard>,
}

/// What there is to be looked at besides streams.
#[derive(Default)]
struct News {
    ended: bool,
    beside: bool,
}

/// One of its streams.
struct Stream {
    file: File,
    open: bool,
}

/// Bytes that are read at once.
const PIECE: usize = 16 << 10;

/// How often is looked whether somebody wants everything to stop.
const GLANCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

impl Running {
    /// Starts `command`. Standard input is empty, and descriptor 3 is for events.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &Command) -> Result<Self, EnvError> {
        Self::try_start(command).map_err(|source| EnvError::Start {
            program: command.program.clone(),
            source,
        })
    }

    fn try_start(command: &Command) -> io::Result<Self> {
        let mut program = Program::new(&command.program)?;
        for argument in &command.arguments {
            program.argument(argument)?;
        }
        for (name, value) in &command.environment {
            program.environment(name, value)?;
        }
        let (terminal, input) = match command.terminal {
            true => trapline_spawn::terminal().map(|(ours, theirs)| (Some(ours), theirs))?,
            false => (None, File::open("/dev/null")?),
        };
        program.descriptor(input.as_fd())?;
        let console = Stream::to(&mut program)?;
        let errors = Stream::to(&mut program)?;
        let events = Stream::to(&mut program)?;
        for file in &command.files {
            program.descriptor(file.as_fd())?;
        }
        let started = trapline_spawn::start(&program)?;
        let mut running = Self {
            witness: ProcessWitness::of(started.pid),
            started,
            reaped: false,
            since: Instant::now(),
            console,
            errors,
            events,
            _terminal: terminal,
            sieve: command.trace.clone().map(Sieve::of),
            _guard: None,
        };
        if let Some(agent) = &command.guard {
            running._guard = Some(Guard::start(agent, running.started.pid)?);
            running.witness.count_children();
        }
        Ok(running)
    }

    /// What was seen of it from outside.
    pub fn witness(&self) -> &ProcessWitness {
        &self.witness
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.started.pid
    }

    /// The TSC right before its exec, in ticks.
    pub fn exec(&self) -> u64 {
        self.started.exec
    }

    /// Lets `ear` hear the process until it has ended.
    ///
    /// # Errors
    /// It did not end in time, the ear objects, or nothing can be heard. The
    /// process may still run then; dropping it ends it.
    pub fn hear(&mut self, ear: &mut dyn Ear, watch: &Watch) -> Result<Over, EnvError> {
        loop {
            if let Some(over) = self.listen(ear, watch, None)? {
                return Ok(over);
            }
        }
    }

    /// Lets `ear` hear the process until `bystander` has heard enough; how the
    /// process ended, if that came first. All that it wrote before has been heard.
    ///
    /// # Errors
    /// As [`Self::hear`], or the bystander objects.
    pub fn hear_until(
        &mut self,
        bystander: &mut dyn Bystander,
        ear: &mut dyn Ear,
        watch: &Watch,
    ) -> Result<Option<Over>, EnvError> {
        self.listen(ear, watch, Some(bystander))
    }

    fn listen(
        &mut self,
        ear: &mut dyn Ear,
        watch: &Watch,
        mut bystander: Option<&mut dyn Bystander>,
    ) -> Result<Option<Over>, EnvError> {
        let mut piece = vec![0; PIECE];
        loop {
            let news = self
                .wait_for_news(bystander.as_deref())
                .map_err(EnvError::Deaf)?;
            let enough = match &mut bystander {
                Some(bystander) if news.beside => bystander.consider(),
                _ => Ok(false),
            };
            let end = ticks();
            self.read_all(ear, &mut piece, end)?;
            let outstayed = !news.ended && ear.enough(self.since.elapsed())?;
            if news.ended || outstayed {
                self.started.kill_group();
                let status = self.reap().map_err(EnvError::Deaf)?;
                return Ok(Some(Over {
                    end,
                    status,
                    outstayed,
                }));
            }
            if enough? {
                return Ok(None);
            }
            watch.check(self.since, || ear.last_words())?;
        }
    }

    /// Sleeps until there is something to hear. What the process wrote before its
    /// end can still be read.
    fn wait_for_news(&self, bystander: Option<&dyn Bystander>) -> io::Result<News> {
        let mut descriptors = vec![PollFd::new(&self.started.pidfd, PollFlags::IN)];
        // A stream at its end would be news for ever.
        let streams = [&self.console, &self.errors, &self.events];
        let open = streams.into_iter().filter(|stream| stream.open);
        descriptors.extend(open.map(|stream| PollFd::new(&stream.file, PollFlags::IN)));
        let beside = bystander.map(Bystander::descriptor);
        descriptors.extend(
            beside
                .iter()
                .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)),
        );
        match poll(&mut descriptors, Some(&GLANCE)) {
            Ok(_) => Ok(News {
                ended: !descriptors[0].revents().is_empty(),
                beside: beside.is_some()
                    && descriptors
                        .last()
                        .is_some_and(|fd| !fd.revents().is_empty()),
            }),
            Err(rustix::io::Errno::INTR) => Ok(News::default()),
            Err(error) => Err(error.into()),
        }
    }

    fn read_all(&mut self, ear: &mut dyn Ear, piece: &mut [u8], at: u64) -> Result<(), EnvError> {
        let Self {
            console,
            errors,
            events,
            witness,
            sieve,
            ..
        } = self;
        events.read(piece, &mut |bytes| {
            ear.events(bytes);
            ear.consider()
        })?;
        let mut at = at;
        console.read(piece, &mut |bytes| {
            match sieve {
                Some(sieve) => {
                    ear.console(&sieve.sift(bytes).map_err(EnvError::Deaf)?, at, witness)
                }
                None => ear.console(bytes, at, witness),
            }
            at = ticks();
            ear.consider()
        })?;
        errors.read(piece, &mut |bytes| {
            ear.errors(bytes);
            ear.consider()
        })
    }

    fn reap(&mut self) -> io::Result<ExitStatus> {
        let ended = self.started.reap()?;
        self.reaped = true;
        Ok(ExitStatus::from_raw(ended.status))
    }

    /// Asks the process to end, and waits for `grace` at most.
    pub fn ask_to_end(&mut self, grace: Duration) {
        self.started.signal(libc::SIGTERM);
        let patience = Timespec {
            tv_sec: grace.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: grace.subsec_nanos().into(),
        };
        // Whatever comes of it: dropping kills and reaps.
        let mut ended = [PollFd::new(&self.started.pidfd, PollFlags::IN)];
        let _ = poll(&mut ended, Some(&patience));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            self.started.kill_group();
            // Fails only if there is nothing to reap.
            let _ = self.started.reap();
        }
    }
}

impl Stream {
    /// A pipe whose other end is the next descriptor of `program`.
    fn to(program: &mut Program) -> io::Result<Self> {
        let (file, theirs) = trapline_spawn::pipe()?;
        rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::NONBLOCK)?;
        program.descriptor(theirs.as_fd())?;
        Ok(Self { file, open: true })
    }

    /// Hands all that can be read now to `take`.
    fn read(
        &mut self,
        piece: &mut [u8],
        take: &mut dyn FnMut(&[u8]) -> Result<(), EnvError>,
    ) -> Result<(), EnvError> {
        while self.open {
            match self.file.read(piece) {
                Ok(0) => self.open = false,
                Ok(length) => take(&piece[..length])?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(EnvError::Deaf(error)),
            }
        }
        Ok(())
    }
}

impl Witness for ProcessWitness {
    fn look(&mut self) -> Seen {
        self.glance()
    }
}

#[cfg(test)]
mod tests;
