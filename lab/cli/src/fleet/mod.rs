//! `trapline fleet`: one plan on many machines.

mod status;

use crate::args::{
    Engine, EngineOptions, FleetArgs, FleetCommand, OutputOptions, PlainFormat, StoreOptions,
};
use crate::failure::{Failure, Status};
use crate::store_path::store_path;
use crate::{doctor, outcome, plan, recorded_command, store, terminal};
use status::{status, status_json, Progress};
use std::path::Path;
use std::time::Duration;
use trapline_fleet::{local, slurm, Fleet, FleetError, Worked};
use trapline_host::Parts;
use trapline_model::Config;
use trapline_runner::Interrupt;
use trapline_store::Store;

/// Executes a command about a fleet.
///
/// # Errors
/// The directory is none of a fleet, the engine refuses, or a store cannot be read or written.
pub fn fleet(args: &FleetArgs) -> Result<Status, Failure> {
    match &args.command {
        FleetCommand::Create {
            directory,
            plan,
            slices,
        } => {
            let fleet = create(directory, plan, *slices)?;
            terminal::print_text(&next_steps(&fleet))?;
            Ok(Status::Done)
        }
        FleetCommand::Work { directory, slice } => work(directory, *slice),
        FleetCommand::Submit {
            directory,
            engine,
            detach,
        } => submit(&open(directory)?, engine, *detach),
        FleetCommand::Status { directory, format } => {
            let fleet = open(directory)?;
            match format {
                PlainFormat::Table => terminal::print_text(&status(&fleet))?,
                PlainFormat::Json => terminal::print_json(&status_json(&fleet))?,
            }
            Ok(Status::Done)
        }
        FleetCommand::Collect {
            directory,
            partial,
            store,
            output,
        } => collect(&open(directory)?, *partial, store, output),
        FleetCommand::Cancel { directory } => {
            slurm::cancel(&open(directory)?).map_err(failure)?;
            Ok(Status::Done)
        }
    }
}

/// Boots of a slice, if no number of slices is given.
const BOOTS: usize = 10;

/// Most slices that are chosen: an array of Slurm has less than 1,001 by default.
const MOST_SLICES: usize = 1000;

/// Returns the number of slices for so many boots.
pub fn usual_slices(boots: usize) -> u32 {
    boots.div_ceil(BOOTS).clamp(1, MOST_SLICES) as u32
}

/// Executes a plan by an engine, from the directory of its fleet to the report, and removes the directory.
///
/// # Errors
/// See [`fleet`]. Then the directory stays, and is named.
pub fn run(
    plan: &Path,
    slices: u32,
    engine: &Engine,
    file: &StoreOptions,
    output: &OutputOptions,
) -> Result<Status, Failure> {
    let fleets = store_path(file.file.as_deref())?.with_file_name("fleets");
    std::fs::create_dir_all(&fleets).map_err(|error| {
        Failure::new(format!("{}: {error}", fleets.display()))
            .help("name a store in a directory that all machines see: --store FILE")
    })?;
    let random = format!("{:08x}", trapline_runner::random_seed());
    let fleet = create(&fleets.join(random), plan, slices)?;
    let options = EngineOptions {
        engine: engine.clone(),
        constraint: None,
        hosts: None,
    };
    terminal::print_error(&format!("fleet: {}", fleet.directory.display()));
    submit(&fleet, &options, false)?;
    let status = collect(&fleet, false, file, output)?;
    // All of it is in the store.
    let _ = std::fs::remove_dir_all(&fleet.directory);
    Ok(status)
}

fn failure(error: FleetError) -> Failure {
    Failure::new(&error).help(error.remedy)
}

fn open(directory: &Path) -> Result<Fleet, Failure> {
    Fleet::open(directory).map_err(|error| failure(error).status(Status::Usage))
}

