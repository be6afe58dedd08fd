//! The environments of this host and their availability.

use crate::failure::Failure;
use crate::file_overrides;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use trapline_environments::{
    Availability, EnvError, Environment, GuestImage, Requirements, Settings,
};
use trapline_model::request::usual_operations;
use trapline_model::{
    expand, Contender, EnvironmentId, FileOverride, MachineSpec, Request, Sched, Scheduling,
    Variant,
};

/// All environments, with the settings they are made from.
pub struct Inventory {
    settings: Settings,
    scheduling: Scheduling,
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
    /// Ready, or the reason why not.
    pub availability: Availability,
}

impl EnvironmentEntry {
    fn new(environment: Box<dyn Environment>, scheduling: Scheduling) -> Self {
        let id = environment.id();
        let machine = machine(id, scheduling);
        Self {
            id,
            availability: environment.supports(&Requirements { machine }),
            environment,
        }
    }

    /// Returns the reason why the environment is unavailable, if it is.
    pub fn unavailable_reason(&self) -> Option<&str> {
        match &self.availability {
            Availability::Ready => None,
            Availability::Missing(reason) => Some(reason),
        }
    }
}

impl Inventory {
    /// Checks the availability of every environment. Starts no guest.
    pub fn new(settings: Settings, scheduling: Scheduling, sched: Sched) -> Self {
        let environments = trapline_environments::all(&settings).into_iter();
        let entries = environments.map(|it| EnvironmentEntry::new(it, scheduling));
        Self {
            entries: entries.collect(),
            settings,
            scheduling,
            sched,
            overridden: BTreeMap::new(),
            image: OnceLock::new(),
        }
    }

    /// Adds an inventory for each set of replaced files in `contenders`.
    ///
    /// # Errors
    /// A file does not exist.
    pub fn with_overrides(mut self, contenders: &[Contender]) -> Result<Self, Failure> {
        let all = contenders.iter().map(|contender| &contender.variant.given);
        for files in all.filter(|files| !files.is_empty()) {
            if !self.overridden.contains_key(files) {
                let settings = file_overrides::apply(self.settings.clone(), files)?;
                let other = Self::new(settings, self.scheduling, self.sched);
                self.overridden.insert(files.clone(), other);
            }
        }
        Ok(self)
    }

    /// Returns the inventory with the files of `variant`.
    pub fn for_variant(&self, variant: &Variant) -> &Self {
        self.overridden.get(&variant.given).unwrap_or(self)
    }

    /// Returns all environments in table order.
    pub fn entries(&self) -> &[EnvironmentEntry] {
        &self.entries
    }

    /// Returns the settings that environments are made from.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns how virtual CPUs of Xen domains are scheduled.
    pub fn scheduling(&self) -> Scheduling {
        self.scheduling
    }

    /// Returns the scheduler and policy of virtual CPUs.
    pub fn sched(&self) -> Sched {
        self.sched
    }

    /// Returns the machine of this environment's guest.
    pub fn machine(&self, id: EnvironmentId) -> MachineSpec {
        machine(id, self.scheduling)
    }

    /// Returns the reason why an environment is unavailable, if it is.
    pub fn unavailable_reason(&self, id: EnvironmentId) -> Option<&str> {
        self.entry(id)?.unavailable_reason()
    }

    /// Returns the reason why a contender cannot be measured, if it cannot.
    pub fn unavailable_contender(&self, contender: &Contender) -> Option<&str> {
        let inventory = self.for_variant(&contender.variant);
        inventory.unavailable_reason(contender.environment)
    }

    /// Returns the entry of one environment.
    pub fn entry(&self, id: EnvironmentId) -> Option<&EnvironmentEntry> {
        self.entries.iter().find(|entry| entry.id == id)
    }

    /// Returns the environments that are available, in their default configuration.
    pub fn ready(&self) -> Vec<Contender> {
        let ready = self.entries.iter();
        let ready = ready.filter(|entry| entry.unavailable_reason().is_none());
        ready.map(|entry| entry.id.into()).collect()
    }

    /// Returns `chosen`, or if it is empty the environments that are measured by default: the usual
    /// ones and custom ones if a VMM is configured; with scheduling options those that support them.
    pub fn select(&self, chosen: &[EnvironmentId]) -> Vec<EnvironmentId> {
        if !chosen.is_empty() {
            return chosen.to_vec();
        }
        let has_vmm = self.settings.vmm.is_some();
        let is_default = |id: &EnvironmentId| match self.scheduling {
            Scheduling::USUAL => {
                (id.is_default() || has_vmm && id.is_custom()) && self.sched.is_supported_by(*id)
            }
            scheduling => scheduling.is_supported_by(*id),
        };
        EnvironmentId::ALL.into_iter().filter(is_default).collect()
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

/// Returns the machine of an environment's guest, as a plan assigns it.
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
