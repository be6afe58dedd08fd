//! The environments of this machine, and whether each is ready.

use crate::args::SimulatedArgs;
use crate::failure::{Failure, Status};
use crate::files;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use trapline_environments::{
    Availability, EnvError, Environment, GuestImage, Requirements, Settings, Start,
};
use trapline_model::request::usual_operations;
use trapline_model::{
    expand, Contender, EnvironmentId, Given, MachineSpec, Request, Sched, Scheduling, Variant,
};

/// Every environment there is, with what is needed to use it.
pub struct Lab {
    settings: Settings,
    scheduling: Scheduling,
    sched: Sched,
    places: Vec<Place>,
    /// The same, with other files in the place of some.
    others: BTreeMap<Files, Lab>,
    /// The image, once it was asked for: it is hashed, and boots must not wait for that.
    image: OnceLock<GuestImage>,
}

/// What stands in for usual files.
type Files = BTreeMap<Given, String>;

/// An environment, and whether it is ready.
pub struct Place {
    /// Which.
    pub id: EnvironmentId,
    /// How to use it.
    pub environment: Box<dyn Environment>,
    /// Whether it can be used here and now.
    pub availability: Availability,
}

impl Lab {
    /// Looks at every environment. Nothing is started.
    ///
    /// # Errors
    /// The parts cannot be looked for, or what the user named is not there.
    pub fn open(simulated: &SimulatedArgs) -> Result<Self, Failure> {
        check_sched(simulated)?;
        Self::for_interrupts(simulated)
    }

    /// The same for interrupts, whose measurement schedules threads, too.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn for_interrupts(simulated: &SimulatedArgs) -> Result<Self, Failure> {
        let settings = Settings::find().map_err(|error| Failure::from_error(&error))?;
        Self::with(settings, simulated)
    }

    /// The same with a file to be made on the disk that is measured.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn with_disk(simulated: &SimulatedArgs, disk: Option<PathBuf>) -> Result<Self, Failure> {
        check_sched(simulated)?;
        let settings = Settings::find().map_err(|error| Failure::from_error(&error))?;
        Self::with(Settings { disk, ..settings }, simulated)
    }

    /// The same with what is measured in another directory.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn with_parts(parts: &Path, simulated: &SimulatedArgs) -> Result<Self, Failure> {
        check_sched(simulated)?;
        let settings = Settings::find().map_err(|error| Failure::from_error(&error))?;
        let parts = settings.parts.clone().measuring(parts);
        Self::with(Settings { parts, ..settings }, simulated)
    }

    fn with(mut settings: Settings, simulated: &SimulatedArgs) -> Result<Self, Failure> {
        check_named(
            "--kernel",
            "file",
            simulated.kernel.as_deref(),
            Path::is_file,
        )?;
        check_named(
            "--modules",
            "directory",
            simulated.modules.as_deref(),
            Path::is_dir,
        )?;
        settings.cache.limit = simulated.snapshots.cache_limit;
        if simulated.snapshots.fresh {
            settings.start = Start::Boot;
        }
        settings.kernel = simulated.kernel.clone().zip(simulated.modules.clone());
        if let Some(vmm) = &simulated.vmm {
            let found = vmm.program();
            found.map_err(|error| Failure::from_error(&error).status(Status::Usage))?;
        }
        settings.vmm = simulated.vmm.clone();
        let scheduling = simulated.scheduling.scheduling();
        let environments = trapline_environments::all(&settings).into_iter();
        let places = environments.map(|environment| place(environment, scheduling));
        Ok(Self {
            settings,
            scheduling,
            sched: simulated.scheduling.sched(),
            places: places.collect(),
            others: BTreeMap::new(),
            image: OnceLock::new(),
        })
    }

    /// Looks at every environment once more for each set of files that one of these
    /// contenders has of its own.
    ///
    /// # Errors
    /// One of the files is not there.
    pub fn with_files_of(mut self, contenders: &[Contender]) -> Result<Self, Failure> {
        let all = contenders.iter().map(|contender| &contender.variant.given);
        for files in all.filter(|files| !files.is_empty()) {
            if !self.others.contains_key(files) {
                let other = self.with_files(files)?;
                self.others.insert(files.clone(), other);
            }
        }
        Ok(self)
    }

    fn with_files(&self, files: &Files) -> Result<Self, Failure> {
        let settings = files::replaced(self.settings.clone(), files)?;
        let environments = trapline_environments::all(&settings).into_iter();
        Ok(Self {
            places: environments.map(|it| place(it, self.scheduling)).collect(),
            settings,
            scheduling: self.scheduling,
            sched: self.sched,
            others: BTreeMap::new(),
            image: OnceLock::new(),
        })
    }

    /// This lab, or the one with the files of a variant.
    pub fn of(&self, variant: &Variant) -> &Self {
        self.others.get(&variant.given).unwrap_or(self)
    }

    /// All environments, in table order.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Where everything is that environments are made of.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How guests' CPUs are scheduled.
    pub fn scheduling(&self) -> Scheduling {
        self.scheduling
    }

    /// By which rules a virtual CPU gets its CPU.
    pub fn sched(&self) -> Sched {
        self.sched
    }

    /// The machine that a guest of this environment gets.
    pub fn machine(&self, id: EnvironmentId) -> MachineSpec {
        machine(id, self.scheduling)
    }

    /// Why an environment cannot be used here, if it cannot.
    pub fn why_not(&self, id: EnvironmentId) -> Option<&str> {
        match &self.place(id)?.availability {
            Availability::Ready => None,
            Availability::Missing(reason) => Some(reason),
        }
    }

    /// Why a contender cannot be measured here, if it cannot.
    pub fn why_not_with(&self, contender: &Contender) -> Option<&str> {
        self.of(&contender.variant).why_not(contender.environment)
    }

    /// The place of one environment.
    pub fn place(&self, id: EnvironmentId) -> Option<&Place> {
        self.places.iter().find(|place| place.id == id)
    }

    /// The image.
    ///
    /// # Errors
    /// It is not there.
    pub fn image(&self) -> Result<GuestImage, EnvError> {
        if let Some(image) = self.image.get() {
            return Ok(image.clone());
        }
        let image = self.settings.parts.image()?;
        Ok(self.image.get_or_init(|| image).clone())
    }
}

