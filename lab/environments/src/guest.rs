//! A guest that is a process of this host, or several in turn: the agent, a VMM
//! of ours, or QEMU. What differs between them is a [`Recipe`].

use crate::custom::{Foreign, FIRST_WORD, GRACE};
use crate::environment::{Facts, Guest, Progress, SampleSink, Watch, Work};
use crate::error::EnvError;
use crate::loads::{neighbourly, Beside, Crew};
use crate::observe::{Finished, Offset};
use crate::placement::{Placement, Threads};
use crate::process::{Command, Ear, Over, Running};
use crate::transcript::{Blind, Ending, Seen, Transcript, Witness};
use crate::tsc::Rate;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};
use trapline_abi::platform::{EXIT_STATUS_DONE, EXIT_STATUS_PANIC};
use trapline_abi::{Job, Op};
use trapline_model::{Conditions, PerCpu};

/// How an environment runs a job.
pub trait Recipe {
    /// The process that runs `job`.
    ///
    /// # Errors
    /// Something that it is given cannot be made.
    fn command(&self, job: &Job) -> Result<Command, EnvError>;

    /// What its exit statuses mean.
    fn statuses(&self) -> Statuses;

    /// The clock by which its guest's boot is told.
    fn clock(&self) -> BootClock;

    /// The threads of its process for `job`; `None` where nobody knows which is which.
    fn threads(&self, _: &Job) -> Option<Threads> {
        None
    }

    /// The same command, by which its threads have names, if that has to be asked for.
    fn with_named_threads(&self, command: Command) -> Command {
        command
    }

    /// What is known of its guests besides what their environment is made of.
    fn facts(&self) -> Facts {
        Facts::new()
    }

    /// The VMM, if it is one that knows nothing of Trapline.
    fn foreign(&self) -> Option<&Foreign> {
        None
    }
}

/// Whose clock the stages of a guest are told by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootClock {
    /// The guest reads the very clock by which we start it.
    Ours,
    /// The guest has a clock of its own, which the VMM, the kernel or the arrival
    /// of its words relates to ours.
    Guests,
    /// There is nothing but the guest's clock, which starts with the machine.
    Machine,
}

/// What exit statuses mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statuses {
    /// All went well.
    pub done: i32,
    /// The guest panicked.
    pub panicked: Option<i32>,
    /// The guest reset its CPU.
    pub reset: Option<i32>,
}

impl Statuses {
    /// Those of the agent.
    pub const AGENT: Self = Self {
        done: 0,
        panicked: None,
        reset: None,
    };
    /// Those of `trapline-vmm`.
    pub const VMM: Self = Self {
        done: 0,
        panicked: Some(35),
        reset: Some(36),
    };
    /// Those of QEMU with an `isa-debug-exit` and `-no-reboot`.
    pub const QEMU: Self = Self {
        done: EXIT_STATUS_DONE,
        panicked: Some(EXIT_STATUS_PANIC),
        reset: Some(0),
    };
}

/// Whether a guest ended well, from all that is known about its end.
///
/// # Errors
/// It did not.
pub fn judge(
    program: &str,
    status: std::process::ExitStatus,
    statuses: Statuses,
    heard: &Transcript,
) -> Result<(), EnvError> {
    let words = heard.last_words();
    let program = program.to_owned();
    if let Ending::Panicked(message) = heard.ending() {
        let message = message.clone();
        return Err(EnvError::Panicked { message });
    }
    let Some(status) = status.code() else {
        let signal = status.signal().unwrap_or_default();
        return Err(EnvError::Killed {
            program,
            signal,
            words,
        });
    };
    match heard.ending() {
        Ending::Done if status == statuses.done => Ok(()),
        _ if status == statuses.done => Err(EnvError::Silent { words }),
        _ if Some(status) == statuses.reset => Err(EnvError::Reset { words }),
        _ if Some(status) == statuses.panicked => Err(EnvError::Panicked { message: words }),
        _ => Err(EnvError::Failed {
            program,
            status,
            words,
        }),
    }
}

/// A guest that is a sequence of processes.
pub struct ProcessGuest<R> {
    recipe: R,
    jobs: Vec<Job>,
    running: Option<Running>,
    /// Who carries loads out, where there can be any.
    crew: Option<Crew>,
    /// Dropped before what it runs on is given back.
    beside: Beside,
    placement: Option<Placement>,
}

impl<R: Recipe> ProcessGuest<R> {
    /// A guest made by `recipe`.
    pub fn new(recipe: R) -> Self {
        Self {
            recipe,
            jobs: Vec::new(),
            running: None,
            crew: None,
            beside: Beside::default(),
            placement: None,
        }
    }

    /// The same on a host where it may be disturbed and placed.
    pub fn beside(self, crew: Crew) -> Self {
        Self {
            crew: Some(crew),
            ..self
        }
    }

