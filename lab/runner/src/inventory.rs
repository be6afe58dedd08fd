//! The environments of this host and their availability, which is checked on first use.

use crate::failure::Failure;
use crate::file_overrides;
use crate::long;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::thread;
use trapline_abi::{OpSet, Workload};
use trapline_environments::{EnvError, Environment, GuestImage, Settings};
use trapline_model::layers::Guest;
use trapline_model::request::usual_operations;
use trapline_model::{
    expand, vmms, Config, EnvironmentId, Feature, FileOverride, GuestConfig, Operation, Overrides,
    Request, Sched, Scheduling, Unavailable,
};

/// All environments, with the settings they are made from.
pub struct Inventory {
    settings: Settings,
    /// Settings of every configuration that does not set them itself.
    overrides: Overrides,
    sched: Sched,
    entries: Vec<EnvironmentEntry>,
    /// Inventories with other files in place of the default ones.
    overridden: BTreeMap<Files, Inventory>,
    /// The image, cached on first use: it is hashed, and boots must not wait for that.
    image: OnceLock<GuestImage>,
}

/// Replacements of default files.
type Files = BTreeMap<FileOverride, String>;

/// An environment and its availability.
pub struct EnvironmentEntry {
    /// Name.
    pub id: EnvironmentId,
    /// Launches guests.
    pub environment: Box<dyn Environment>,
    overrides: Overrides,
    availability: OnceLock<Result<(), Unavailable>>,
}

impl EnvironmentEntry {
    fn new(environment: Box<dyn Environment>, overrides: &Overrides) -> Self {
        Self {
            id: environment.id(),
            environment,
            overrides: overrides.clone(),
            availability: OnceLock::new(),
        }
    }

    /// Returns the reason why the environment is unavailable, if it is. The first call checks it.
    pub fn unavailable(&self) -> Option<&Unavailable> {
        let checked = self.availability.get_or_init(|| self.check());
        checked.as_ref().err()
    }

    fn check(&self) -> Result<(), Unavailable> {
        match self.overrides.unsupported_options(self.id) {
            Some(reason) => Err(Unavailable::new(reason)),
            None => self
                .environment
                .check(&guest(&self.id.into(), &self.overrides)),
        }
    }
}

impl Inventory {
    /// Returns all environments. Checks none.
    pub fn new(settings: Settings, overrides: Overrides, sched: Sched) -> Self {
        let environments = trapline_environments::all(&settings).into_iter();
        let entries = environments.map(|it| EnvironmentEntry::new(it, &overrides));
        Self {
            entries: entries.collect(),
            settings,
            overrides,
            sched,
            overridden: BTreeMap::new(),
            image: OnceLock::new(),
        }
    }

    /// Adds an inventory for each set of replaced files in `configs`.
    ///
    /// # Errors
    /// A file does not exist.
    pub fn with_overrides(mut self, configs: &[Config]) -> Result<Self, Failure> {
        let all = configs.iter().map(|config| config.overrides.files());
        for files in all.filter(|files| !files.is_empty()) {
            if !self.overridden.contains_key(&files) {
                let settings = file_overrides::apply(self.settings.clone(), &files)?;
                let other = Self::new(settings, self.overrides.clone(), self.sched);
                self.overridden.insert(files, other);
            }
        }
        Ok(self)
    }

    /// Returns the inventory with the files of `variant`.
    pub fn with_files_of(&self, overrides: &Overrides) -> &Self {
        self.overridden.get(&overrides.files()).unwrap_or(self)
    }

    /// Returns all environments in table order.
    pub fn entries(&self) -> &[EnvironmentEntry] {
        &self.entries
    }

    /// Returns the settings that environments are made from.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the settings of every configuration that does not set them itself.
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// Returns how virtual CPUs of Xen domains are scheduled.
    pub fn scheduling(&self) -> Scheduling {
        let mut guest = GuestConfig::DEFAULT;
        self.overrides.apply(&mut guest);
        guest.scheduling
    }

    /// Returns the scheduler and policy of virtual CPUs.
    pub fn sched(&self) -> Sched {
        self.sched
    }

    /// Returns the guest of a configuration.
    pub fn guest(&self, config: &Config) -> GuestConfig {
        guest(config, &self.overrides)
    }

    /// Returns the reason why an environment is unavailable, if it is.
    pub fn unavailable(&self, id: EnvironmentId) -> Option<&Unavailable> {
        self.entry(id)?.unavailable()
    }