/// Makes the directory of a fleet, checks the plan, and what the self-test prints here.
fn create(directory: &Path, plan_file: &Path, slices: u32) -> Result<Fleet, Failure> {
    let study = plan::read(plan_file)?;
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(format!("cannot find the path of this program: {error}")))?;
    let parts = Parts::find()?;
    let of_package = (program.as_path(), parts.directory());
    let made = Fleet::create(directory, (&study.text, slices), of_package);
    let mut fleet = made.map_err(|error| failure(error).status(Status::Usage))?;
    let (exact, wall): (Vec<&Config>, Vec<&Config>) = study
        .configs
        .iter()
        .partition(|config| config.clock().is_exact());
    fleet.order.has_wall_clock = !wall.is_empty();
    if !exact.is_empty() {
        let expected = trapline_fleet::self_test(&fleet.package(), &std::env::temp_dir());
        let expected = expected.map_err(|reason| {
            Failure::new(reason).help("'trapline list sim' says what is missing on this host")
        })?;
        fleet.order.self_test = Some(expected);
    }
    fleet.save().map_err(failure)?;
    Ok(fleet)
}

/// Returns the directory for a shell.
fn quoted_directory(fleet: &Fleet) -> String {
    recorded_command::quoted(&fleet.directory.to_string_lossy()).into_owned()
}

fn next_steps(fleet: &Fleet) -> String {
    let directory = quoted_directory(fleet);
    format!(
        "{} slices. For each N of them, on any machine that sees the directory:\n  \
         {directory}/package/trapline fleet work {directory} N\n\
         or all by an engine:\n  \
         trapline fleet submit {directory} --on slurm\n\
         and then:\n  \
         trapline fleet collect {directory}\n",
        fleet.order.slices
    )
}

fn work(directory: &Path, slice: u32) -> Result<Status, Failure> {
    let fleet = open(directory)?;
    let host = doctor::host(&doctor::facts())?;
    let here = (&host, &*std::env::temp_dir());
    let check = |store: &Path, slice| check(&fleet, store, slice);
    let worked = trapline_fleet::work(&fleet, slice, here, &check).map_err(failure)?;
    match worked {
        Worked::Done => terminal::print_text(&format!("slice {slice}: done\n"))?,
        Worked::AlreadyDone => terminal::print_text(&format!("slice {slice}: was done before\n"))?,
        Worked::Failed(reason) => {
            return Err(
                Failure::new(format!("slice {slice}: {}", terminal::one_line(reason)))
                    .help("it can be executed again, here or on another machine"),
            );
        }
        Worked::Unfit => {
            // A host that fails at once would take all slices from those that do not.
            std::thread::sleep(UNFIT);
            return Err(Failure::new(format!(
                "slice {slice}: this host has failed its self-test too often"
            ))
            .help(format!(
                "see {}, and remove its files when it is repaired",
                fleet.log().display()
            )));
        }
    }
    Ok(Status::Done)
}

/// Checks that a file is the store of a slice of this fleet, and complete. Whatever ended its run, it is a result.
fn check(fleet: &Fleet, file: &Path, slice: u32) -> Result<(), String> {
    let runs = Store::open_existing(file).and_then(|mut store| store.runs());
    let runs = runs.map_err(|error| error.to_string())?;
    let last = runs.last().ok_or("its store has no run")?;
    let plan = std::fs::read_to_string(fleet.plan()).ok();
    let expected = format!("{slice}/{}", fleet.order.slices);
    if last.plan != plan || last.request.slice.as_ref() != Some(&expected) {
        return Err("its store is that of another slice".to_owned());
    }
    match last.finished_at {
        Some(_) => Ok(()),
        None => Err(format!("it was interrupted after {} boots", last.boots)),
    }
}

/// Time for which an unfit host is busy with each slice.
const UNFIT: Duration = Duration::from_secs(20);

/// Interval in which Slurm is asked.
const POLL: Duration = Duration::from_secs(2);

/// Times that missing slices are submitted.
const MOST_ROUNDS: usize = 3;