    fn start(&self, job: &Job) -> Result<Running, EnvError> {
        let command = self.recipe.command(job)?;
        let Some(placement) = &self.placement else {
            return Running::start(&command);
        };
        if !placement.needs_thread() {
            return placement.start_guest(|| Running::start(&command));
        }
        let threads = self.recipe.threads(job);
        let threads = threads.ok_or_else(|| EnvError::Missing(NO_THREAD.to_owned()))?;
        let command = self.recipe.with_named_threads(command);
        let running = placement.start_guest(|| Running::start(&command))?;
        placement.put(running.pid(), threads)?;
        Ok(running)
    }

    /// Chooses where everybody runs, and starts what disturbs.
    fn prepare(&mut self, conditions: &Conditions, watch: &Watch) -> Result<(), EnvError> {
        let Conditions {
            loads, pin, sched, ..
        } = conditions;
        let from_outside = Conditions {
            loads: loads.beside().collect(),
            ..conditions.clone()
        };
        if from_outside.are_plain() {
            return Ok(());
        }
        let crew = self.crew.as_ref();
        let crew = crew.ok_or_else(|| EnvError::Missing(NOBODY_ELSE.to_owned()))?;
        let placement = Placement::choose(*pin, *sched)?;
        placement.step_aside();
        self.beside = Beside::start(loads, crew, &placement, watch)?;
        if conditions.per_cpu == PerCpu::Two {
            self.add_neighbour(&placement, watch)?;
        }
        self.placement = Some(placement);
        Ok(())
    }

    /// Starts a second guest of the same kind, whose virtual CPU is where the measured
    /// one's will be.
    fn add_neighbour(&mut self, placement: &Placement, watch: &Watch) -> Result<(), EnvError> {
        let Some(job) = self.jobs.first() else {
            return Ok(());
        };
        let job = endless(job, watch.patience);
        let threads = self.recipe.threads(&job);
        let threads = threads.ok_or_else(|| EnvError::Missing(NO_THREAD.to_owned()))?;
        let command = self.recipe.with_named_threads(self.recipe.command(&job)?);
        self.beside.join(command, threads, placement, watch)
    }

    /// Hears one launch to its end and hands it on, however it ends.
    fn hear(
        &self,
        mut running: Running,
        job: &Job,
        watch: &Watch,
        out: &mut dyn SampleSink,
    ) -> Result<(), EnvError> {
        let foreign = self.recipe.foreign();
        let mut ear = TranscriptEar::new(job, self.recipe.clock(), foreign, out);
        let heard = running.hear(&mut ear, watch);
        let mut transcript = ear.transcript;
        transcript.close();
        let judged = heard.and_then(|over| {
            self.judge(job, over.status, &transcript)?;
            Ok(over)
        });
        let unreached = judged.as_ref().err().map(EnvError::to_string);
        let account = transcript.finish(&unreached.unwrap_or_else(not_told));
        let over = judged.as_ref().ok();
        out.finished(self.finished(account, &running, over));
        judged.map(|_| ())
    }

    fn judge(
        &self,
        job: &Job,
        status: std::process::ExitStatus,
        heard: &Transcript,
    ) -> Result<(), EnvError> {
        if let Some(foreign) = self.recipe.foreign() {
            return foreign.judge(job, status, heard);
        }
        let name = self.recipe.command(job)?.name();
        judge(&name, status, self.recipe.statuses(), heard)
    }

    fn finished(
        &self,
        account: crate::transcript::Account,
        running: &Running,
        over: Option<&Over>,
    ) -> Finished {
        let outstayed = over.is_some_and(|over| over.outstayed);
        let end = over.filter(|_| !outstayed).map(|over| over.end);
        let known = running.witness().tsc_offset.map(Offset::Known);
        let (exec, reaped, offset) = match self.recipe.clock() {
            BootClock::Machine => (0, None, Offset::Same),
            BootClock::Ours => (running.exec(), end, Offset::Same),
            BootClock::Guests => (running.exec(), end, known.unwrap_or(Offset::Heard)),
        };
        Finished {
            account,
            exec,
            reaped,
            offset,
            // A process's own memory is also what its workloads work on, and in a VMM
            // that we do not know it may be the guest's.
            own_memory: match (self.recipe.clock(), self.recipe.foreign()) {
                (BootClock::Guests, None) => running.witness().own_memory,
                _ => None,
            },
            outstayed,
        }
    }
}

/// The job of a second guest, which takes longer than the first may be heard.
fn endless(job: &Job, patience: Duration) -> Job {
    let period = job.period as f64 * Rate::of_this_host().ns_per_tick();
    neighbourly(
        job,
        (2.0 * patience.as_nanos() as f64 / period.max(1.0)) as u32,
    )
}

/// Why conditions cannot be kept on a bare machine.
const NOBODY_ELSE: &str = "a machine that runs the image alone has nobody else to run, and no \
                           threads to be placed: leave --load and --pin out";

/// Why a thread cannot be placed.
const NO_THREAD: &str = "nobody knows which thread of a VMM given with --vmm, or of one with a \
                         Linux, runs the virtual CPU that is measured: leave --pin exclusive out";

/// The reason for an operation that a guest passed over without a word.
pub fn not_told() -> String {
    "the guest did not tell what came of it".to_owned()
}

