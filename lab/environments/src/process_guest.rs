//! Guests that are processes of this host: the agent, a VMM, or an emulator. A launch is one guest, or several equal
//! ones that run an operation at the same time.

use crate::environment::{Guest, Progress, SampleSink, Work};
use crate::guest_output::GuestOutput;
use crate::launch::{BootClock, ClockOffset, FinishedLaunch};
use crate::loads::{co_tenant_job, Competitors, LoadPrograms, RunningLoads};
use crate::merged;
use crate::recording::record_path;
use crate::start_barrier::{self, StartBarrier};
use std::fs::File;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use trapline_abi::Job;
use trapline_host::affinity::{Affinity, Threads};
use trapline_host::custom_vmm::CustomGuest;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::{Command, Exited, Process};
use trapline_host::{Error, Facts, Limits, TscRate};
use trapline_model::{PerCpu, Scheduling};
use trapline_protocol::{GuestDecoder, GuestReport, NOT_REPORTED};

/// Process that runs the jobs of an environment.
pub trait GuestCommand: Sync {
    /// Returns the command that runs `job`.
    ///
    /// # Errors
    /// An input of the command cannot be created.
    fn command(&self, job: &Job) -> Result<Command, Error>;

    /// Returns the meaning of its exit statuses.
    fn exit_codes(&self) -> ExitCodes;

    /// Returns the clock of the guest's boot stages.
    fn clock(&self) -> BootClock;

    /// Returns the threads of its process for `job`, or `None` if they cannot be distinguished.
    fn threads(&self, _: &Job) -> Option<Threads> {
        None
    }

    /// Adds the options that give its threads names.
    fn with_named_threads(&self, command: Command) -> Command {
        command
    }

    /// Returns facts about the guest beyond those of its environment.
    fn facts(&self) -> Facts {
        Facts::new()
    }

    /// Returns the custom VMM, if it is one.
    fn custom(&self) -> Option<&CustomGuest> {
        None
    }

    /// Checks the exit status of the process that ran `job`.
    ///
    /// # Errors
    /// The guest did not end successfully.
    fn check_exit(&self, job: &Job, exited: &Exited, records: &GuestDecoder) -> Result<(), Error> {
        if let Some(custom) = self.custom() {
            return custom.check_exit(job, exited.status, records);
        }
        let name = self.command(job)?.name();
        self.exit_codes().check(&name, exited.status, records)
    }
}

/// Guests of one launch.
struct RunningGuests {
    processes: Vec<Process>,
    /// Barrier at which several guests start to measure.
    barrier: Option<StartBarrier>,
}

/// A guest whose launches are processes.
pub struct ProcessGuest {
    program: Box<dyn GuestCommand>,
    /// Number of equal guests that run each job at the same time.
    guests: usize,
    jobs: Vec<Job>,
    running: Option<RunningGuests>,
    /// Load programs, if loads are supported.
    load_programs: Option<LoadPrograms>,
    /// Dropped before `affinity` restores the CPUs.
    loads: RunningLoads,
    competitors: Competitors,
    affinity: Option<Affinity>,
}

impl ProcessGuest {
    /// Returns a guest run by `program`, without loads.
    pub fn new(program: Box<dyn GuestCommand>) -> Self {
        Self {
            program,
            guests: 1,
            jobs: Vec::new(),
            running: None,
            load_programs: None,
            loads: RunningLoads::default(),
            competitors: Competitors::default(),
            affinity: None,
        }
    }

    /// Adds support for loads and CPU placement.
    pub fn with_loads(self, programs: LoadPrograms) -> Self {
        Self {
            load_programs: Some(programs),
            ..self
        }
    }

    /// Runs each operation, and each start, in this number of equal guests at the same time.
    pub fn with_guests(self, guests: u32) -> Self {
        Self {
            guests: guests as usize,
            ..self
        }
    }

    fn spawn(&self, job: &Job) -> Result<RunningGuests, Error> {
        if !job.wait_for_go {
            let processes = (0..self.guests).map(|number| self.spawn_one(job, number, None));
            return Ok(RunningGuests {
                processes: processes.collect::<Result<_, _>>()?,
                barrier: None,
            });
        }
        let (barrier, inputs) = StartBarrier::new(self.guests).map_err(Error::Output)?;
        let processes = inputs
            .into_iter()
            .enumerate()
            .map(|(number, input)| self.spawn_one(job, number, Some(input)));
        Ok(RunningGuests {
            processes: processes.collect::<Result<_, _>>()?,
            barrier: Some(barrier),
        })
    }

