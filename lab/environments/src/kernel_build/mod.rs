//! The workload `kernel-build`: the distribution's compiler builds the distribution's
//! kernel, from memory to memory, with a job for each CPU.
//!
//! [`Root`] has compiler and source, and is the same in every environment: a guest has it as its root file
//! system; a process of this host, or of the simulated machine's Linux, in a mount namespace. [`build`] runs
//! one build with the CPUs of a [`Column`], and returns its duration on two clocks and a [`Proof`] of its
//! result.

mod access_times;
mod affinity;
mod output;
mod packages;
mod recipe;
mod root;
mod work_directory;

pub use output::Proof;
pub use packages::Download;
pub use root::{check, download, Root, Roots};

use crate::linux_guest;
use crate::sim;
use affinity::{BuildAffinity, VcpuThreads};
use output::{BuildDecoder, BuildReport};
use trapline_abi::Job;
use trapline_host::process::{Command, Process};
use trapline_host::{facts, Error, Facts, Limits, Part, TscRate};
use trapline_model::kernel_build::Column;
use trapline_model::{Clock, EnvironmentId, GuestConfig};
use trapline_sim::settings::{Settings, Start};

/// A build that ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Built {
    /// Duration on the clock of the Linux in which it ran, in nanoseconds.
    pub own_ns: u64,
    /// Duration on the clock of its environment: nanoseconds of this host, or instructions.
    pub took: u64,
    /// Result.
    pub proof: Proof,
    /// Facts about it.
    pub facts: Facts,
}

/// Returns the reason why an environment does not support a column on this host.
pub fn unsupported_reason(environment: EnvironmentId, column: Column) -> Option<String> {
    let on_host = environment.clock() == Clock::Wall;
    let reason = column.unsupported_reason(environment);
    reason.or_else(|| {
        on_host
            .then(|| affinity::unsupported_reason(column))
            .flatten()
    })
}

/// Runs one build. The calling thread must outlive it: processes die with the thread that started them.
///
/// # Errors
/// A requirement is missing, or the build failed.
pub fn build(
    settings: &Settings,
    environment: EnvironmentId,
    root: &Root,
    column: Column,
    limits: &Limits,
) -> Result<Built, Error> {
    if let Some(reason) = unsupported_reason(environment, column) {
        return Err(Error::unavailable(reason));
    }
    let settings = Settings {
        root: vec![root.archive.clone()],
        // The machine is used once, and the snapshot of one with a root in memory is large.
        start: Start::Boot,
        ..settings.clone()
    };
    let (report, facts) = if environment.clock().is_exact() {
        on_machine(&settings, environment, root, limits)?
    } else {
        on_host(&settings, environment, root, column, limits)?
    };
    let rate = TscRate::host().ns_per_tick();
    let on_host_clock =
        |(began, ended): (u64, u64)| (ended.saturating_sub(began) as f64 * rate) as u64;
    let mut all = root.facts.clone();
    all.extend(facts);
    Ok(Built {
        own_ns: report.own_ns,
        took: report.arrival.map_or(report.ticks, on_host_clock),
        proof: report.proof,
        facts: all,
    })
}

fn job(column: Column) -> Job {
    Job {
        build: column.cpus,
        ..Job::EMPTY
    }
}

fn guest_config(root: &Root, column: Column) -> GuestConfig {
    GuestConfig {
        memory_mib: root.size.memory_mib(),
        cpus: column.cpus,
        ..GuestConfig::DEFAULT
    }
}

fn on_host(
    settings: &Settings,
    environment: EnvironmentId,
    root: &Root,
    column: Column,
    limits: &Limits,
) -> Result<(BuildReport, Facts), Error> {
    let mut facts = facts::host_facts();
    let (command, threads) = match environment.stack().innermost() {
        None => (native(settings, root, column)?, VcpuThreads::Unknown),
        Some(level) => {
            let guest = guest_config(root, column);
            let guest = linux_guest::guest_command(level, settings, &guest)?;
            facts.extend(guest.facts());
            let command = guest.command(&job(column))?;
            let threads = VcpuThreads::of(environment);
            (guest.with_named_threads(command), threads)
        }
    };
    let affinity = BuildAffinity::new(column, threads)?;
    facts.insert("placement".to_owned(), affinity.describe());
    let mut running = affinity.start(|| Process::start(&command))?;
    affinity.pin_vcpus(running.pid())?;
    let mut output = BuildDecoder::default();
    let exited = running.wait(&mut output, limits)?;
    let report = output.finish_after(&command.name(), &exited)?;
    Ok((report, facts))
}

/// Returns the command of the agent as a process with the root in a mount namespace.
fn native(settings: &Settings, root: &Root, column: Column) -> Result<Command, Error> {
    let mut command = Command::new(settings.parts.get(Part::Agent)?);
    let number = command.pass_file(root.open()?);
    Ok(command
        .arg(format!("trapline.build={}", column.cpus))
        .arg(format!("trapline.root=/proc/self/fd/{number}")))
}

fn on_machine(
    settings: &Settings,
    environment: EnvironmentId,
    root: &Root,
    limits: &Limits,
) -> Result<(BuildReport, Facts), Error> {
    let column = Column {
        cpus: 1,
        ..Column::BASE
    };
    let guest = guest_config(root, column);
    let (console, facts) = sim::build(settings, environment, &guest, &job(column), limits)?;
    let mut output = BuildDecoder::default();
    output.decode(&console, None);
    Ok((output.finish()?, facts))
}
