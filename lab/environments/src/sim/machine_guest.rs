//! Guests in the Linux of a simulated machine.

use super::contents::{Contents, HUGE_PAGES};
use super::guests::Guests;
use super::{loads, STREAM_HASH};
use crate::environment::{Guest, SampleSink, Work};
use crate::recording::record_path;
use std::iter::repeat_n;
use std::time::Duration;
use trapline_abi::{Job, Op};
use trapline_host::process::Process;
use trapline_host::{Error, Facts, Limits};
use trapline_model::guest_config::{ControlGroup, HugePages, Paging};
use trapline_model::{GuestConfig, Mitigations};
use trapline_sim::base::{Base, Layout};
use trapline_sim::kernel::Maker;
use trapline_sim::listener::{ProgramObserver, NOT_STARTED};
use trapline_sim::machine::SimMachine;
use trapline_sim::nested;
use trapline_sim::ready::ReadyMachine;
use trapline_sim::script::Script;
use trapline_sim::settings::Settings;

/// A machine with Linux that runs scripts.
pub trait ScriptMachine {
    /// Returns whether the machine gives the memory of guests with `contents` pages of 4 KiB, except for operations on huge
    /// pages.
    fn has_small_pages(&self, _contents: &dyn Contents) -> bool {
        false
    }

    /// Prepares the machine with `contents` to run `script`. Returns facts about it.
    ///
    /// # Errors
    /// A requirement is missing, or the machine does not boot.
    fn prepare(
        &mut self,
        contents: &dyn Contents,
        script: &Script,
        limits: &Limits,
    ) -> Result<Facts, Error>;

    /// Starts the script of `jobs`.
    ///
    /// # Errors
    /// It cannot be started.
    fn start(&mut self, jobs: &[Job], limits: &Limits) -> Result<(), Error>;

    /// Passes its output to `programs` until it ends. Returns the hash of the output, too.
    fn wait(
        &mut self,
        programs: &mut dyn ProgramObserver,
        limits: &Limits,
    ) -> (String, Result<(), Error>);

    /// Returns its process, if it runs.
    fn process(&mut self) -> Option<&mut Process>;
}

/// Guests of a machine.
pub struct MachineGuest {
    machine: Box<dyn ScriptMachine>,
    contents: Box<dyn Contents>,
    jobs: Vec<Job>,
    facts: Facts,
}

impl MachineGuest {
    /// Returns the guests of a machine with `contents`.
    pub fn boxed(machine: Box<dyn ScriptMachine>, contents: Box<dyn Contents>) -> Box<dyn Guest> {
        Box::new(Self {
            machine,
            contents,
            jobs: Vec::new(),
            facts: Facts::new(),
        })
    }
}

/// Returns the script that runs each job of `work` in all of its guests, the first of which is `first`.
fn script(
    contents: &dyn Contents,
    first: Option<&Job>,
    work: &Work,
    has_small_pages: bool,
) -> Result<Script, Error> {
    let mut script = Script::default();
    loads::prepare(&mut script, contents, work, first)?;
    for job in &work.jobs() {
        let needs_huge_pages = has_small_pages && job.selects(Op::FirstTouch2m);
        if needs_huge_pages {
            script.file(HUGE_PAGES, HugePages::Always.name());
        }
        script.allow(job);
        if work.guests > 1 {
            script.together(work.guests);
        }
        for _ in 0..work.guests {
            contents.launch(&mut script, job);
        }
        if needs_huge_pages {
            script.file(HUGE_PAGES, HugePages::Never.name());
        }
    }
    Ok(script)
}

impl Guest for MachineGuest {
    fn prepare(&mut self, work: &Work, limits: &Limits) -> Result<(), Error> {
        let jobs = work.jobs().into_iter();
        let jobs = jobs.flat_map(|job| repeat_n(job, work.guests as usize));
        self.jobs = jobs.collect();
        let contents = self.contents.as_ref();
        let has_small_pages = self.machine.has_small_pages(contents);
        let script = script(contents, self.jobs.first(), work, has_small_pages)?;
        self.facts = self.machine.prepare(contents, &script, limits)?;
        Ok(())
    }

    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        self.machine.start(&self.jobs, limits)
    }

    fn collect(&mut self, limits: &Limits, out: &mut dyn SampleSink) -> Result<(), Error> {
        for (name, value) in std::mem::take(&mut self.facts) {
            out.fact(&name, value);
        }
        for (name, value) in self.contents.facts()? {
            out.fact(&name, value);
        }
        if let Some(process) = self.machine.process() {
            process.record(self.jobs.first().and_then(record_path));
        }
        let mut guests = Guests::new(self.contents.guest_kind(), &self.jobs, out);
        let mut programs = nested::within(&self.contents.hosts(), &mut guests);
        let (hash, result) = self.machine.wait(programs.as_mut(), limits);
        drop(programs);
        drop(guests);
        out.fact(STREAM_HASH, hash);
        result
    }

    fn stop(mut self: Box<Self>, grace: Duration) {
        if let Some(process) = self.machine.process() {
            process.terminate(grace);
        }
    }
}

