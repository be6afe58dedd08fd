//! Competitors: a program on each CPU where the guest may run that computes whenever no other thread runs there. Their CPU
//! time is what a guest leaves when it waits.

use super::process::Process;
use super::LoadPrograms;
use crate::environment::SampleSink;
use std::io;
use std::time::Instant;
use trapline_host::affinity::Affinity;
use trapline_host::{Error, Limits};
use trapline_model::{Competitor, COMPETITOR};
use trapline_spawn::sched::{self, SchedPolicy};

/// Competitors of a guest. Dropping them ends them.
#[derive(Default)]
pub struct Competitors {
    programs: Vec<Process>,
    /// Begin of the count of their work.
    begun: Option<Instant>,
}

impl Competitors {
    /// Starts them and waits until all of them work.
    ///
    /// # Errors
    /// The agent is missing, or the kernel refuses the policy.
    pub fn start(
        which: Competitor,
        programs: &LoadPrograms,
        affinity: &Affinity,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let mut all = Self::default();
        if which == Competitor::None {
            return Ok(all);
        }
        let command = programs.competitor(limits.timeout)?;
        for cpu in affinity.guest_cpus() {
            let program = affinity.start_on_cpu(cpu, || Process::start(&command))?;
            sched::set(program.pid(), SchedPolicy::Idle).map_err(refused)?;
            all.programs.push(program);
        }
        for program in &mut all.programs {
            program.await_work(limits)?;
        }
        Ok(all)
    }

    /// Returns their process ids.
    #[cfg(test)]
    pub fn pids(&self) -> impl Iterator<Item = i32> + '_ {
        self.programs.iter().map(Process::pid)
    }

    /// Begins to count their work.
    pub fn begin(&mut self) {
        self.programs.iter_mut().for_each(Process::begin);
        self.begun = Some(Instant::now());
    }

    /// Ends them and reports their CPU time as a fact.
    ///
    /// # Errors
    /// One ended early.
    pub fn end(mut self, out: &mut dyn SampleSink) -> Result<(), Error> {
        let (Some(begun), count @ 1..) = (self.begun, self.programs.len()) else {
            return Ok(());
        };
        let elapsed_ns = begun.elapsed().as_nanos();
        let works: Result<Vec<_>, Error> = self.programs.iter_mut().map(Process::work).collect();
        let cpu_ns: u64 = works?.iter().map(|work| work.cpu_ns).sum();
        out.fact(COMPETITOR, describe(cpu_ns, elapsed_ns, count));
        Ok(())
    }
}

fn describe(cpu_ns: u64, elapsed_ns: u128, cpus: usize) -> String {
    let available = (elapsed_ns.max(1) as f64) * cpus as f64;
    let cpus = match cpus {
        1 => "one CPU".to_owned(),
        more => format!("{more} CPUs"),
    };
    format!(
        "{:.1}% of {cpus}, {:.1} ms",
        100.0 * cpu_ns as f64 / available,
        cpu_ns as f64 / 1e6
    )
}

fn refused(error: io::Error) -> Error {
    Error::unavailable(format!(
        "--competitor sched-idle: the kernel refuses the policy: {error}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_described_as_a_share_of_the_cpus() {
        assert_eq!(
            describe(250_000_000, 1_000_000_000, 1),
            "25.0% of one CPU, 250.0 ms"
        );
        assert_eq!(describe(0, 500_000_000, 2), "0.0% of 2 CPUs, 0.0 ms");
        assert_eq!(describe(900_000, 500_000_000, 2), "0.1% of 2 CPUs, 0.9 ms");
    }
}
