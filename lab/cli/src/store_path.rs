//! Path of the store, and completion of its runs.

use clap_complete::{ArgValueCandidates, CompletionCandidate};
use std::path::{Path, PathBuf};
use trapline_runner::Failure;
use trapline_store::Store;

/// Largest number of runs that are listed as completions.
const MAX_RUNS: usize = 20;

/// Returns `file` if it is named, or `trapline/trapline.db` in the user's data directory.
///
/// # Errors
/// Neither `XDG_DATA_HOME` nor `HOME` is set.
pub fn store_path(file: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(file) = file {
        return Ok(file.to_owned());
    }
    let base = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    let base = base.ok_or_else(|| {
        Failure::new("no directory for the store: neither XDG_DATA_HOME nor HOME is set")
            .help("name a file with --store FILE")
    })?;
    Ok(base.join("trapline/trapline.db"))
}

/// Returns the path in an environment variable. The XDG base directory specification ignores relative
/// paths.
fn absolute(variable: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(variable)?);
    path.is_absolute().then_some(path)
}

/// Returns the completer of numbers of runs in the default store, the latest first.
pub fn run_numbers() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let path = store_path(None).ok();
        let store = path.and_then(|path| Store::open_existing(&path).ok());
        let runs = store.and_then(|mut store| store.runs().ok());
        let mut runs = runs.unwrap_or_default();
        runs.sort_by_key(|run| std::cmp::Reverse(run.id.0));
        let runs = runs.into_iter().take(MAX_RUNS);
        let candidate = |run: trapline_store::RunInfo| {
            CompletionCandidate::new(run.id.to_string()).help(Some(run.request.into()))
        };
        runs.map(candidate).collect()
    })
}