    /// Returns the reason why a config cannot be measured, if it cannot. `long` are its operations that no guest repeats.
    pub fn unavailable_config(&self, config: &Config, long: &[Operation]) -> Option<Unavailable> {
        let inventory = self.with_files_of(&config.overrides);
        let unavailable = inventory.unavailable(config.environment);
        unavailable
            .cloned()
            .or_else(|| long::unavailable(&self.settings, config, long))
    }

    /// Returns the entry of one environment.
    pub fn entry(&self, id: EnvironmentId) -> Option<&EnvironmentEntry> {
        self.entries.iter().find(|entry| entry.id == id)
    }

    /// Returns those of `configs` that can be measured. Checks them in parallel. `long` as in [`Self::unavailable_config`].
    pub fn ready(&self, configs: &[Config], long: &[Operation]) -> Vec<Config> {
        thread::scope(|scope| {
            for config in configs {
                // Without a thread it is checked below.
                let _ = thread::Builder::new()
                    .spawn_scoped(scope, || self.unavailable_config(config, long).is_some());
            }
        });
        let is_ready = |config: &&Config| self.unavailable_config(config, long).is_none();
        configs.iter().filter(is_ready).cloned().collect()
    }

    /// Returns why this host has no taps, if `operations` measure a network and it has none.
    pub fn without_taps(&self, operations: OpSet) -> Option<String> {
        if !operations.intersects(Workload::Net.set()) || self.settings.recordings().is_some() {
            return None;
        }
        let checked = trapline_environments::check_taps(&self.settings);
        checked
            .err()
            .map(|error| Unavailable::from(error).to_string())
    }

    /// Passes the environments that are wanted in table order to `show`. Checks them in parallel, and passes each as soon
    /// as it and those before it are checked.
    ///
    /// # Errors
    /// `show` fails.
    pub fn try_for_each<E>(
        &self,
        is_wanted: impl Fn(EnvironmentId) -> bool,
        mut show: impl FnMut(&EnvironmentEntry) -> Result<(), E>,
    ) -> Result<(), E> {
        let wanted = || self.entries.iter().filter(|entry| is_wanted(entry.id));
        thread::scope(|scope| {
            for entry in wanted() {
                // Without a thread it is checked below.
                let _ =
                    thread::Builder::new().spawn_scoped(scope, || entry.unavailable().is_some());
            }
            wanted().try_for_each(|entry| {
                entry.unavailable();
                show(entry)
            })
        })
    }

    /// Returns whether an environment is measured by default: a usual one, or a custom one if the user has configured its
    /// VMM.
    pub fn is_default(&self, id: EnvironmentId) -> bool {
        let is_defined =
            |name| !vmms::is_built_in(name) && self.settings.custom_vmm(name, Guest::Image).is_ok();
        let is_image = id.stack().guest == Guest::Image;
        id.has(Feature::Default) || is_image && id.custom_vmm().is_some_and(is_defined)
    }

    /// Returns `chosen`, or if it is empty the environments that are measured by default: the usual
    /// ones and custom ones if a VMM is configured. If none of them supports the options, those that do.
    pub fn select(&self, chosen: &[EnvironmentId]) -> Vec<EnvironmentId> {
        if !chosen.is_empty() {
            return chosen.to_vec();
        }
        let all = EnvironmentId::all();
        let usual = all
            .clone()
            .filter(|id| self.is_default(*id) && self.sched.is_supported_by(*id));
        let supports = |id: &EnvironmentId| self.overrides.unsupported_options(*id).is_none();
        if usual.clone().any(|id| supports(&id)) {
            usual.collect()
        } else {
            all.filter(supports).collect()
        }
    }

    /// Returns the guest image.
    ///
    /// # Errors
    /// The file does not exist.
    pub fn image(&self) -> Result<GuestImage, EnvError> {
        if let Some(image) = self.image.get() {
            return Ok(image.clone());
        }
        let image = self.settings.parts.image()?;
        Ok(self.image.get_or_init(|| image).clone())
    }
}

/// Returns the guest of a configuration in plans. The environment supports the settings. A guest that
/// is too small for its work has no boots, and the plan says why: it is checked as the default one.
fn guest(config: &Config, overrides: &Overrides) -> GuestConfig {
    let plan = expand::expand(&Request {
        configs: vec![config.clone()],
        ready: vec![config.clone()],
        operations: usual_operations(),
        boots: Some(1),
        overrides: overrides.clone(),
        ..Request::default()
    });
    plan.boots
        .first()
        .map_or(GuestConfig::DEFAULT, |boot| boot.guest)
}