impl<R: Recipe> Guest for ProcessGuest<R> {
    fn ready(&mut self, work: &Work, watch: &Watch) -> Result<(), EnvError> {
        self.jobs = work.jobs();
        self.prepare(&work.conditions, watch)
    }

    fn go(&mut self, _: &Watch) -> Result<(), EnvError> {
        self.beside.begin();
        if let Some(job) = self.jobs.first() {
            self.running = Some(self.start(job)?);
        }
        Ok(())
    }

    fn collect(&mut self, watch: &Watch, out: &mut dyn SampleSink) -> Result<(), EnvError> {
        let of = self.jobs.len();
        for (name, value) in self.recipe.facts() {
            out.fact(&name, value);
        }
        if let Some(placement) = &self.placement {
            out.fact("placement", placement.describe());
        }
        for number in 0..of {
            let job = self.jobs[number];
            let running = match self.running.take() {
                Some(running) => running,
                None => self.start(&job)?,
            };
            out.progress(Progress::Launch { number, of });
            self.hear(running, &job, watch, out)?;
            if number == 0 {
                // Further launches are not measured under conditions.
                std::mem::take(&mut self.beside).end(out)?;
                self.placement = None;
            }
        }
        Ok(())
    }

    fn stop(mut self: Box<Self>, grace: Duration) {
        if let Some(running) = &mut self.running {
            running.ask_to_end(grace);
        }
    }
}

/// Puts what a process writes into a [`Transcript`].
struct TranscriptEar<'a> {
    transcript: Transcript,
    arrivals_matter: bool,
    doing: Option<Op>,
    foreign: Option<&'a Foreign>,
    job: Job,
    /// When the guest's last record was heard.
    last_heard: Option<Instant>,
    out: &'a mut dyn SampleSink,
}

impl<'a> TranscriptEar<'a> {
    fn new(
        job: &Job,
        clock: BootClock,
        foreign: Option<&'a Foreign>,
        out: &'a mut dyn SampleSink,
    ) -> Self {
        let listen = match foreign {
            Some(_) => Transcript::to_the_last_record,
            None => Transcript::new,
        };
        let transcript = listen(job);
        Self {
            transcript: match clock {
                BootClock::Guests => transcript,
                BootClock::Ours | BootClock::Machine => transcript.on_one_clock(),
            },
            // On a machine with a clock of its own, ours says nothing about the guest.
            arrivals_matter: clock != BootClock::Machine,
            doing: None,
            foreign,
            job: *job,
            last_heard: None,
            out,
        }
    }

    fn foreign_console(&mut self, bytes: &[u8], at: u64, witness: &mut dyn Witness) {
        let mut witness = WithoutExits(witness);
        self.transcript.console(bytes, Some(at), &mut witness);
        self.note_last_record();
    }

    fn note_last_record(&mut self) {
        if *self.transcript.ending() != Ending::Cut {
            self.last_heard.get_or_insert_with(Instant::now);
        }
    }
}

/// How many exits a serial port takes for what is said on it nobody can tell, so
/// they cannot be taken off.
struct WithoutExits<'a>(&'a mut dyn Witness);

impl Witness for WithoutExits<'_> {
    fn look(&mut self) -> Seen {
        Seen {
            exits: None,
            ..self.0.look()
        }
    }
}

impl Ear for TranscriptEar<'_> {
    fn console(&mut self, bytes: &[u8], at: u64, witness: &mut dyn Witness) {
        if self.foreign.is_some() {
            self.foreign_console(bytes, at, witness);
        } else if self.arrivals_matter {
            self.transcript.console(bytes, Some(at), witness);
        } else {
            self.transcript.console(bytes, None, &mut Blind);
        }
        if let Some(op) = self.transcript.doing() {
            if self.doing.replace(op) != Some(op) {
                self.out.progress(Progress::Operation(op));
            }
        }
        for window in self.transcript.take_windows() {
            self.out.progress(Progress::Window(window));
        }
    }

    fn errors(&mut self, bytes: &[u8]) {
        self.transcript.errors(bytes);
    }

    fn events(&mut self, bytes: &[u8]) {
        self.transcript.events(bytes);
    }

    fn consider(&mut self) -> Result<(), EnvError> {
        if let Some(theirs) = self.transcript.foreign_version() {
            return Err(EnvError::Version { theirs });
        }
        if self.transcript.flooded() {
            let words = self.last_words();
            return Err(EnvError::Flooded { words });
        }
        Ok(())
    }

    fn enough(&mut self, since: Duration) -> Result<bool, EnvError> {
        let Some(foreign) = self.foreign else {
            return Ok(false);
        };
        if !self.transcript.spoke() && since >= FIRST_WORD {
            // Records may stand behind noise that looks like the start of one.
            self.transcript.close();
            self.note_last_record();
            if !self.transcript.spoke() {
                return Err(foreign.never_spoke(&self.job, None, self.last_words()));
            }
        }
        Ok(self.last_heard.is_some_and(|at| at.elapsed() >= GRACE))
    }

    fn last_words(&self) -> String {
        self.transcript.last_words()
    }
}
