//! Paths of recorded guest processes, see `replay`.

use std::path::{Path, PathBuf};
use trapline_abi::Job;

/// Returns the directory in which to record a process that starts with `job`, if recording is enabled.
pub fn record_path(job: &Job) -> Option<PathBuf> {
    let directory = std::env::var_os("TRAPLINE_RECORD")?;
    Some(Path::new(&directory).join(run_name(job)))
}

/// Returns the name of the recording of a process that starts with `job`.
pub fn run_name(job: &Job) -> String {
    format!("{:x}", job.run)
}
