//! A guest that is a process of this host, or several in turn: the agent, a VMM
//! of ours, or QEMU. What differs between them is a [`Recipe`].

use crate::environment::{Guest, Progress, SampleSink, Work};
use crate::loads::{neighbourly, Beside, Crew};
use crate::observe::{Finished, Offset};
use crate::recording::record_path;
use std::time::{Duration, Instant};
use trapline_abi::{Job, Op};
use trapline_host::affinity::{Affinity, Threads};
use trapline_host::custom_vmm::{CustomGuest, EXIT_GRACE, FIRST_RECORD_TIMEOUT};
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::{Command, Exited, OutputHandler, Process};
use trapline_host::{Error, Facts, Limits, TscRate};
use trapline_model::{PerCpu, Scheduling};
use trapline_protocol::{EndState, GuestDecoder, NoProbe, Usage, UsageProbe, NOT_REPORTED};

/// How an environment runs a job.
pub trait Recipe {
    /// The process that runs `job`.
    ///
    /// # Errors
    /// Something that it is given cannot be made.
    fn command(&self, job: &Job) -> Result<Command, Error>;

    /// What its exit statuses mean.
    fn exit_codes(&self) -> ExitCodes;

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
    fn foreign(&self) -> Option<&CustomGuest> {
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

/// A guest that is a sequence of processes.
pub struct ProcessGuest {
    recipe: Box<dyn Recipe>,
    jobs: Vec<Job>,
    running: Option<Process>,
    /// Who carries loads out, where there can be any.
    crew: Option<Crew>,
    /// Dropped before what it runs on is given back.
    beside: Beside,
    affinity: Option<Affinity>,
}

impl ProcessGuest {
    /// A guest made by `recipe`.
    pub fn new(recipe: Box<dyn Recipe>) -> Self {
        Self {
            recipe,
            jobs: Vec::new(),
            running: None,
            crew: None,
            beside: Beside::default(),
            affinity: None,
        }
    }

    /// The same on a host where it may be disturbed and placed.
    pub fn beside(self, crew: Crew) -> Self {
        Self {
            crew: Some(crew),
            ..self
        }
    }

    fn start(&self, job: &Job) -> Result<Process, Error> {
        let command = self.recipe.command(job)?;
        let Some(affinity) = &self.affinity else {
            return Process::start(&command);
        };
        if !affinity.needs_vcpu_thread() {
            return affinity.start_guest(|| Process::start(&command));
        }
        let threads = self.recipe.threads(job);
        let threads = threads.ok_or_else(|| Error::unavailable(NO_THREAD.to_owned()))?;
        let command = self.recipe.with_named_threads(command);
        let running = affinity.start_guest(|| Process::start(&command))?;
        affinity.apply(running.pid(), threads)?;
        Ok(running)
    }

    /// Chooses where everybody runs, and starts what disturbs.
    fn prepare(&mut self, work: &Work, limits: &Limits) -> Result<(), Error> {
        let Work {
            conditions,
            scheduling,
            ..
        } = work;
        if !conditions.has_co_tenants() && *scheduling == Scheduling::DEFAULT {
            return Ok(());
        }
        let crew = self.crew.as_ref();
        let crew = crew.ok_or_else(|| Error::unavailable(NOBODY_ELSE.to_owned()))?;
        let affinity = Affinity::choose(scheduling.pin, scheduling.sched)?;
        affinity.move_lab();
        self.beside = Beside::start(&conditions.loads, crew, &affinity, limits)?;
        if conditions.per_cpu == PerCpu::Two {
            self.add_neighbour(&affinity, limits)?;
        }
        self.affinity = Some(affinity);
        Ok(())
    }

    /// Starts a second guest of the same kind, whose virtual CPU is where the measured
    /// one's will be.
    fn add_neighbour(&mut self, affinity: &Affinity, limits: &Limits) -> Result<(), Error> {
        let Some(job) = self.jobs.first() else {
            return Ok(());
        };
        let job = endless(job, limits.timeout);
        let threads = self.recipe.threads(&job);
        let threads = threads.ok_or_else(|| Error::unavailable(NO_THREAD.to_owned()))?;
        let command = self.recipe.with_named_threads(self.recipe.command(&job)?);
        self.beside.join(command, threads, affinity, limits)
    }

    /// Hears one launch to its end and hands it on, however it ends.
    fn hear(
        &self,
        mut running: Process,
        job: &Job,
        limits: &Limits,
        out: &mut dyn SampleSink,
    ) -> Result<(), Error> {
        let foreign = self.recipe.foreign();
        let mut ear = GuestOutput::new(job, self.recipe.clock(), foreign, out);
        running.record(record_path(job));
        let heard = running.wait(&mut ear, limits);
        let mut decoder = ear.decoder;
        decoder.close();
        let judged = heard.and_then(|over| {
            self.judge(job, over.status, &decoder)?;
            Ok(over)
        });
        let unreached = judged.as_ref().err().map(Error::to_string);
        let report = decoder.finish(&unreached.unwrap_or_else(|| NOT_REPORTED.to_owned()));
        let over = judged.as_ref().ok();
        out.finished(self.finished(report, &running, over));
        judged.map(|_| ())
    }

    fn judge(
        &self,
        job: &Job,
        status: std::process::ExitStatus,
        heard: &GuestDecoder,
    ) -> Result<(), Error> {
        if let Some(foreign) = self.recipe.foreign() {
            return foreign.check_exit(job, status, heard);
        }
        let name = self.recipe.command(job)?.name();
        self.recipe.exit_codes().check(&name, status, heard)
    }

    fn finished(
        &self,
        report: trapline_protocol::GuestReport,
        running: &Process,
        over: Option<&Exited>,
    ) -> Finished {
        let outlived_guest = over.is_some_and(|over| over.outlived_guest);
        let end = over.filter(|_| !outlived_guest).map(|over| over.end);
        let known = running.probe().tsc_offset.map(Offset::Known);
        let (exec, reaped, offset) = match self.recipe.clock() {
            BootClock::Machine => (0, None, Offset::Same),
            BootClock::Ours => (running.exec(), end, Offset::Same),
            BootClock::Guests => (running.exec(), end, known.unwrap_or(Offset::Heard)),
        };
        Finished {
            report,
            exec,
            reaped,
            offset,
            // A process's own memory is also what its workloads work on, and in a VMM
            // that we do not know it may be the guest's.
            own_memory: match (self.recipe.clock(), self.recipe.foreign()) {
                (BootClock::Guests, None) => running.probe().own_memory,
                _ => None,
            },
            outlived_guest,
        }
    }
}

/// The job of a second guest, which takes longer than the first may be heard.
fn endless(job: &Job, patience: Duration) -> Job {
    let period = job.period as f64 * TscRate::host().ns_per_tick();
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

impl Guest for ProcessGuest {
    fn ready(&mut self, work: &Work, limits: &Limits) -> Result<(), Error> {
        self.jobs = work.jobs();
        self.prepare(work, limits)
    }

    fn go(&mut self, _: &Limits) -> Result<(), Error> {
        self.beside.begin();
        if let Some(job) = self.jobs.first() {
            self.running = Some(self.start(job)?);
        }
        Ok(())
    }

    fn collect(&mut self, limits: &Limits, out: &mut dyn SampleSink) -> Result<(), Error> {
        let of = self.jobs.len();
        for (name, value) in self.recipe.facts() {
            out.fact(&name, value);
        }
        if let Some(affinity) = &self.affinity {
            out.fact("placement", affinity.describe());
        }
        for number in 0..of {
            let job = self.jobs[number];
            let running = match self.running.take() {
                Some(running) => running,
                None => self.start(&job)?,
            };
            out.progress(Progress::Launch { number, of });
            self.hear(running, &job, limits, out)?;
            if number == 0 {
                // Further launches are not measured under conditions.
                std::mem::take(&mut self.beside).end(out)?;
                self.affinity = None;
            }
        }
        Ok(())
    }

    fn stop(mut self: Box<Self>, grace: Duration) {
        if let Some(running) = &mut self.running {
            running.terminate(grace);
        }
    }
}

/// Puts what a process writes into a [`GuestDecoder`].
struct GuestOutput<'a> {
    decoder: GuestDecoder,
    arrivals_matter: bool,
    doing: Option<Op>,
    foreign: Option<&'a CustomGuest>,
    job: Job,
    /// When the guest's last record was heard.
    last_heard: Option<Instant>,
    out: &'a mut dyn SampleSink,
}

impl<'a> GuestOutput<'a> {
    fn new(
        job: &Job,
        clock: BootClock,
        foreign: Option<&'a CustomGuest>,
        out: &'a mut dyn SampleSink,
    ) -> Self {
        let listen = match foreign {
            Some(_) => GuestDecoder::until_end_record,
            None => GuestDecoder::new,
        };
        let decoder = listen(job);
        Self {
            decoder: match clock {
                BootClock::Guests => decoder,
                BootClock::Ours | BootClock::Machine => decoder.with_shared_clock(),
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

    fn foreign_console(&mut self, bytes: &[u8], at: u64, probe: &mut dyn UsageProbe) {
        let mut probe = WithoutExits(probe);
        self.decoder.console(bytes, Some(at), &mut probe);
        self.note_last_record();
    }

    fn note_last_record(&mut self) {
        if *self.decoder.end() != EndState::Incomplete {
            self.last_heard.get_or_insert_with(Instant::now);
        }
    }
}

/// How many exits a serial port takes for what is said on it nobody can tell, so
/// they cannot be taken off.
struct WithoutExits<'a>(&'a mut dyn UsageProbe);

impl UsageProbe for WithoutExits<'_> {
    fn sample(&mut self) -> Usage {
        Usage {
            exits: None,
            ..self.0.sample()
        }
    }
}

impl OutputHandler for GuestOutput<'_> {
    fn console(&mut self, bytes: &[u8], at: u64, probe: &mut dyn UsageProbe) {
        if self.foreign.is_some() {
            self.foreign_console(bytes, at, probe);
        } else if self.arrivals_matter {
            self.decoder.console(bytes, Some(at), probe);
        } else {
            self.decoder.console(bytes, None, &mut NoProbe);
        }
        if let Some(op) = self.decoder.current_operation() {
            if self.doing.replace(op) != Some(op) {
                self.out.progress(Progress::Operation(op));
            }
        }
        for window in self.decoder.take_windows() {
            self.out.progress(Progress::Window(window));
        }
    }

    fn errors(&mut self, bytes: &[u8]) {
        self.decoder.errors(bytes);
    }

    fn events(&mut self, bytes: &[u8]) {
        self.decoder.events(bytes);
    }

    fn check(&mut self) -> Result<(), Error> {
        if let Some(theirs) = self.decoder.version_mismatch() {
            return Err(Error::Version { theirs });
        }
        if self.decoder.flooded() {
            let words = self.last_output();
            return Err(Error::Flooded { output: words });
        }
        Ok(())
    }

    fn is_complete(&mut self, since: Duration) -> Result<bool, Error> {
        let Some(foreign) = self.foreign else {
            return Ok(false);
        };
        if !self.decoder.has_started() && since >= FIRST_RECORD_TIMEOUT {
            // Records may stand behind noise that looks like the start of one.
            self.decoder.close();
            self.note_last_record();
            if !self.decoder.has_started() {
                return Err(foreign.no_records(&self.job, None, self.last_output()));
            }
        }
        Ok(self.last_heard.is_some_and(|at| at.elapsed() >= EXIT_GRACE))
    }

    fn last_output(&self) -> String {
        self.decoder.last_output()
    }
}
