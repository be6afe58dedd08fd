//! What every environment offers, and what every guest goes through.

use crate::observe::Finished;
use std::time::Duration;
use trapline_abi::{Job, Op};
use trapline_host::{Error, Facts, GuestImage, Limits};
use trapline_model::{Conditions, EnvironmentId, GuestConfig, Scheduling};
use trapline_protocol::Window;

/// What a boot needs of an environment.
#[derive(Clone, Copy, Debug)]
pub struct Requirements {
    /// Configuration of the guest.
    pub guest: GuestConfig,
}

/// Whether an environment can be used here and now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It can.
    Ready,
    /// It cannot, for this reason; ends with the command that mends it, if any does.
    Missing(String),
}

/// A stack of layers that can run guests.
pub trait Environment: Send + Sync {
    /// Its name.
    fn id(&self) -> EnvironmentId;

    /// Whether it can be used for `need`. Starts no guest and downloads nothing.
    fn supports(&self, need: &Requirements) -> Availability;

    /// What it is made of, as far as that is known without starting it.
    fn facts(&self) -> Facts;

    /// Prepares a guest with `image` in `machine`. Nothing runs yet.
    ///
    /// # Errors
    /// The environment is not ready, see [`Self::supports`].
    fn launch(&self, image: &GuestImage, machine: &GuestConfig) -> Result<Box<dyn Guest>, Error>;
}

/// What one boot of an environment has to do.
#[derive(Clone, Debug)]
pub struct Work {
    /// What the first launch measures; nothing if its set of operations is empty.
    pub job: Job,
    /// What each further launch is asked, see [`trapline_model::PlannedBoot`].
    pub boot_job: Job,
    /// How many further launches there are.
    pub boot_launches: u32,
    /// Conditions of the first launch.
    pub conditions: Conditions,
    /// Scheduling of the first launch's virtual CPU.
    pub scheduling: Scheduling,
}

impl Work {
    /// The jobs of all launches, in order. A first launch with nothing to measure
    /// is left out if others follow.
    pub fn jobs(&self) -> Vec<Job> {
        let measures = self.job.run != 0 || self.boot_launches == 0;
        let first = measures.then_some(self.job);
        let further = std::iter::repeat_n(self.boot_job, self.boot_launches as usize);
        first.into_iter().chain(further).collect()
    }
}

/// A guest, from preparation to its end. The calls come in the order in which
/// they stand here, all from one thread: guests die with the thread that started
/// them. Dropping a guest at any time kills and reaps it.
pub trait Guest {
    /// Fixes what it has to do. Several guests are made ready before the first
    /// goes, so this takes whatever time preparation takes: a simulated machine
    /// boots here.
    ///
    /// # Errors
    /// Something that it needs is missing, or preparation fails.
    fn ready(&mut self, work: &Work, limits: &Limits) -> Result<(), Error>;

    /// Starts it.
    ///
    /// # Errors
    /// It cannot be started.
    fn go(&mut self, limits: &Limits) -> Result<(), Error>;

    /// Hears it to its end, which `limits` limits. Whatever was heard is handed to
    /// `out`, also if this fails.
    ///
    /// # Errors
    /// It did not end well.
    fn collect(&mut self, limits: &Limits, out: &mut dyn SampleSink) -> Result<(), Error>;

    /// Ends it early: asks, waits for `grace`, and kills.
    fn stop(self: Box<Self>, grace: Duration);
}

/// Who takes what guests say.
pub trait SampleSink {
    /// Something has begun.
    fn progress(&mut self, progress: Progress);

    /// Something about the environment is known only now.
    fn fact(&mut self, name: &str, value: String);

    /// A launch is over.
    fn finished(&mut self, finished: Finished);
}

/// What a guest is doing now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A launch, of so many, has begun.
    Launch {
        /// Which, from 0.
        number: usize,
        /// Of how many.
        of: usize,
    },
    /// An operation has begun.
    Operation(Op),
    /// A window of interrupts is complete; its figures are in units of the clock.
    Window(Window),
}
