//! Context of runs.

use crate::event::{EventHandler, RunEvent};
use crate::interrupt::Interrupt;
use crate::inventory::Inventory;
use std::collections::BTreeMap;
use std::time::Duration;
use trapline_model::{Host, Overrides};

/// Shared by all runs of a command.
#[derive(Clone, Copy)]
pub struct RunContext<'a> {
    /// The environments.
    pub inventory: &'a Inventory,
    /// Cancels the run.
    pub interrupt: &'a Interrupt,
    /// Receives progress.
    pub events: &'a dyn EventHandler,
    /// Limit for one boot; by default a multiple of what its environment usually takes.
    pub timeout: Option<Duration>,
    /// The host of this process.
    pub host: &'a Host,
    /// Facts of the host, stored with the run. A run is resumed only while they are equal.
    pub host_facts: &'a BTreeMap<String, String>,
    /// Further facts from the user, stored with the run.
    pub user_facts: &'a BTreeMap<String, String>,
}

impl RunContext<'_> {
    /// Returns the same context with the files of these settings.
    pub fn with_files_of(&self, overrides: &Overrides) -> Self {
        Self {
            inventory: self.inventory.with_files_of(overrides),
            ..*self
        }
    }

    /// Reports a remark.
    pub fn note(&self, text: &str) {
        self.events.handle(RunEvent::Note(text));
    }
}
