//! What disturbs a guest on this host: processes that are started before it goes, are
//! shown to work before it goes and to have worked when it has ended, and die with
//! whoever started them.
//!
//! A load that cannot be started is a reason to skip; one that does nothing, or ends
//! before the guest, is a failure of what was measured, for it was measured without.

mod crew;
mod process;

mod neighbour;

pub use crew::{populated, Crew, EXITING};
pub use neighbour::{neighbourly, NEIGHBOUR};
use trapline_host::{Error, Limits};

use crate::environment::SampleSink;
use process::Process;
use trapline_host::affinity::{Affinity, Threads};
use trapline_host::process::Command;
use trapline_model::Loads;

/// All that runs beside a guest.
#[derive(Default)]
pub struct Beside(Vec<Process>);

impl Beside {
    /// Starts what `loads` name and waits until all of it works.
    ///
    /// # Errors
    /// Something is missing for it, or it does not work.
    pub fn start(
        loads: &Loads,
        crew: &Crew,
        affinity: &Affinity,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let mut all = Self::default();
        for task in crew.tasks(loads, limits.timeout)? {
            all.0.push(affinity.start_load(|| Process::start(&task))?);
        }
        for process in &mut all.0 {
            process.await_work(limits)?;
        }
        Ok(all)
    }

    /// Starts a second guest, whose virtual CPU gets the place of the first one's, and
    /// waits until it is at work.
    ///
    /// # Errors
    /// It cannot be started or placed, or does nothing.
    pub fn join(
        &mut self,
        command: Command,
        threads: Threads,
        affinity: &Affinity,
        limits: &Limits,
    ) -> Result<(), Error> {
        let task = neighbour::task(command);
        let mut guest = affinity.start_guest(|| Process::start(&task))?;
        affinity.apply(guest.pid(), threads)?;
        guest.await_work(limits)?;
        self.0.push(guest);
        Ok(())
    }

    /// From here on it counts.
    pub fn begin(&mut self) {
        self.0.iter_mut().for_each(Process::begin);
    }

    /// Ends all of it and tells what it did.
    ///
    /// # Errors
    /// Some of it did not work to the end.
    pub fn end(self, out: &mut dyn SampleSink) -> Result<(), Error> {
        let ended: Result<Vec<_>, Error> = self.0.into_iter().map(Process::end).collect();
        for (number, done) in ended?.iter().enumerate() {
            out.fact(&format!("load-{number}-{}", done.name), done.to_string());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
