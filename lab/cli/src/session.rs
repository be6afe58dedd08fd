//! Environments, cancellation and progress of a measuring command.

use crate::args::{EnvironmentOptions, RunOptions};
use crate::doctor;
use crate::outcome;
use crate::progress::Progress;
use crate::store_path::store_path;
use crate::terminal;
use std::collections::BTreeMap;
use std::time::Duration;
use trapline_environments::{Settings, Start};
use trapline_host::host_noise::NoiseSampler;
use trapline_model::{Config, Host, Overrides};
use trapline_report::{host_noise, Report};
use trapline_runner::{file_overrides, Failure, Interrupt, Inventory, RunContext, Status};
use trapline_store::{Run, Store};

/// Everything that the runs of a command share.
pub struct Session {
    pub inventory: Inventory,
    pub interrupt: Interrupt,
    progress: Progress,
    timeout: Option<Duration>,
    host: Host,
    host_facts: BTreeMap<String, String>,
    /// Load on the host while the session was opened.
    host_noise: Vec<(String, String)>,
    user_facts: BTreeMap<String, String>,
    allow_lost: usize,
}

impl Session {
    /// Opens a session whose runs are stored.
    ///
    /// # Errors
    /// Signal handlers cannot be installed, or a fact is given twice.
    pub fn open(options: &RunOptions, inventory: Inventory) -> Result<Self, Failure> {
        let mut session = Self::without_store(inventory, options.timeout, options.quiet)?;
        session.allow_lost = options.allow_lost.unwrap_or_default();
        for (name, value) in &options.facts {
            if session
                .user_facts
                .insert(name.clone(), value.clone())
                .is_some()
            {
                let help = "give each fact once";
                return Err(Failure::usage(
                    format!("--fact {name} was given twice"),
                    help,
                ));
            }
        }
        session.progress.begin("checking environments");
        let noise = NoiseSampler::begin();
        session.host_facts = doctor::facts();
        session.host = doctor::host(&session.host_facts)?;
        session.host_noise = noise.end();
        Ok(session)
    }

    /// Opens a session that stores nothing.
    ///
    /// # Errors
    /// Signal handlers cannot be installed.
    pub fn without_store(
        inventory: Inventory,
        timeout: Option<u64>,
        quiet: bool,
    ) -> Result<Self, Failure> {
        let mut progress = Progress::new(quiet);
        progress.watch();
        Ok(Self {
            inventory,
            interrupt: Interrupt::install()?,
            progress,
            timeout: timeout.map(Duration::from_secs),
            host: Host::default(),
            host_facts: BTreeMap::new(),
            host_noise: Vec::new(),
            user_facts: BTreeMap::new(),
            allow_lost: 0,
        })
    }

    /// Shows the sentence of the boots of a run so far from now on, whenever it changes.
    pub fn show_findings(&mut self) {
        self.progress.show_findings();
    }

    /// Warns of load on the host, if the wall clock is to be measured.
    pub fn warn_of_load(&self, configs: &[Config], quiet: bool) {
        let is_wall = |config: &Config| !config.environment.clock().is_exact();
        if quiet || self.host_noise.is_empty() || !configs.iter().any(is_wall) {
            return;
        }
        let noise = self.host_noise.iter();
        let noise = noise.map(|(name, value)| host_noise::describe(doctor::kind(name), value));
        let noise = noise.collect::<Vec<_>>().join(", ");
        terminal::print_error(&format!("warning: the host is not at rest: {noise}"));
        terminal::print_error(&format!("help: {}", doctor::REST));
    }

    /// Returns the report of one of its runs.
    pub fn report(&self, run: &Run) -> Report {
        Report {
            allowed_losses: self.allow_lost,
            ..outcome::report(run)
        }
    }

    /// Returns the context of its runs.
    pub fn context(&self) -> RunContext<'_> {
        RunContext {
            inventory: &self.inventory,
            interrupt: &self.interrupt,
            events: &self.progress,
            timeout: self.timeout,
            host: &self.host,
            host_facts: &self.host_facts,
            user_facts: &self.user_facts,
        }
    }
}

/// Opens the store named by `options`, or the default one.
///
/// # Errors
/// It cannot be opened for writing.
pub fn open_store(options: &RunOptions) -> Result<Store, Failure> {
    Ok(Store::open(&store_path(options.store.file.as_deref())?)?)
}

impl EnvironmentOptions {
    /// Returns the environments with these options.
    ///
    /// # Errors
    /// An option is invalid, or a file that it names does not exist.
    pub fn inventory(&self) -> Result<Inventory, Failure> {
        self.reject_thread_policy()?;
        self.inventory_with(|settings| settings)
    }

    /// Returns the environments with these options and changed settings. Thread policies are allowed:
    /// the workload irq supports them.
    ///
    /// # Errors
    /// A file named by an option does not exist.
    pub fn inventory_with(
        &self,
        change: impl FnOnce(Settings) -> Settings,
    ) -> Result<Inventory, Failure> {
        let overrides = self.overrides();
        let settings = change(self.settings(&overrides)?);
        Ok(Inventory::new(settings, overrides, self.sched()))
    }

    /// Returns the environments with these options and further settings of their guests.
    ///
    /// # Errors
    /// An option is invalid, or a file that it names does not exist.
    pub fn inventory_of(&self, overrides: Overrides) -> Result<Inventory, Failure> {
        self.reject_thread_policy()?;
        let settings = self.settings(&overrides)?;
        Ok(Inventory::new(settings, overrides, self.sched()))
    }

    fn settings(&self, overrides: &Overrides) -> Result<Settings, Failure> {
        let mut settings = Settings::find()?;
        settings.cache.limit = self.snapshots.cache_limit;
        if self.snapshots.fresh {
            settings.start = Start::Boot;
        }
        if let Some(vmm) = &self.files.vmm {
            let program = vmm.program();
            program.map_err(|error| Failure::from(error).status(Status::Usage))?;
        }
        settings.vmm = self.files.vmm.clone();
        file_overrides::apply(settings, &overrides.files())
    }

    /// # Errors
    /// `--sched` is a policy of threads.
    pub fn reject_thread_policy(&self) -> Result<(), Failure> {
        let sched = self.sched();
        if sched.is_of_thread() {
            Err(Failure::usage(
                format!("--sched {sched} is supported by workload irq only"),
                "use 'trapline irq', or name a scheduler of Xen: credit or credit2",
            ))
        } else {
            Ok(())
        }
    }
}
