//! Executes one boot of a plan.

use crate::context::RunContext;
use crate::event::RunEvent;
use crate::failure::Failure;
use crate::inventory::{EnvironmentEntry, Inventory};
use crate::lengths::{self, Attached, LengthCounters};
use crate::long;
use crate::options::BootOptions;
use crate::sink::ObservationSink;
use crate::timeout::default_timeout;
use std::path::PathBuf;
use trapline_environments::kernel_build::Roots;
use trapline_environments::sim::STREAM_HASH;
use trapline_environments::{Booted, EnvError, Environment, Facts, GuestImage, Limits};
use trapline_model::{Config, LeftOut, Observation, OperationResult, Outcome, PlannedBoot};

/// Executes boots with these options.
#[derive(Clone, Copy)]
pub(crate) struct Execution<'a> {
    pub context: &'a RunContext<'a>,
    pub options: &'a BootOptions<'a>,
    /// Roots of kernel builds.
    pub roots: &'a Roots,
    /// Plugins that count what is excluded from figures.
    pub lengths: &'a LengthCounters,
}

/// Result of a boot.
pub(crate) enum BootResult {
    /// Observed, completely or in part.
    Observed(Observation),
    /// Failed in a way that another boot would repeat.
    Hopeless(Observation),
    /// Not started, for this reason.
    Skipped(Config, String),
    /// Cancelled.
    Cancelled,
}

impl Execution<'_> {
    /// Executes `boot` on this thread.
    pub fn boot(&self, boot: &PlannedBoot) -> BootResult {
        let inventory = self.context.inventory.with_files_of(&boot.config.overrides);
        // Environments that need a missing image are unavailable and not in the plan.
        let image = inventory.image().unwrap_or_else(|_| GuestImage {
            path: PathBuf::new(),
            sha256: String::new(),
        });
        if self.context.interrupt.is_requested() {
            return BootResult::Cancelled;
        }
        self.context.events.handle(RunEvent::BootStarted(boot));
        let booted = match (
            boot.long.as_slice(),
            inventory.entry(boot.config.environment),
        ) {
            ([], Some(entry)) => self.all_starts(entry, &image, boot),
            ([], None) => Err(EnvError::unavailable("no such environment")),
            (_, _) => self.long(inventory, boot),
        };
        self.context.events.handle(RunEvent::BootDone(boot));
        match booted {
            // Another one would repeat that, and take as long.
            Ok(booted) if !boot.long.is_empty() && has_failed(&booted) => {
                BootResult::Hopeless(booted.observation)
            }
            Ok(booted) => BootResult::from(booted),
            Err(EnvError::Stopped) => BootResult::Cancelled,
            Err(error) if is_missing(&error) => {
                BootResult::Skipped(boot.config.clone(), error.to_string())
            }
            Err(error) => {
                let entry = inventory.entry(boot.config.environment);
                let facts = entry.map(|entry| entry.environment.facts());
                BootResult::Hopeless(failed(boot, facts.unwrap_or_default(), &error))
            }
        }
    }

    /// Executes what no guest repeats.
    fn long(&self, inventory: &Inventory, boot: &PlannedBoot) -> Result<Booted, EnvError> {
        let limits = self.limits(boot);
        let mut report = |progress| {
            let event = RunEvent::BootProgress(boot, progress);
            self.context.events.handle(event);
        };
        let mut booted = long::boot(inventory.settings(), self.roots, boot, &limits, &mut report)?;
        // Of the environment: kernel, QEMU and parts. A forwarder is not in the inventory, and has none.
        let entry = inventory.entry(boot.config.environment);
        let known = entry.map(|entry| entry.environment.facts());
        for (name, value) in known.into_iter().flatten() {
            booted.observation.facts.entry(name).or_insert(value);
        }
        Ok(booted)
    }

    fn limits(&self, boot: &PlannedBoot) -> Limits {
        Limits {
            timeout: self.context.timeout.unwrap_or(default_timeout(boot)),
            stop: self.context.interrupt.flag(),
        }
    }

    /// Executes all starts of a boot, one after the other.
    fn all_starts(
        &self,
        entry: &EnvironmentEntry,
        image: &GuestImage,
        boot: &PlannedBoot,
    ) -> Result<Booted, EnvError> {
        let mut booted = self.start(entry, image, boot)?;
        for further in &boot.further {
            let started = match booted.error.take() {
                Some(EnvError::Stopped) => return Err(EnvError::Stopped),
                Some(error) if is_hopeless(&error) => Err(error),
                earlier => self.start(entry, image, further).map(|started| Booted {
                    error: earlier.or(started.error),
                    ..started
                }),
            };
            let started = started.or_else(|error| match error {
                EnvError::Stopped => Err(error),
                _ => Ok(Booted {
                    observation: failed(further, entry.environment.facts(), &error),
                    error: Some(error),
                }),
            })?;
            booted.observation.append(started.observation, STREAM_HASH);
            booted.error = started.error;
        }
        Ok(booted)
    }

    /// Starts the environment once, and counts instructions or traces interrupts if enabled. Keeps the outcomes that
    /// the boot is to keep.
    fn start(
        &self,
        entry: &EnvironmentEntry,
        image: &GuestImage,
        boot: &PlannedBoot,
    ) -> Result<Booted, EnvError> {
        let mut booted = self.start_whole(entry, image, boot)?;
        let operations = &mut booted.observation.operations;
        let skipped = LeftOut::union(&boot.left_out);
        operations.retain(|it| {
            it.op
                .guest()
                .is_some_and(|op| (boot.kept | skipped).contains(op))
        });
        Ok(booted)
    }

    fn start_whole(
        &self,
        entry: &EnvironmentEntry,
        image: &GuestImage,
        boot: &PlannedBoot,
    ) -> Result<Booted, EnvError> {
        let watch = self.limits(boot);
        let events = self.context.events;
        let boot_in = |environment: &dyn Environment| {
            let mut report = |progress| events.handle(RunEvent::BootProgress(boot, progress));
            trapline_environments::boot(environment, image, boot, &watch, &mut report)
        };
        if let Some(tracers) = self.options.irq_tracers {
            let traced = tracers.attach(boot.config.environment)?;
            let environment = traced
                .as_ref()
                .map_or(&entry.environment, |it| &it.environment);
            let mut booted = boot_in(environment.as_ref())?;
            tracers.annotate(&mut booted.observation, traced.as_ref());
            return Ok(booted);
        }
        let inventory = self.context.inventory.with_files_of(&boot.config.overrides);
        let Some(counters) = self.options.counters else {
            return match self.lengths.attach(inventory, boot)? {
                Attached::Nothing => boot_in(entry.environment.as_ref()),
                Attached::Included(reason) => {
                    let mut booted = boot_in(entry.environment.as_ref())?;
                    lengths::include(&mut booted.observation, &reason);
                    Ok(booted)
                }
                Attached::Counted(counted) => {
                    let mut booted = boot_in(counted.environment.as_ref())?;
                    lengths::exclude(&mut booted.observation, &counted.windows());
                    Ok(booted)
                }
            };
        };
        let id = boot.config.environment;
        let counted = counters.attach(id, inventory.settings())?;
        let mut booted = boot_in(counted.environment.as_ref());
        let windows = counted.windows();
        if let (Ok(booted), true) = (&mut booted, id.stack().finds_lengths()) {
            lengths::exclude(&mut booted.observation, &windows);
        }
        let observation = booted.as_ref().ok().map(|booted| &booted.observation);
        counters.store(boot, windows, observation);
        booted
    }
}

