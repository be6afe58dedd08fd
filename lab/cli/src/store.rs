//! `trapline store`: unites runs of several stores.

use crate::args::{RunOfFile, StoreArgs, StoreCommand};
use crate::failure::{Failure, Status};
use crate::{recorded_command, show, terminal};
use std::path::{Path, PathBuf};
use trapline_environments::private::{self, Origin};
use trapline_store::{Merged, NotMergeable, Run, Store, StoreError};

/// Executes a command about stores.
///
/// # Errors
/// A file cannot be read or written, or the runs do not belong together.
pub fn store(args: &StoreArgs) -> Result<Status, Failure> {
    match &args.command {
        StoreCommand::Merge { out, runs } => merge(out, runs),
    }
}

/// Why runs were not merged.
enum Refusal {
    Failure(Failure),
    NotMergeable(NotMergeable),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Failure(error.into())
    }
}

impl From<NotMergeable> for Refusal {
    fn from(error: NotMergeable) -> Self {
        Self::NotMergeable(error)
    }
}

fn merge(out: &Path, runs: &[RunOfFile]) -> Result<Status, Failure> {
    private::check_store(out, Origin::Option)?;
    let mut store = Store::open(out)?;
    let merged = merge_runs(&mut store, runs)?;
    terminal::print_text(&summary(&merged, out))?;
    Ok(Status::Done)
}

/// Unites the last runs of files to a run of a store.
///
/// # Errors
/// A file cannot be read, or the runs do not belong together.
pub fn merge_files(store: &mut Store, files: &[PathBuf]) -> Result<Merged, Failure> {
    let runs = files.iter().map(|file| RunOfFile {
        file: file.clone(),
        run: None,
    });
    merge_runs(store, &runs.collect::<Vec<_>>())
}

fn merge_runs(store: &mut Store, runs: &[RunOfFile]) -> Result<Merged, Failure> {
    let out = store.path().canonicalize().ok();
    let is_out = |named: &&RunOfFile| out.is_some() && named.file.canonicalize().ok() == out;
    if let Some(named) = runs.iter().find(is_out) {
        return Err(Failure::usage(
            format!("{named} is in the file to which the run is added"),
            "add it to another file",
        ));
    }
    let sources = runs.iter().map(|named| {
        let run = load(named).map_err(Refusal::Failure)?;
        Ok((named.to_string(), run))
    });
    store.merge(sources).map_err(|refusal| match refusal {
        Refusal::Failure(failure) => failure,
        Refusal::NotMergeable(error) => Failure::usage(
            error,
            "merge slices of one plan, or runs of one plan, by one version and build",
        ),
    })
}

fn load(named: &RunOfFile) -> Result<Run, Failure> {
    let mut store = Store::open_existing(&named.file)?;
    let runs = store.runs()?;
    // A slice may have no boots.
    let last = runs.iter().rfind(|run| run.boots > 0).or(runs.last());
    let run = match (named.run, last) {
        (None, Some(last)) => last.id,
        _ => show::chosen(&mut store, named.run)?,
    };
    Ok(store.load(run)?)
}

fn summary(merged: &Merged, out: &Path) -> String {
    let number = |count: u64, noun: &str| match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    };
    let boots = number(merged.boots, "boot");
    let hosts = number(merged.hosts as u64, "host");
    let mut lines = vec![format!("Run {}: {boots} of {hosts}.", merged.run)];
    if merged.repeated > 0 {
        let repeated = number(merged.repeated, "boot");
        lines.push(format!(
            "{repeated} of several of the runs, the same in each."
        ));
    }
    if !merged.unfinished.is_empty() {
        lines.push(format!("Not finished: {}.", merged.unfinished.join(", ")));
    }
    if !merged.missing.is_empty() {
        lines.push(format!("Missing slices: {}.", merged.missing.join(", ")));
    }
    let path = out.to_string_lossy();
    let path = recorded_command::quoted(&path);
    lines.push(format!("trapline show --store {path} --run {}", merged.run));
    lines.join("\n") + "\n"
}
