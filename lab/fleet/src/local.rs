//! Slices as processes of this host.

use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::package::PROGRAM;
use crate::work::ENDS_WITH_PARENT;
use std::collections::VecDeque;
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Attempts of a slice.
const MOST_ATTEMPTS: usize = 3;

/// Interval in which processes are looked at.
const WAIT: Duration = Duration::from_millis(50);

/// Executes all missing slices in so many processes at a time, each slice up to three times. Returns when nothing is left to try, or
/// when `is_cancelled` is true, and calls `progress` whenever a process has ended.
///
/// # Errors
/// A process cannot be started.
pub fn execute(
    fleet: &Fleet,
    processes: usize,
    is_cancelled: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(),
) -> Result<(), FleetError> {
    let missing = fleet.missing().into_iter();
    let mut waiting: VecDeque<(u32, usize)> = missing.map(|slice| (slice, 1)).collect();
    let mut running = Running(Vec::new());
    while !is_cancelled() {
        while running.0.len() < processes {
            let Some((slice, attempt)) = waiting.pop_front() else {
                break;
            };
            running.0.push((start(fleet, slice)?, slice, attempt));
        }
        if running.0.is_empty() {
            break;
        }
        for (slice, attempt) in running.ended() {
            let is_done = fleet.is_done(slice);
            if !is_done && attempt < MOST_ATTEMPTS {
                waiting.push_back((slice, attempt + 1));
            }
            // They are of this host, unless another engine works on the same fleet.
            if !is_done && !fleet.unfit_hosts().is_empty() {
                waiting.clear();
            }
            progress();
        }
        thread::sleep(WAIT);
    }
    Ok(())
}

/// Processes with slice and attempt; they are ended with it.
struct Running(Vec<(Child, u32, usize)>);

impl Running {
    /// Removes those that have ended.
    fn ended(&mut self) -> Vec<(u32, usize)> {
        let mut ended = Vec::new();
        self.0.retain_mut(|(child, slice, attempt)| {
            let runs = matches!(child.try_wait(), Ok(None));
            if !runs {
                ended.push((*slice, *attempt));
            }
            runs
        });
        ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for (child, _, _) in &mut self.0 {
            // What it measures is stored boot by boot; its own processes end with it (`ENDS_WITH_PARENT`).
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(fleet: &Fleet, slice: u32) -> Result<Child, FleetError> {
    let program = fleet.package().join(PROGRAM);
    let mut command = Command::new(&program);
    command
        .args(["fleet", "work"])
        .arg(&fleet.directory)
        .arg(slice.to_string());
    let log = fleet.log().join(format!("local-{slice}.txt"));
    let stderr = File::options().create(true).append(true).open(&log);
    let stderr = stderr.map_err(FleetError::file(&log))?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr);
    command.env(ENDS_WITH_PARENT, std::process::id().to_string());
    command.spawn().map_err(FleetError::file(&program))
}
