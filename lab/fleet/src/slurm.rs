//! Slices as tasks of an array of Slurm, by `sbatch`, `squeue` and `scancel`: neither accounting nor a REST server is needed.
//!
//! The state of jobs only explains. A slice is done when its result is there; a `squeue` that fails says nothing.

use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::package::PROGRAM;
use crate::ranges::ranges;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Options of the jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Partition; the default one if `None`.
    pub partition: Option<String>,
    /// Features that nodes must have, as of `sbatch --constraint`.
    pub constraint: Option<String>,
    /// Nodes, as of `sbatch --nodelist`.
    pub hosts: Option<String>,
}

/// A task in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// State, as `RUNNING` or `PENDING`.
    pub state: String,
    /// Node on which it runs, or the reason for which it waits.
    pub place: String,
}

/// Submits slices. Nodes whose self-tests failed are excluded.
///
/// # Errors
/// Slurm refused the job, or is not installed.
pub fn submit(fleet: &Fleet, slices: &[u32], options: &Options) -> Result<(), FleetError> {
    require_array_size(fleet.order.slices)?;
    let mut command = program("sbatch")?;
    // Slurm replaces what is behind a percent sign.
    let log = fleet.log().to_string_lossy().replace('%', "%%");
    let log = Path::new(&log).join("slurm-%a.txt");
    command.args([
        "--parsable",
        "--requeue",
        "--open-mode=append",
        "--export=NONE",
    ]);
    command.arg(format!("--job-name={}", name(fleet)));
    command.arg(format!("--array={}", ranges(slices)));
    command.arg(format!("--output={}", log.display()));
    if fleet.order.has_wall_clock {
        command.arg("--exclusive");
    }
    command.args(
        options
            .partition
            .iter()
            .map(|it| format!("--partition={it}")),
    );
    command.args(
        options
            .constraint
            .iter()
            .map(|it| format!("--constraint={it}")),
    );
    command.args(options.hosts.iter().map(|it| format!("--nodelist={it}")));
    let excluded: Vec<String> = excluded(fleet).into_iter().collect();
    if !excluded.is_empty() {
        command.arg(format!("--exclude={}", excluded.join(",")));
    }
    let output = output(command.arg(script(fleet)?))?;
    if output.status.success() {
        return Ok(());
    }
    // One that was killed by a signal may have been accepted.
    if queue(fleet).is_some_and(|tasks| !tasks.is_empty()) {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(FleetError::new(
        format!("sbatch refused the slices: {reason}"),
        "check the partition and your limits, and submit again: what is done is kept",
    ))
}

/// Returns the tasks of a fleet in the queue; `None` if that is unknown.
pub fn queue(fleet: &Fleet) -> Option<Vec<Task>> {
    let mut command = program("squeue").ok()?;
    command.args(["--noheader", "--array", "--format=%T %R"]);
    command.arg(format!("--name={}", name(fleet)));
    let output = output(&mut command).ok().filter(|it| it.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let task = |line: &str| {
        let (state, place) = line.split_once(' ')?;
        Some(Task {
            state: state.to_owned(),
            place: place.trim().to_owned(),
        })
    };
    Some(text.lines().filter_map(task).collect())
}

/// Cancels all tasks of a fleet.
///
/// # Errors
/// Slurm did not do so.
pub fn cancel(fleet: &Fleet) -> Result<(), FleetError> {
    let mut command = program("scancel")?;
    let output = output(command.arg(format!("--name={}", name(fleet))))?;
    if output.status.success() {
        return Ok(());
    }
    Err(FleetError::new(
        format!(
            "scancel: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ),
        format!("scancel --name={}", name(fleet)),
    ))
}

/// Returns the name of the jobs.
fn name(fleet: &Fleet) -> String {
    format!("trapline-{}", fleet.order.uuid)
}

/// Returns the nodes of unfit hosts.
fn excluded(fleet: &Fleet) -> BTreeSet<String> {
    let unfit = fleet.unfit_hosts();
    let attempts = fleet.attempts().into_iter();
    let of_unfit = attempts.filter(|it| unfit.contains(&it.host));
    of_unfit.filter_map(|it| it.node).collect()
}

/// Writes the script of a task, which executes the package's program.
fn script(fleet: &Fleet) -> Result<PathBuf, FleetError> {
    let path = fleet.directory.join("slurm.sh");
    let quoted = |path: PathBuf| format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"));
    let text = format!(
        "#!/bin/sh\nTRAPLINE_HOST=$SLURMD_NODENAME exec {} fleet work {} \"$SLURM_ARRAY_TASK_ID\"\n",
        quoted(fleet.package().join(PROGRAM)),
        quoted(fleet.directory.clone())
    );
    fs::write(&path, text).map_err(FleetError::file(&path))?;
    let executable = fs::Permissions::from_mode(0o700);
    fs::set_permissions(&path, executable).map_err(FleetError::file(&path))?;
    Ok(path)
}

/// Numbers of tasks are below `MaxArraySize`.
fn require_array_size(slices: u32) -> Result<(), FleetError> {
    let output = output(program("scontrol")?.args(["show", "config"]))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let size = text.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == "MaxArraySize").then(|| value.trim().parse::<u32>().ok())?
    });
    match size {
        Some(size) if slices >= size => Err(FleetError::new(
            format!(
                "{slices} slices are more than an array of this Slurm has (MaxArraySize {size})"
            ),
            format!(
                "create the fleet with at most {} slices",
                size.saturating_sub(1)
            ),
        )),
        _ => Ok(()),
    }
}

fn program(name: &str) -> Result<Command, FleetError> {
    match trapline_host::find_program(name) {
        Some(path) => Ok(Command::new(path)),
        None => Err(FleetError::new(
            format!("there is no {name} in $PATH"),
            "run this on a machine from which you submit jobs to Slurm",
        )),
    }
}

fn output(command: &mut Command) -> Result<std::process::Output, FleetError> {
    let program = PathBuf::from(command.get_program());
    command
        .stdin(Stdio::null())
        .output()
        .map_err(FleetError::file(&program))
}
