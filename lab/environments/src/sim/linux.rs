//! Guests in Linux on a simulated machine.

use super::base::Base;
use super::beside;
use super::initramfs::Archive;
use super::kernel::Maker;
use super::listener::{Guests, Inside};
use super::machine::{Machine, Poised};
use super::script::Script;
use super::STREAM_HASH;
use crate::environment::{Facts, Guest, SampleSink, Watch, Work};
use crate::error::EnvError;
use crate::process::Command;
use crate::settings::Settings;
use std::time::Duration;
use trapline_abi::Job;
use trapline_model::{Conditions, Load, MachineSpec};

/// What an environment puts on the machine besides the agent.
pub trait Contents {
    /// What its guests are.
    fn inside(&self) -> Inside;

    /// The machine of this maker without them.
    ///
    /// # Errors
    /// It cannot be had.
    fn base(&self, settings: &Settings, maker: Maker) -> Result<Base, EnvError> {
        Base::linux(settings, maker)
    }

    /// What is to be told about what its guests are made of.
    ///
    /// # Errors
    /// A file cannot be read.
    fn facts(&self) -> Result<Facts, EnvError> {
        Ok(Facts::new())
    }

    /// Adds files.
    ///
    /// # Errors
    /// One cannot be read.
    fn add_to(&self, archive: &mut Archive) -> Result<(), EnvError>;

    /// Says what is to be done with the files before the machine is ready.
    fn prepare(&self, _: &mut Script) {}

    /// The program, on the machine, that runs `job`.
    fn command(&self, job: &Job) -> Command;

    /// Says that `job` is to be run.
    fn launch(&self, script: &mut Script, job: &Job) {
        let command = self.command(job);
        match self.inside().foreign {
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
    fn load(&self, script: &mut Script, load: Load) -> Result<(), EnvError> {
        beside::burner(script, load)
    }

    /// Says that a second guest is to do `job` beside what is launched.
    ///
    /// # Errors
    /// There can be none here.
    fn neighbour(&self, _: &mut Script, _: &Job) -> Result<(), EnvError> {
        Err(EnvError::Missing(
            "this machine has no second guest: leave --vcpus-per-cpu out".to_owned(),
        ))
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
    machine: MachineSpec,
    contents: Box<dyn Contents>,
    jobs: Vec<Job>,
    poised: Option<Poised>,
}

/// The machine with these contents whose guests get `machine`.
///
/// # Errors
/// Something that it is made of is missing.
pub fn machine(
    settings: &Settings,
    machine: &MachineSpec,
    contents: &dyn Contents,
) -> Result<Machine, EnvError> {
    let base = contents.base(settings, Maker::Amd)?;
    Machine::new(
        settings,
        base,
        machine.memory_mib + machine.window_mib,
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
        machine: &MachineSpec,
        contents: Box<dyn Contents>,
    ) -> Box<dyn Guest> {
        Box::new(Self {
            settings: settings.clone(),
            machine: *machine,
            contents,
            jobs: Vec::new(),
            poised: None,
        })
    }
}

/// What the agent is told to do, so that `contents` run these jobs under these
/// conditions.
///
/// # Errors
/// They cannot be had here.
pub fn script(
    contents: &dyn Contents,
    jobs: &[Job],
    conditions: &Conditions,
) -> Result<Script, EnvError> {
    let mut script = Script::default();
    beside::prepare(&mut script, contents, conditions, jobs.first())?;
    for job in jobs {
        script.allow(job);
        contents.launch(&mut script, job);
    }
    Ok(script)
}

impl Guest for LinuxGuest {
    fn ready(&mut self, work: &Work, watch: &Watch) -> Result<(), EnvError> {
        self.jobs = work.jobs();
        let script = script(self.contents.as_ref(), &self.jobs, &work.conditions)?;
        let machine = machine(&self.settings, &self.machine, self.contents.as_ref())?;
        self.poised = Some(machine.poise(&script, watch)?);
        Ok(())
    }

    fn go(&mut self, watch: &Watch) -> Result<(), EnvError> {
        match &mut self.poised {
            Some(poised) => poised.go(watch),
            None => Ok(()),
        }
    }

    fn collect(&mut self, watch: &Watch, out: &mut dyn SampleSink) -> Result<(), EnvError> {
        let Some(mut poised) = self.poised.take() else {
            return Ok(());
        };
        for (name, value) in &poised.facts {
            out.fact(name, value.clone());
        }
        for (name, value) in self.contents.facts()? {
            out.fact(&name, value);
        }
        let guests = Guests::new(self.contents.inside(), &self.jobs, out);
        let (guests, hash, judged) = poised.hear(guests, watch);
        drop(guests);
        out.fact(STREAM_HASH, hash);
        judged
    }

    fn stop(mut self: Box<Self>, grace: Duration) {
        if let Some(poised) = &mut self.poised {
            poised.running().ask_to_end(grace);
        }
    }
}
