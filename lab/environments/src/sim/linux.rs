//! Guests in Linux on a simulated machine.

use super::beside;
use super::guests::{GuestKind, Guests};
use super::STREAM_HASH;
use crate::environment::{Guest, SampleSink, Work};
use crate::recording::record_path;
use std::time::Duration;
use trapline_abi::Job;
use trapline_host::process::Command;
use trapline_host::{Error, Facts, Limits};
use trapline_model::{GuestConfig, Load};
use trapline_sim::base::Base;
use trapline_sim::initramfs::Archive;
use trapline_sim::kernel::Maker;
use trapline_sim::machine::SimMachine;
use trapline_sim::nested;
use trapline_sim::ready::ReadyMachine;
use trapline_sim::script::Script;
use trapline_sim::settings::Settings;

/// What an environment puts on the machine besides the agent.
pub trait Contents {
    /// What its guests are.
    fn guest_kind(&self) -> GuestKind;

    /// The machine of this maker without them.
    ///
    /// # Errors
    /// It cannot be had.
    fn base(&self, settings: &Settings, maker: Maker) -> Result<Base, Error> {
        Base::linux(settings, maker)
    }

    /// What is to be told about what its guests are made of.
    ///
    /// # Errors
    /// A file cannot be read.
    fn facts(&self) -> Result<Facts, Error> {
        Ok(Facts::new())
    }

    /// Adds files.
    ///
    /// # Errors
    /// One cannot be read.
    fn add_to(&self, archive: &mut Archive) -> Result<(), Error>;

    /// Says what is to be done with the files before the machine is ready.
    fn prepare(&self, _: &mut Script) {}

    /// The program, on the machine, that runs `job`.
    fn command(&self, job: &Job) -> Command;

    /// Says that `job` is to be run.
    fn launch(&self, script: &mut Script, job: &Job) {
        let command = self.command(job);
        match self.guest_kind().custom {
            Some(_) => script.launch_foreign(&command),
            None => script.launch(&command, self.asks_offset()),
        }
    }

    /// Whether the machine's kernel has to be asked for a guest's TSC offset.
    fn asks_offset(&self) -> bool {
        false
    }

    /// Says that `load` is to run beside what is launched.
    ///
    /// # Errors
    /// It cannot run here.
    fn load(&self, script: &mut Script, load: Load) -> Result<(), Error> {
        beside::burner(script, load)
    }

    /// Says that a second guest is to do `job` beside what is launched.
    ///
    /// # Errors
    /// There can be none here.
    fn neighbour(&self, _: &mut Script, _: &Job) -> Result<(), Error> {
        Err(Error::unavailable(
            "this machine has no second guest: leave --vcpus-per-cpu out".to_owned(),
        ))
    }

    /// Returns the memory that guests take, which get `machine`, in MiB.
    fn memory_mib(&self, machine: &GuestConfig) -> u32 {
        machine.memory_mib + machine.window_mib
    }

    /// Returns the number of Linux guests between the machine and the program that runs guests.
    fn nesting(&self) -> u32 {
        0
    }

    /// Starts a program that needs no guest at a level of nesting: 0 is the machine.
    fn launch_at(&self, _level: u32, script: &mut Script, command: &Command) {
        script.launch(command, false);
    }

    /// A command of the program that runs guests, if where its code lies depends
    /// on who loads it.
    fn observed(&self) -> Option<Command> {
        None
    }
}

/// A machine in preparation, or running.
pub struct LinuxGuest {
    settings: Settings,
    machine: GuestConfig,
    contents: Box<dyn Contents>,
    jobs: Vec<Job>,
    ready: Option<ReadyMachine>,
}

/// The machine with these contents whose guests get `machine`.
///
/// # Errors
/// Something that it is made of is missing.
pub fn machine(
    settings: &Settings,
    machine: &GuestConfig,
    contents: &dyn Contents,
) -> Result<SimMachine, Error> {
    let base = contents.base(settings, Maker::Amd)?;
    SimMachine::new(
        settings,
        base,
        contents.memory_mib(machine),
        &mut |archive, script| {
            contents.prepare(script);
            contents.add_to(archive)
        },
    )
}

impl LinuxGuest {
    /// Guests on a machine with `contents`, each of which gets `machine`.
    pub fn boxed(
        settings: &Settings,
        machine: &GuestConfig,
        contents: Box<dyn Contents>,
    ) -> Box<dyn Guest> {
        Box::new(Self {
            settings: settings.clone(),
            machine: *machine,
            contents,
            jobs: Vec::new(),
            ready: None,
        })
    }
}

/// What the agent is told to do, so that `contents` run these jobs under these
/// conditions.
///
/// # Errors
/// They cannot be had here.
pub fn script(contents: &dyn Contents, jobs: &[Job], work: &Work) -> Result<Script, Error> {
    let mut script = Script::default();
    beside::prepare(&mut script, contents, work, jobs.first())?;
    for job in jobs {
        script.allow(job);
        contents.launch(&mut script, job);
    }
    Ok(script)
}

impl Guest for LinuxGuest {
    fn ready(&mut self, work: &Work, limits: &Limits) -> Result<(), Error> {
        self.jobs = work.jobs();
        let script = script(self.contents.as_ref(), &self.jobs, work)?;
        let machine = machine(&self.settings, &self.machine, self.contents.as_ref())?;
        self.ready = Some(machine.prepare(&script, limits)?);
        Ok(())
    }

    fn go(&mut self, limits: &Limits) -> Result<(), Error> {
        match &mut self.ready {
            Some(ready) => ready.go(limits),
            None => Ok(()),
        }
    }

    fn collect(&mut self, limits: &Limits, out: &mut dyn SampleSink) -> Result<(), Error> {
        let Some(mut ready) = self.ready.take() else {
            return Ok(());
        };
        for (name, value) in &ready.facts {
            out.fact(name, value.clone());
        }
        for (name, value) in self.contents.facts()? {
            out.fact(&name, value);
        }
        let path = self.jobs.first().and_then(record_path);
        ready.running().record(path);
        let mut guests = Guests::new(self.contents.guest_kind(), &self.jobs, out);
        let programs = nested::at_level(self.contents.nesting(), &mut guests);
        let (_, hash, judged) = ready.wait(programs, limits);
        drop(guests);
        out.fact(STREAM_HASH, hash);
        judged
    }

    fn stop(mut self: Box<Self>, grace: Duration) {
        if let Some(ready) = &mut self.ready {
            ready.running().terminate(grace);
        }
    }
}
