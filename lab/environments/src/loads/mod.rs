//! Loads on this host: processes that run beside a guest. They must work before the guest starts and until
//! it ends, and die with the process that started them.
//!
//! A load that cannot start is a reason to skip. A load that does nothing, or ends before the guest, is a
//! failure of the measurement.

mod co_tenant;
mod competitor;
mod process;
mod programs;

pub use co_tenant::{co_tenant_job, CO_TENANT};
pub use competitor::Competitors;
pub use programs::{create_vm_command, LoadPrograms, EXITING_JOB};

use crate::environment::SampleSink;
use process::Process;
use trapline_host::affinity::{Affinity, Threads};
use trapline_host::process::Command;
use trapline_host::{Error, Limits};
use trapline_model::Loads;

/// Load processes of a guest. Dropping them ends them.
#[derive(Default)]
pub struct RunningLoads(Vec<Process>);

impl RunningLoads {
    /// Starts `loads` and waits until all of them work.
    ///
    /// # Errors
    /// A requirement is missing, or a load does not work.
    pub fn start(
        loads: &Loads,
        programs: &LoadPrograms,
        affinity: &Affinity,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let mut all = Self::default();
        for load in programs.commands(loads, limits.timeout)? {
            all.0.push(affinity.start_load(|| Process::start(&load))?);
        }
        for process in &mut all.0 {
            process.await_work(limits)?;
        }
        Ok(all)
    }

    /// Starts a second guest whose vCPU shares the CPU of the first one's, and waits until it works.
    ///
    /// # Errors
    /// It cannot be started or placed, or does not work.
    pub fn start_co_tenant(
        &mut self,
        command: Command,
        threads: Threads,
        affinity: &Affinity,
        limits: &Limits,
    ) -> Result<(), Error> {
        let load = co_tenant::load(command);
        let mut guest = affinity.start_guest(|| Process::start(&load))?;
        affinity.apply(guest.pid(), threads)?;
        guest.await_work(limits)?;
        self.0.push(guest);
        Ok(())
    }

    /// Begins to count their work.
    pub fn begin(&mut self) {
        self.0.iter_mut().for_each(Process::begin);
    }

    /// Ends them and reports their work as facts.
    ///
    /// # Errors
    /// One did not work to the end.
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