    fn spawn_one(
        &self,
        job: &Job,
        number: usize,
        input: Option<Arc<File>>,
    ) -> Result<Process, Error> {
        let mut command = self.program.command(job)?;
        if let Some(input) = input {
            command = command.with_input(input);
        }
        let Some(affinity) = &self.affinity else {
            return Process::start(&command);
        };
        if !affinity.needs_vcpu_thread() {
            return affinity.start_guest_of_several(number, || Process::start(&command));
        }
        let threads = self.threads(job)?;
        let command = self.program.with_named_threads(command);
        let running = affinity.start_guest_of_several(number, || Process::start(&command))?;
        affinity.apply(running.pid(), threads)?;
        Ok(running)
    }

    fn threads(&self, job: &Job) -> Result<Threads, Error> {
        let unknown = || {
            Error::missing(
                "the vCPU thread of a VMM given with --vmm, or of a VMM with a Linux guest, cannot be \
                 identified",
                "leave --pin exclusive out",
            )
        };
        self.program.threads(job).ok_or_else(unknown)
    }

    /// Chooses CPUs and starts loads.
    fn apply(&mut self, work: &Work, limits: &Limits) -> Result<(), Error> {
        let Work {
            conditions,
            scheduling,
            ..
        } = work;
        if !conditions.has_co_tenants() && *scheduling == Scheduling::DEFAULT {
            return Ok(());
        }
        let unsupported = || {
            Error::missing(
                "a machine that runs only the image has no other programs, and no threads to place",
                "leave --load, --pin and --competitor out",
            )
        };
        let programs = self.load_programs.as_ref().ok_or_else(unsupported)?;
        let affinity = Affinity::choose(scheduling.pin, scheduling.sched)?;
        affinity.move_lab();
        self.loads = RunningLoads::start(&conditions.loads, programs, &affinity, limits)?;
        let competitor = scheduling.competitor;
        self.competitors = Competitors::start(competitor, programs, &affinity, limits)?;
        if conditions.per_cpu == PerCpu::Two {
            self.start_co_tenant(&affinity, limits)?;
        }
        self.affinity = Some(affinity);
        Ok(())
    }

    /// Starts a second guest whose vCPU shares the CPU of the measured one.
    fn start_co_tenant(&mut self, affinity: &Affinity, limits: &Limits) -> Result<(), Error> {
        let Some(job) = self.jobs.first() else {
            return Ok(());
        };
        let job = co_tenant_job(job, expiries(job, limits.timeout));
        let threads = self.threads(&job)?;
        let command = self.program.with_named_threads(self.program.command(&job)?);
        self.loads
            .start_co_tenant(command, threads, affinity, limits)
    }

    /// Decodes one launch until it ends, and passes it to `out`. Returns the share of its batches during which all
    /// guests measured, if there are several.
    fn decode(
        &self,
        running: RunningGuests,
        job: &Job,
        limits: &Limits,
        out: &mut dyn SampleSink,
    ) -> Result<Option<f64>, Error> {
        let RunningGuests { processes, barrier } = running;
        let (program, barrier) = (self.program.as_ref(), barrier.as_ref());
        let mut processes = processes.into_iter();
        let first = processes.next();
        let ended: Vec<_> = thread::scope(|scope| {
            let others: Vec<_> = processes
                .map(|guest| {
                    scope.spawn(move || {
                        decode_one(program, guest, job, limits, barrier, &mut Ignored)
                    })
                })
                .collect();
            let first = first.map(|guest| decode_one(program, guest, job, limits, barrier, out));
            let others = others
                .into_iter()
                .map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            first.into_iter().chain(others).collect()
        });
        let (launches, checked): (Vec<_>, Vec<_>) = ended.into_iter().unzip();
        let mut simultaneous = None;
        if job.wait_for_go {
            if let Some(merged) = merged::merge(launches) {
                simultaneous = merged.simultaneous;
                out.finished(merged.launch);
            }
        } else {
            // Guests that start together begin with the first.
            let exec = launches.iter().map(|launch| launch.exec).min();
            let begun = |launch| FinishedLaunch {
                exec: exec.unwrap_or_default(),
                ..launch
            };
            launches
                .into_iter()
                .map(begun)
                .for_each(|launch| out.finished(launch));
        }
        checked.into_iter().collect::<Result<(), Error>>()?;
        Ok(simultaneous)
    }
}

/// Sink of progress that is not reported: that of further guests of a launch.
pub(crate) struct Ignored;

