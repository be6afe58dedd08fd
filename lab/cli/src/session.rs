//! Environments, cancellation and progress of a measuring command.

use crate::args::{EnvironmentOptions, RunOptions};
use crate::doctor;
use crate::progress::Progress;
use crate::store_path::store_path;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use trapline_environments::{Settings, Start};
use trapline_runner::{Failure, Interrupt, Inventory, RunContext};
use trapline_store::Store;

/// Everything that the runs of a command share.
pub struct Session {
    pub inventory: Inventory,
    pub interrupt: Interrupt,
    progress: Progress,
    timeout: Option<Duration>,
    host_facts: BTreeMap<String, String>,
    user_facts: BTreeMap<String, String>,
}

impl Session {
    /// Opens a session whose runs are stored.
    ///
    /// # Errors
    /// Signal handlers cannot be installed.
    pub fn open(options: &RunOptions, inventory: Inventory) -> Result<Self, Failure> {
        Ok(Self {
            host_facts: doctor::facts(),
            user_facts: options.facts.iter().cloned().collect(),
            ..Self::without_store(inventory, options.timeout, options.quiet)?
        })
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
        Ok(Self {
            inventory,
            interrupt: Interrupt::install()?,
            progress: Progress::new(quiet),
            timeout: timeout.map(Duration::from_secs),
            host_facts: BTreeMap::new(),
            user_facts: BTreeMap::new(),
        })
    }

    /// Returns the context of its runs.
    pub fn context(&self) -> RunContext<'_> {
        RunContext {
            inventory: &self.inventory,
            interrupt: &self.interrupt,
            events: &self.progress,
            timeout: self.timeout,
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
    Ok(Store::open(&store_path(&options.store)?)?)
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
        let scheduling = &self.scheduling;
        let settings = change(self.settings()?);
        Ok(Inventory::new(
            settings,
            scheduling.scheduling(),
            scheduling.sched(),
        ))
    }

    fn settings(&self) -> Result<Settings, Failure> {
        let mut settings = Settings::find()?;
        require_path("--kernel", "file", self.kernel.as_deref(), Path::is_file)?;
        require_path(
            "--modules",
            "directory",
            self.modules.as_deref(),
            Path::is_dir,
        )?;
        settings.cache.limit = self.snapshots.cache_limit;
        if self.snapshots.fresh {
            settings.start = Start::Boot;
        }
        settings.kernel = self.kernel.clone().zip(self.modules.clone());
        if let Some(vmm) = &self.vmm {
            let program = vmm.program();
            program.map_err(|error| {
                Failure::from_error(&error).status(crate::failure::Status::Usage)
            })?;
        }
        settings.vmm = self.vmm.clone();
        Ok(settings)
    }

    /// # Errors
    /// `--sched` is a policy of threads.
    pub fn reject_thread_policy(&self) -> Result<(), Failure> {
        let sched = self.scheduling.sched();
        match sched.is_of_thread() {
            false => Ok(()),
            true => Err(Failure::usage(
                format!("--sched {sched} is supported by workload irq only"),
                "use 'trapline irq', or name a scheduler of Xen: credit or credit2",
            )),
        }
    }
}

fn require_path(
    option: &str,
    kind: &str,
    path: Option<&Path>,
    exists: fn(&Path) -> bool,
) -> Result<(), Failure> {
    match path.filter(|path| !exists(path)) {
        None => Ok(()),
        Some(path) => Err(Failure::usage(
            format!("{option}: no such {kind}: {}", path.display()),
            "leave --kernel and --modules out to use the distribution's kernel",
        )),
    }
}
