//! The workload `kernel-build`: the distribution's compiler builds the distribution's
//! kernel, from memory to memory, with a job for each CPU.
//!
//! [`Root`] is what it is built in and from, the same in every environment: a guest has it
//! as its own root, and a process of this host, or of the simulated machine's Linux, in a
//! ground of its own. [`build`] does it once, in one [`Column`]'s places, and gives the time
//! by two clocks with a [`Proof`] of what was made.

mod ear;
mod packages;
mod read;
mod recipe;
mod root;
mod seats;
mod work;

pub use ear::Proof;
pub use root::{check, Root};

use crate::linux_guest;
use crate::sim;
use ear::{Builder, Heard};
use seats::{Seats, Threads};
use trapline_abi::Job;
use trapline_host::process::{Command, Process};
use trapline_host::{facts, Error, Facts, Limits, Part, TscRate};
use trapline_model::kernel_build::Column;
use trapline_model::{Clock, EnvironmentId, GuestConfig};
use trapline_sim::settings::{Settings, Start};

/// A build that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Built {
    /// How long it took by the clock of the Linux in which it ran, in nanoseconds.
    pub own_ns: u64,
    /// The same by the clock of its environment: nanoseconds of this host, or
    /// instructions.
    pub took: u64,
    /// What was made.
    pub proof: Proof,
    /// What is to be told about it.
    pub facts: Facts,
}

/// Why nothing can be built there on this host, with what mends it.
pub fn unsupported_reason(environment: EnvironmentId, column: Column) -> Option<String> {
    let on_host = environment.clock() == Clock::Wall;
    let several = trapline_model::cpus::unsupported_reason(environment, column.cpus);
    let unsupported_reason = column.unsupported_reason(environment).or(several);
    unsupported_reason.or_else(|| on_host.then(|| seats::unsupported_reason(column)).flatten())
}

/// Builds once. Must be called from a thread that lives as long: processes die with the
/// thread that started them.
///
/// # Errors
/// It cannot be built there, or was not.
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
        // It is used once, and a machine with a root in memory is a large one to keep.
        start: Start::Boot,
        ..settings.clone()
    };
    let (heard, facts) = match environment.clock() {
        Clock::Wall => on_host(&settings, environment, root, column, limits)?,
        Clock::Insn | Clock::InsnVmx => on_machine(&settings, environment, root, limits)?,
    };
    let rate = TscRate::host().ns_per_tick();
    let by_host = |(began, ended): (u64, u64)| (ended.saturating_sub(began) as f64 * rate) as u64;
    let mut all = root.facts.clone();
    all.extend(facts);
    Ok(Built {
        own_ns: heard.own_ns,
        took: heard.at.map_or(heard.ticks, by_host),
        proof: heard.proof,
        facts: all,
    })
}

/// What the guest or the process is asked.
fn job(column: Column) -> Job {
    Job {
        build: column.cpus,
        ..Job::EMPTY
    }
}

/// The machine of a guest.
fn machine(root: &Root, column: Column) -> GuestConfig {
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
) -> Result<(Heard, Facts), Error> {
    let mut facts = facts::host_facts();
    let (command, threads) = match environment.stack().innermost() {
        None => (native(settings, root, column)?, Threads::Any),
        Some(level) => {
            let recipe = linux_guest::recipe(level, settings, &machine(root, column))?;
            facts.extend(recipe.facts());
            let command = recipe.command(&job(column))?;
            (recipe.with_named_threads(command), Threads::of(environment))
        }
    };
    let seats = Seats::of(column, threads)?;
    facts.insert("placement".to_owned(), seats.describe());
    let mut running = seats.start(|| Process::start(&command))?;
    seats.take(running.pid())?;
    let mut ear = Builder::default();
    let over = running.wait(&mut ear, limits)?;
    let heard = ear.finish_after(&command.name(), &over)?;
    Ok((heard, facts))
}

/// The agent as a process, in a ground of its own.
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
) -> Result<(Heard, Facts), Error> {
    let column = Column {
        cpus: 1,
        ..Column::BASE
    };
    let machine = machine(root, column);
    let (console, facts) = sim::build(settings, environment, &machine, &job(column), limits)?;
    let mut builder = Builder::default();
    builder.hear(&console, None);
    Ok((builder.finish()?, facts))
}