impl SampleSink for Ignored {
    fn progress(&mut self, _: Progress) {}

    fn fact(&mut self, _: &str, _: String) {}

    fn finished(&mut self, _: FinishedLaunch) {}
}

/// Decodes one guest until it ends.
fn decode_one(
    program: &dyn GuestCommand,
    mut running: Process,
    job: &Job,
    limits: &Limits,
    barrier: Option<&StartBarrier>,
    out: &mut dyn SampleSink,
) -> (FinishedLaunch, Result<(), Error>) {
    let output = GuestOutput::new(job, program.clock(), program.custom(), out);
    let mut output = output.with_barrier(barrier);
    running.record(record_path(job));
    let exited = running.wait(&mut output, limits);
    let mut decoder = output.into_decoder();
    decoder.close();
    let checked = exited.and_then(|exited| {
        program.check_exit(job, &exited, &decoder)?;
        Ok(exited)
    });
    let unreached = match &checked {
        Ok(_) => NOT_REPORTED.to_owned(),
        Err(error) => error.with_remedy(),
    };
    let report = decoder.finish(&unreached);
    let launch = finished(program, report, &running, checked.as_ref().ok());
    (launch, checked.map(drop))
}

fn finished(
    program: &dyn GuestCommand,
    report: GuestReport,
    running: &Process,
    exited: Option<&Exited>,
) -> FinishedLaunch {
    let outlived_guest = exited.is_some_and(|exited| exited.outlived_guest);
    let end = exited.filter(|_| !outlived_guest).map(|exited| exited.end);
    let known = running.probe().tsc_offset.map(ClockOffset::Known);
    let (exec, reaped, offset) = match program.clock() {
        BootClock::Machine => (0, None, ClockOffset::Same),
        BootClock::Host => (running.exec(), end, ClockOffset::Same),
        BootClock::Guest => (running.exec(), end, known.unwrap_or(ClockOffset::Unknown)),
    };
    FinishedLaunch {
        report,
        exec,
        reaped,
        offset,
        // The memory of a process includes that of its workloads.
        own_memory: match program.clock() {
            BootClock::Guest => running.probe().own_memory,
            BootClock::Host | BootClock::Machine => None,
        },
        outlived_guest,
    }
}

/// Returns the number of timer expiries that take twice `timeout`.
fn expiries(job: &Job, timeout: Duration) -> u32 {
    let period = job.period as f64 * TscRate::host().ns_per_tick();
    (2.0 * timeout.as_nanos() as f64 / period.max(1.0)) as u32
}

impl Guest for ProcessGuest {
    fn prepare(&mut self, work: &Work, limits: &Limits) -> Result<(), Error> {
        self.jobs = match self.guests {
            1 => work.jobs(),
            _ => start_barrier::jobs(work),
        };
        self.apply(work, limits)
    }

    fn start(&mut self, _: &Limits) -> Result<(), Error> {
        self.loads.begin();
        self.competitors.begin();
        if let Some(job) = self.jobs.first() {
            self.running = Some(self.spawn(job)?);
        }
        Ok(())
    }

    fn collect(&mut self, limits: &Limits, out: &mut dyn SampleSink) -> Result<(), Error> {
        for (name, value) in self.program.facts() {
            out.fact(&name, value);
        }
        if let Some(affinity) = &self.affinity {
            out.fact("placement", affinity.describe());
        }
        let of = self.jobs.len();
        let mut simultaneous: Option<f64> = None;
        for number in 0..of {
            let job = self.jobs[number];
            let running = match self.running.take() {
                Some(running) => running,
                None => self.spawn(&job)?,
            };
            out.progress(Progress::Launch { number, of });
            let share = self.decode(running, &job, limits, out)?;
            simultaneous = simultaneous.into_iter().chain(share).reduce(f64::min);
            if number == 0 && self.guests == 1 {
                // Further launches are measured without conditions.
                std::mem::take(&mut self.loads).end(out)?;
                std::mem::take(&mut self.competitors).end(out)?;
                self.affinity = None;
            }
        }
        std::mem::take(&mut self.competitors).end(out)?;
        if let Some(share) = simultaneous {
            out.fact(
                "simultaneous",
                format!("{:.0}% of the batches or more", 100.0 * share),
            );
        }
        Ok(())
    }

    fn stop(mut self: Box<Self>, grace: Duration) {
        for guest in self
            .running
            .iter_mut()
            .flat_map(|running| &mut running.processes)
        {
            guest.terminate(grace);
        }
    }
}
