//! Execution of a slice on this machine.

use crate::attempt::Attempt;
use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::package::PROGRAM;
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use trapline_model::Host;

/// What became of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Worked {
    /// Its result is in the directory.
    Done,
    /// It was done before, or another machine was faster.
    AlreadyDone,
    /// It has no result, for this reason.
    Failed(String),
    /// This host has failed too many self-tests, and executes nothing.
    Unfit,
}

/// Exit status of a run in which an operation failed, or whose exact figures differ: its boots are stored.
const WITH_RESULTS: [i32; 3] = [0, 1, 3];

/// Lines of an error that are kept.
const LINES: usize = 6;

/// Executes a slice and publishes its store. A slice that was interrupted on this host goes on where it was, from `temporary`.
///
/// # Errors
/// There is no such slice, or the directory of the fleet or `temporary` cannot be written.
pub fn work(
    fleet: &Fleet,
    slice: u32,
    host: &Host,
    temporary: &Path,
) -> Result<Worked, FleetError> {
    let slices = fleet.order.slices;
    if !(1..=slices).contains(&slice) {
        return Err(FleetError::new(
            format!("{} has no slice {slice}", fleet.directory.display()),
            format!("its slices are 1 to {slices}"),
        ));
    }
    if fleet.is_done(slice) {
        return Ok(Worked::AlreadyDone);
    }
    if fleet.unfit_hosts().contains(&host.id) {
        return Ok(Worked::Unfit);
    }
    let mut attempt = Attempt::begin(slice, host);
    attempt.write(&fleet.log())?;
    if let Err(reason) = check_host(fleet, temporary) {
        attempt.is_unfit = true;
        attempt.end(Some(reason.clone()));
        attempt.write(&fleet.log())?;
        return Ok(Worked::Failed(reason));
    }
    let worked = execute(fleet, slice, temporary)?;
    attempt.end(match &worked {
        Worked::Failed(reason) => Some(reason.clone()),
        _ => None,
    });
    attempt.write(&fleet.log())?;
    Ok(worked)
}

/// Checks that the package is whole and this host gives the figure that it must: a host that fails at once would get all slices.
fn check_host(fleet: &Fleet, temporary: &Path) -> Result<(), String> {
    fleet.verify().map_err(|error| error.message)?;
    let Some(expected) = &fleet.order.self_test else {
        return Ok(());
    };
    let found = self_test(&fleet.package(), temporary)?;
    if found == *expected {
        return Ok(());
    }
    Err(format!(
        "the self-test printed {found:?} in place of {expected:?}"
    ))
}

/// Returns what the self-test prints: the figure of an operation on the bare simulated machine, in a third of a second.
///
/// # Errors
/// It failed, for this reason.
pub fn self_test(package: &Path, temporary: &Path) -> Result<String, String> {
    let store = tempfile::tempdir_in(temporary).map_err(|error| error.to_string())?;
    let mut command = trapline(package);
    command.args([
        "--env",
        "sim",
        "--workload",
        "basic/getpid",
        "--exact-boots",
        "1",
    ]);
    command
        .args(["--format", "bencher"])
        .arg("--store")
        .arg(store.path().join("test.db"));
    let output = command.output().map_err(|error| error.to_string())?;
    match output.status.code() {
        Some(0) => Ok(String::from_utf8_lossy(&output.stdout)
            .split_whitespace()
            .collect()),
        _ => Err(format!("the self-test failed: {}", last_lines(&output))),
    }
}

/// Returns the command that measures, with the package's programs only.
fn trapline(package: &Path) -> Command {
    let mut command = Command::new(package.join(PROGRAM));
    command.args(["run", "--quiet"]);
    command.env("TRAPLINE_PARTS", package).stdin(Stdio::null());
    // The plan says how often it boots.
    command.env_remove("TRAPLINE_EXACT_BOOTS");
    command
}

fn execute(fleet: &Fleet, slice: u32, temporary: &Path) -> Result<Worked, FleetError> {
    let store = store(fleet, slice, temporary)?;
    // The command has it, too, so that one which outlives a killed process is waited for.
    let lock = locked(&store.with_extension("lock"))?;
    if fleet.is_done(slice) {
        return Ok(Worked::AlreadyDone);
    }
    let mut command = trapline(&fleet.package());
    command.stdin(lock);
    command.arg(fleet.plan());
    command.args(["--slice", &format!("{slice}/{}", fleet.order.slices)]);
    command.args(["--format", "csv", "--store"]).arg(&store);
    let output = command
        .output()
        .map_err(FleetError::file(&fleet.package()))?;
    let has_results = output
        .status
        .code()
        .is_some_and(|it| WITH_RESULTS.contains(&it));
    if !has_results || !store.is_file() {
        return Ok(Worked::Failed(last_lines(&output)));
    }
    let is_first = fleet.publish(slice, &store)?;
    // The result is elsewhere.
    let _ = fs::remove_file(&store);
    Ok(if is_first {
        Worked::Done
    } else {
        Worked::AlreadyDone
    })
}

/// Opens a file and waits for its lock.
fn locked(path: &Path) -> Result<File, FleetError> {
    let mut options = File::options();
    let file = options.create(true).truncate(false).write(true).open(path);
    let file = file.map_err(FleetError::file(path))?;
    file.lock().map_err(FleetError::file(path))?;
    Ok(file)
}

/// Returns the path of the store on a local disk, whose name is that of the fleet and slice.
fn store(fleet: &Fleet, slice: u32, temporary: &Path) -> Result<PathBuf, FleetError> {
    let directory = temporary.join(format!("trapline-fleet-{}", fleet.order.uuid));
    let mut builder = fs::DirBuilder::new();
    match builder.mode(0o700).create(&directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(FleetError::file(&directory)(error))
        }
        _ => Ok(directory.join(format!("{slice}.db"))),
    }
}

/// Returns the end of what a command printed on standard error, or how it ended.
fn last_lines(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
    if last.is_empty() {
        output.status.to_string()
    } else {
        last
    }
}
