//! Sinks of observations.

use crate::failure::Failure;
use std::collections::BTreeSet;
use trapline_model::{Config, Host, Observation};
use trapline_store::{RunId, Store};

/// Receives the observation of each boot as soon as the boot is over.
pub trait ObservationSink {
    /// Adds an observation.
    ///
    /// # Errors
    /// It cannot be stored. The run ends.
    fn observed(&mut self, observation: Observation) -> Result<(), Failure>;

    /// Adds the reason why a config cannot be booted. May be called repeatedly.
    ///
    /// # Errors
    /// See [`Self::observed`].
    fn skipped(&mut self, config: &Config, reason: &str) -> Result<(), Failure>;
}

/// Stores observations as part of a run.
pub struct StoreSink<'a> {
    store: &'a mut Store,
    run: RunId,
    /// The host of this process.
    host: &'a Host,
    /// Configs whose skip is stored.
    skipped: BTreeSet<Config>,
}

impl<'a> StoreSink<'a> {
    /// Creates a sink that adds boots of `host` to `run`.
    pub fn new(store: &'a mut Store, run: RunId, host: &'a Host) -> Self {
        Self {
            store,
            run,
            host,
            skipped: BTreeSet::new(),
        }
    }
}

impl ObservationSink for StoreSink<'_> {
    fn observed(&mut self, observation: Observation) -> Result<(), Failure> {
        let observation = Observation {
            host: self.host.id.clone(),
            ..observation
        };
        let added = self.store.add_observation(self.run, &observation);
        Ok(added?)
    }

    fn skipped(&mut self, config: &Config, reason: &str) -> Result<(), Failure> {
        if !self.skipped.insert(config.clone()) {
            return Ok(());
        }
        Ok(self.store.add_skip(self.run, config, reason)?)
    }
}
