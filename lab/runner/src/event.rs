//! Progress of a run, as events.

use std::time::Duration;
use trapline_environments::Progress;
use trapline_model::{Observation, PlannedBoot};

/// A step of a run.
#[derive(Clone, Copy, Debug)]
pub enum RunEvent<'a> {
    /// A run of this many boots starts.
    Started {
        /// Boots.
        boots: usize,
    },
    /// An earlier run of the same request took this time, from its first boot on. Precedes [`Self::Started`].
    Expected(Duration),
    /// A boot starts.
    BootStarted(&'a PlannedBoot),
    /// The guest of a boot reports progress.
    BootProgress(&'a PlannedBoot, Progress),
    /// A single task of unknown length starts.
    TaskStarted(&'a str),
    /// A boot is over.
    BootDone(&'a PlannedBoot),
    /// A boot was observed. Precedes its storage.
    Observed(&'a Observation),
    /// The run or the task is over.
    Finished,
    /// A remark for the user.
    Note(&'a str),
}

/// Receives the events of a run, from several threads.
pub trait EventHandler: Sync {
    /// Handles one event. Boots wait until it returns.
    fn handle(&self, event: RunEvent<'_>);
}