/// Returns the simulated machine of a vendor with `contents` for guests with configuration `guest`.
///
/// # Errors
/// A part, QEMU or the kernel is missing.
pub fn machine(
    settings: &Settings,
    maker: Maker,
    guest: &GuestConfig,
    contents: &dyn Contents,
) -> Result<SimMachine, Error> {
    let base = tuned(contents.base(settings, maker)?, guest);
    SimMachine::new(
        settings,
        base,
        contents.memory_mib(guest),
        &mut |archive, script| {
            if has_small_pages(guest, contents) {
                script.file(HUGE_PAGES, HugePages::Never.name());
            }
            contents.prepare(script);
            contents.add_to(archive)
        },
    )
}

fn has_small_pages(guest: &GuestConfig, contents: &dyn Contents) -> bool {
    guest.small_pages && contents.has_small_pages()
}

/// Returns the machine with the settings of its kernel and of KVM. Several guests run long enough for its kernel to draw
/// random numbers anew.
pub fn tuned(base: Base, guest: &GuestConfig) -> Base {
    let mut base = with_huge_pages(with_paging(base, guest.paging), guest.thp);
    base.random_state |= guest.guests > 1;
    let base = with_mitigations(base, guest.mitigations);
    let base = base.with_layout(Layout::new(guest.layout));
    match guest.cgroup {
        ControlGroup::Root => base,
        ControlGroup::Own => base.with_control_group(),
    }
}

/// Returns the machine with this parameter of KVM.
fn with_paging(mut base: Base, paging: Paging) -> Base {
    let amd = base.modules.iter_mut().filter(|it| it.name == "kvm_amd");
    match paging {
        Paging::Nested => {}
        Paging::Shadow => amd.for_each(|module| module.options = "npt=0"),
    }
    base
}

/// Returns the machine with these mitigations.
pub fn with_mitigations(mut base: Base, mitigations: Mitigations) -> Base {
    match mitigations {
        Mitigations::Auto => base,
        Mitigations::Flush => {
            let intel = base.modules.iter_mut().filter(|it| it.name == "kvm_intel");
            intel.for_each(|module| module.options = "vmentry_l1d_flush=cond");
            base
        }
        Mitigations::Off => base.with_option(" mitigations=off"),
    }
}

/// Returns the machine with this option of its kernel.
fn with_huge_pages(base: Base, thp: Option<HugePages>) -> Base {
    let option = thp.map(|thp| format!(" transparent_hugepage={}", thp.name()));
    base.with_option(&option.unwrap_or_default())
}

/// The simulated machine, run by QEMU.
pub struct SimLinuxMachine {
    settings: Settings,
    maker: Maker,
    guest: GuestConfig,
    ready: Option<ReadyMachine>,
}

impl SimLinuxMachine {
    /// Returns a machine for guests with configuration `guest`.
    pub fn new(settings: &Settings, maker: Maker, guest: &GuestConfig) -> Self {
        Self {
            settings: settings.clone(),
            maker,
            guest: *guest,
            ready: None,
        }
    }
}

impl ScriptMachine for SimLinuxMachine {
    fn has_small_pages(&self, contents: &dyn Contents) -> bool {
        has_small_pages(&self.guest, contents)
    }

    fn prepare(
        &mut self,
        contents: &dyn Contents,
        script: &Script,
        limits: &Limits,
    ) -> Result<Facts, Error> {
        let machine = machine(&self.settings, self.maker, &self.guest, contents)?;
        let ready = self.ready.insert(machine.prepare(script, limits)?);
        Ok(ready.facts.clone())
    }

    fn start(&mut self, _: &[Job], limits: &Limits) -> Result<(), Error> {
        match &mut self.ready {
            Some(ready) => ready.go(limits),
            None => Ok(()),
        }
    }

    fn wait(
        &mut self,
        programs: &mut dyn ProgramObserver,
        limits: &Limits,
    ) -> (String, Result<(), Error>) {
        match self.ready.take() {
            Some(mut ready) => {
                let (_, hash, result) = ready.wait(programs, limits);
                (hash, result)
            }
            None => (String::new(), Err(Error::Machine(NOT_STARTED.to_owned()))),
        }
    }

    fn process(&mut self) -> Option<&mut Process> {
        self.ready.as_mut().map(ReadyMachine::running)
    }
}
