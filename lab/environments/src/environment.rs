//! Interface of environments and their guests.

use crate::launch::FinishedLaunch;
use std::hash::{BuildHasher, RandomState};
use std::iter::repeat_n;
use std::time::Duration;
use trapline_abi::{Job, OpSet};
use trapline_host::{Error, Facts, GuestImage, Limits};
use trapline_model::{Conditions, EnvironmentId, GuestConfig, Operation, Scheduling, Unavailable};
use trapline_protocol::Window;

/// A stack of layers that can run guests.
pub trait Environment: Send + Sync {
    /// Returns its name.
    fn id(&self) -> EnvironmentId;

    /// Checks whether it can run `guest` on this host. Starts no guest and downloads nothing.
    ///
    /// # Errors
    /// The first requirement that is not met.
    fn check(&self, guest: &GuestConfig) -> Result<(), Unavailable>;

    /// Returns the facts known before a guest is started.
    fn facts(&self) -> Facts;

    /// Creates a guest with `image` and configuration `guest`. Starts no process.
    ///
    /// # Errors
    /// A requirement is not met, see [`Self::check`].
    fn launch(&self, image: &GuestImage, guest: &GuestConfig) -> Result<Box<dyn Guest>, Error>;

    /// Returns the number of the jobs of this boot, different in each boot, which its guests repeat; 0 for none. On
    /// exact clocks all boots have the same job.
    fn nonce(&self) -> u64 {
        if self.id().clock().is_exact() {
            0
        } else {
            // Never 0.
            RandomState::new().hash_one("number of a job") | 1
        }
    }
}

/// Jobs of one boot of an environment.
#[derive(Clone, Debug)]
pub struct Work {
    /// Job of the first launch; it measures nothing if its set of operations is empty.
    pub job: Job,
    /// Job of each further launch, see [`trapline_model::PlannedBoot`].
    pub boot_job: Job,
    /// Number of further launches.
    pub boot_launches: u32,
    /// Number of equal guests of a launch.
    pub guests: u32,
    /// Conditions of the first launch.
    pub conditions: Conditions,
    /// Scheduling of the first launch's virtual CPU.
    pub scheduling: Scheduling,
}

impl Work {
    /// Returns the jobs of all launches in order. A first launch that measures nothing is left out if
    /// others follow.
    pub fn jobs(&self) -> Vec<Job> {
        let measures = !self.job.run.is_empty() || self.boot_launches == 0;
        let first = measures.then_some(self.job).into_iter();
        first.flat_map(separated).chain(self.starts()).collect()
    }

    /// Returns the jobs of the further launches, which measure the start itself.
    pub fn starts(&self) -> impl Iterator<Item = Job> {
        repeat_n(self.boot_job, self.boot_launches as usize)
    }
}

/// Splits off the operations that are measured apart: each has a launch of its own, behind that of the others.
fn separated(job: Job) -> impl Iterator<Item = Job> {
    let others = job.run - OpSet::APART;
    let apart = (job.run & OpSet::APART).iter().map(OpSet::from);
    let first = (!others.is_empty() || job.run.is_empty()).then_some(others);
    let runs: Vec<OpSet> = first.into_iter().chain(apart).collect();
    runs.into_iter().map(move |run| Job { run, ..job })
}

/// A guest. Methods are called in the order of their definition, from one thread: guests die with the
/// thread that started them. Dropping a guest kills and reaps it.
pub trait Guest {
    /// Sets the work, and does all that can be done before the start: a simulated machine boots here.
    ///
    /// # Errors
    /// A requirement is missing, or preparation fails.
    fn prepare(&mut self, work: &Work, limits: &Limits) -> Result<(), Error>;

    /// Starts the first launch.
    ///
    /// # Errors
    /// It cannot be started.
    fn start(&mut self, limits: &Limits) -> Result<(), Error>;

    /// Reads the output of all launches until they end or exceed `limits`. Passes results to `out`, also
    /// on failure.
    ///
    /// # Errors
    /// A launch failed.
    fn collect(&mut self, limits: &Limits, out: &mut dyn SampleSink) -> Result<(), Error>;

    /// Terminates it, and kills it after `grace`.
    fn stop(self: Box<Self>, grace: Duration);
}

/// Receives the results of guests.
pub trait SampleSink {
    /// Reports progress.
    fn progress(&mut self, progress: Progress);

    /// Adds a fact about the environment.
    fn fact(&mut self, name: &str, value: String);

    /// Adds a launch.
    fn finished(&mut self, launch: FinishedLaunch);
}

/// Progress of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A launch has begun.
    Launch {
        /// Its number, from 0.
        number: usize,
        /// Number of launches.
        of: usize,
    },
    /// An operation has begun.
    Operation(Operation),
    /// A window of interrupts is complete; its figures are in units of the clock.
    Window(Window),
}
