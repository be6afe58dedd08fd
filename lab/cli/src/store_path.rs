//! Path of the store, and completion of its runs.

use crate::recorded_command;
use clap_complete::{ArgValueCandidates, CompletionCandidate};
use std::path::{Path, PathBuf};
use trapline_environments::private::{self, Origin};
use trapline_runner::Failure;
use trapline_store::Store;

/// Largest number of runs that are listed as completions.
const MAX_RUNS: usize = 20;

/// Returns `file` if it is named, or `trapline/trapline.db` in the user's data directory.
///
/// # Errors
/// `XDG_DATA_HOME` is not set, and neither is a `HOME` of this user, or other users can change the store.
pub fn store_path(file: Option<&Path>) -> Result<PathBuf, Failure> {
    let (path, origin) = match file {
        Some(file) => (file.to_owned(), Origin::Option),
        None => {
            let found = private::user_directory("XDG_DATA_HOME", ".local/share");
            let (directory, origin) = found
                .map_err(|error| Failure::from(error).help("name a file with --store FILE"))?;
            private::check_home(origin)?;
            (directory.join("trapline.db"), origin)
        }
    };
    private::check_store(&path, origin)?;
    Ok(path)
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
            CompletionCandidate::new(run.id.to_string())
                .help(Some(recorded_command::command(&run.request).into()))
        };
        runs.map(candidate).collect()
    })
}