/// Only where interrupts are measured threads are scheduled otherwise.
fn check_sched(simulated: &SimulatedArgs) -> Result<(), Failure> {
    let sched = simulated.scheduling.sched();
    if !sched.is_of_thread() {
        return Ok(());
    }
    let told = format!("--sched {sched} is for threads whose interrupts are measured");
    let help = "use 'trapline irq', or name credit or credit2, Xen's";
    Err(Failure::new(told).help(help).status(Status::Usage))
}

fn check_named(
    flag: &str,
    kind: &str,
    path: Option<&Path>,
    fits: fn(&Path) -> bool,
) -> Result<(), Failure> {
    match path.filter(|path| !fits(path)) {
        None => Ok(()),
        Some(path) => {
            let told = format!("{flag}: there is no {kind} {}", path.display());
            let help = "leave --kernel and --modules out to use the distribution's kernel";
            Err(Failure::new(told).help(help).status(Status::Usage))
        }
    }
}

fn place(environment: Box<dyn Environment>, scheduling: Scheduling) -> Place {
    let id = environment.id();
    let machine = machine(id, scheduling);
    let availability = environment.supports(&Requirements { machine });
    Place {
        id,
        environment,
        availability,
    }
}

/// The machine that a guest of this environment gets: what the plan says.
fn machine(id: EnvironmentId, scheduling: Scheduling) -> MachineSpec {
    let plan = expand::expand(&Request {
        contenders: vec![id.into()],
        ready: vec![id.into()],
        operations: usual_operations(),
        boots: Some(1),
        scheduling,
        seed: 0,
        ..Request::default()
    });
    plan.boots[0].machine
}