/// Has the missing slices executed, and waits.
pub fn submit(fleet: &Fleet, options: &EngineOptions, detach: bool) -> Result<Status, Failure> {
    fleet.verify().map_err(failure)?;
    let mut progress = Progress::new(fleet);
    let interrupt = Interrupt::install()?;
    match &options.engine {
        Engine::Local(_) if detach => {
            let help = "leave --detach out, or use --on slurm";
            return Err(Failure::usage(
                "processes of this host end with the command",
                help,
            ));
        }
        Engine::Local(processes) => {
            require_alone(fleet, processes.get())?;
            let is_cancelled = || interrupt.signal().is_some();
            let processes = usize::from(processes.get());
            local::execute(fleet, processes, &is_cancelled, &mut || {
                progress.show(fleet)
            })
            .map_err(failure)?;
        }
        Engine::Slurm(partition) => {
            let options = slurm::Options {
                partition: partition.clone(),
                constraint: options.constraint.clone(),
                hosts: options.hosts.clone(),
            };
            slurm::submit(fleet, &fleet.missing(), &options).map_err(failure)?;
            if detach {
                terminal::print_text(&format!(
                    "trapline fleet status {}\n",
                    quoted_directory(fleet)
                ))?;
                return Ok(Status::Done);
            }
            wait_for_slurm(fleet, &options, &interrupt, &mut progress)?;
        }
    }
    progress.show(fleet);
    if let Some(signal) = interrupt.signal() {
        terminal::print_error(&format!(
            "help: trapline fleet submit {} goes on",
            quoted_directory(fleet)
        ));
        return Err(Failure::interrupted(signal));
    }
    match fleet.missing().as_slice() {
        [] => Ok(Status::Done),
        missing => Err(not_done(fleet, missing)),
    }
}

/// Boots on the wall clock would disturb each other on one host.
fn require_alone(fleet: &Fleet, processes: u8) -> Result<(), Failure> {
    let study = plan::read(&fleet.plan())?;
    let is_wall = |config: &Config| !config.clock().is_exact();
    match study.configs.iter().find(|config| is_wall(config)) {
        Some(config) if processes > 1 => Err(Failure::usage(
            format!("--on local:{processes}: the plan measures {config} on the wall clock, which several processes of a host disturb"),
            "use local:1, or other machines: --on slurm",
        )),
        _ => Ok(()),
    }
}

fn wait_for_slurm(
    fleet: &Fleet,
    options: &slurm::Options,
    interrupt: &Interrupt,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut rounds = 1;
    while !fleet.missing().is_empty() {
        if interrupt.signal().is_some() {
            return slurm::cancel(fleet).map_err(failure);
        }
        progress.show(fleet);
        std::thread::sleep(POLL);
        let is_empty = slurm::queue(fleet).is_some_and(|tasks| tasks.is_empty());
        let missing = fleet.missing();
        if is_empty && !missing.is_empty() {
            if rounds == MOST_ROUNDS {
                return Ok(());
            }
            rounds += 1;
            slurm::submit(fleet, &missing, options).map_err(failure)?;
        }
    }
    // Tasks of slices that another task has done.
    slurm::cancel(fleet).map_err(failure)
}

fn not_done(fleet: &Fleet, missing: &[u32]) -> Failure {
    let attempts = fleet.attempts();
    let reason = |slice: &u32| {
        let of_slice = attempts
            .iter()
            .rev()
            .find(|it| it.slice == *slice && it.failure.is_some());
        let reason = of_slice.and_then(|it| it.failure.clone());
        reason.unwrap_or_else(|| "no machine has reported a failure".to_owned())
    };
    let first = missing.first().map(reason).unwrap_or_default();
    let count = missing.len();
    Failure::new(format!(
        "{count} of {} slices are not done; slice {}: {}",
        fleet.order.slices,
        missing.first().copied().unwrap_or_default(),
        terminal::one_line(first)
    ))
    .help(format!(
        "'trapline fleet status {}' has all, 'fleet submit' tries again, 'fleet collect --partial' takes what is there",
        quoted_directory(fleet)
    ))
}

/// Unites the results to a run of the store, and prints it.
fn collect(
    fleet: &Fleet,
    partial: bool,
    file: &StoreOptions,
    output: &OutputOptions,
) -> Result<Status, Failure> {
    let missing = fleet.missing();
    if !missing.is_empty() && !partial {
        return Err(not_done(fleet, &missing));
    }
    let done = (1..=fleet.order.slices).filter(|slice| fleet.is_done(*slice));
    let mut results = Vec::new();
    for slice in done {
        let result = fleet.result(slice);
        check(fleet, &result, slice).map_err(|reason| {
            let message = format!("{}: {reason}", result.display());
            Failure::new(message).help("remove it, and submit again")
        })?;
        results.push(result);
    }
    if results.is_empty() {
        return Err(not_done(fleet, &missing));
    }
    let mut out = Store::open(&store_path(file.file.as_deref())?)?;
    let merged = store::merge_files(&mut out, &results)?;
    let run = out.load(merged.run)?;
    let report = outcome::report(&run);
    outcome::print_run(&run, &report, output, file, None)?;
    Ok(outcome::status(&report))
}