/// Returns whether every operation has failed.
fn has_failed(booted: &Booted) -> bool {
    let mut operations = booted.observation.operations.iter();
    operations.all(|it| matches!(it.outcome, Outcome::Failed(_)))
}

/// Returns whether another start would fail the same way.
fn is_hopeless(error: &EnvError) -> bool {
    matches!(
        error,
        EnvError::TimedOut { .. } | EnvError::SimulatedTimeout { .. }
    )
}

/// Returns whether a component is missing rather than broken.
fn is_missing(error: &EnvError) -> bool {
    matches!(error, EnvError::Unavailable(_))
}

/// Returns the observation of a boot in which nothing could be started.
fn failed(boot: &PlannedBoot, facts: Facts, error: &EnvError) -> Observation {
    let operations = boot.operations();
    let operations =
        operations.map(|op| OperationResult::new(op, Outcome::Failed(error.with_remedy())));
    Observation {
        config: boot.config.clone(),
        clock: boot.config.clock(),
        replicate: boot.replicate,
        unit_per_tick: 1.0,
        operations: operations.collect(),
        launches: Vec::new(),
        facts,
        log: String::new(),
        problems: Vec::new(),
        host: String::new(),
    }
}

impl From<Booted> for BootResult {
    fn from(booted: Booted) -> Self {
        match booted.error {
            // Operations that a cancelled boot did not reach have not failed.
            Some(EnvError::Stopped) => Self::Cancelled,
            Some(error) if is_hopeless(&error) => Self::Hopeless(booted.observation),
            _ => Self::Observed(booted.observation),
        }
    }
}

impl BootResult {
    /// Returns the observation, if there is one.
    pub fn observation(&mut self) -> Option<&mut Observation> {
        match self {
            Self::Observed(observation) | Self::Hopeless(observation) => Some(observation),
            Self::Skipped(..) | Self::Cancelled => None,
        }
    }

    /// Returns whether another boot of the same config would fail the same way.
    pub fn is_hopeless(&self) -> bool {
        matches!(self, Self::Skipped(..) | Self::Hopeless(_))
    }

    /// Passes the result to `sink`. Returns false if the boot was cancelled.
    ///
    /// # Errors
    /// The sink fails.
    pub fn store(self, sink: &mut dyn ObservationSink) -> Result<bool, Failure> {
        match self {
            Self::Cancelled => return Ok(false),
            Self::Observed(observation) | Self::Hopeless(observation) => {
                sink.observed(observation)?
            }
            Self::Skipped(config, reason) => sink.skipped(&config, &reason)?,
        }
        Ok(true)
    }
}
