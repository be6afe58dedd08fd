//! Execution of a slice on this machine.

use crate::attempt::Attempt;
use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::package::PROGRAM;
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use trapline_host::private::{self, Origin};
use trapline_model::Host;

/// Outcome of a slice.
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

/// Checks that the store of a slice is complete: that of this slice, and finished.
pub type Check<'a> = &'a dyn Fn(&Path, u32) -> Result<(), String>;

/// Lines of an error that are kept.
const LINES: usize = 6;

/// Executes a slice and publishes its store, if that is complete by `check`. A slice that was interrupted on this host goes on
/// where it was, from `temporary`.
///
/// # Errors
/// There is no such slice, or the directory of the fleet or `temporary` cannot be written.
pub fn work(
    fleet: &Fleet,
    slice: u32,
    (host, temporary): (&Host, &Path),
    check: Check<'_>,
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
    // A damaged package is not the fault of this host, and nothing of it is executed.
    let worked = fleet
        .verify()
        .and_then(|()| match check_host(fleet, temporary) {
            Ok(()) => execute(fleet, slice, temporary, check),
            Err(reason) => {
                attempt.is_unfit = true;
                Ok(Worked::Failed(reason))
            }
        });
    attempt.end(match &worked {
        Ok(Worked::Failed(reason)) => Some(reason.clone()),
        Ok(_) => None,
        Err(error) => Some(error.message.clone()),
    });
    attempt.write(&fleet.log())?;
    worked
}

/// Checks that this host gives the figure that it must: a host that fails at once would get all slices.
fn check_host(fleet: &Fleet, temporary: &Path) -> Result<(), String> {
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
    command.env(ENDS_WITH_PARENT, std::process::id().to_string());
    // The plan says how often it boots.
    command.env_remove("TRAPLINE_EXACT_BOOTS");
    command
}

fn execute(
    fleet: &Fleet,
    slice: u32,
    temporary: &Path,
    check: Check<'_>,
) -> Result<Worked, FleetError> {
    let store = store(fleet, slice, temporary)?;
    // The command has it, too, so that one which outlives a killed process is waited for.
    let lock = locked(&store.with_extension("lock"))?;
    if fleet.is_done(slice) {
        return Ok(Worked::AlreadyDone);
    }
    // Boots on the wall clock disturb each other.
    let alone = fleet
        .order
        .has_wall_clock
        .then(|| store.with_file_name("wall.lock"));
    let _alone = alone.map(|path| locked(&path)).transpose()?;
    // One whose process was killed between its end and this.
    if check(&store, slice).is_ok() {
        return publish(fleet, slice, &store);
    }
    let mut command = trapline(&fleet.package());
    command.stdin(lock);
    command.arg(fleet.plan());
    command.args(["--slice", &format!("{slice}/{}", fleet.order.slices)]);
    command.args(["--format", "csv", "--store"]).arg(&store);
    let output = command
        .output()
        .map_err(FleetError::file(&fleet.package()))?;
    match check(&store, slice) {
        Ok(()) => publish(fleet, slice, &store),
        Err(_) if output.status.code() == Some(UNMEASURED) => {
            let reason = "nothing of this slice can be measured on this host";
            Ok(Worked::Failed(reason.to_owned()))
        }
        Err(reason) => Ok(Worked::Failed(format!("{reason}: {}", last_lines(&output)))),
    }
}

/// Exit status of a run without boots.
const UNMEASURED: i32 = 4;

/// Variable with the number of the process with which the one that it started ends.
pub const ENDS_WITH_PARENT: &str = "TRAPLINE_ENDS_WITH_PARENT";

fn publish(fleet: &Fleet, slice: u32, store: &Path) -> Result<Worked, FleetError> {
    let is_first = fleet.publish(slice, store)?;
    // The result is elsewhere.
    let _ = fs::remove_file(store);
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
        _ => {
            // Another user may have made one of this name.
            private::check(&directory, Origin::Option)
                .map_err(|error| FleetError::new(error.to_string(), "remove it, or set TMPDIR"))?;
            Ok(directory.join(format!("{slice}.db")))
        }
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
