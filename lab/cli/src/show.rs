//! `trapline show`: tables again, from the store alone.

use crate::args::ShowArgs;
use crate::failure::{Failure, Status};
use crate::{keep, kernel_build, outcome, terminal};
use std::time::{Duration, SystemTime};
use trapline_store::{RunId, RunInfo, Store};

/// Shows a run of the store, or lists the runs it has.
///
/// # Errors
/// There is no such store or run, or it cannot be read.
pub fn show(args: &ShowArgs) -> Result<Status, Failure> {
    let file = keep::file(&args.store)?;
    let mut store = Store::open_existing(&file).map_err(|error| Failure::from_error(&error))?;
    if args.list {
        let runs = store.runs().map_err(|error| Failure::from_error(&error))?;
        terminal::print_text(&list(&runs))?;
        return Ok(Status::Done);
    }
    let run = chosen(&mut store, args.run)?;
    let run = store
        .load(run)
        .map_err(|error| Failure::from_error(&error))?;
    if let Some(builds) = outcome::builds(&run) {
        kernel_build::print(&builds, kernel_build::form(args.format)?)?;
        return Ok(Status::Done);
    }
    outcome::print(&outcome::reports(&run), args.format)?;
    if args.plot {
        outcome::plot(&run)?;
    }
    Ok(Status::Done)
}

/// The run with this number, or the latest.
///
/// # Errors
/// The store has none yet, or cannot be read.
pub fn chosen(store: &mut Store, number: Option<u32>) -> Result<RunId, Failure> {
    if let Some(number) = number {
        return Ok(RunId(i64::from(number)));
    }
    let latest = store
        .latest()
        .map_err(|error| Failure::from_error(&error))?;
    latest.map(|info| info.id).ok_or_else(|| {
        let file = store.path().display();
        Failure::new(format!("there is no run in {file} yet")).help("trapline run")
    })
}

fn list(runs: &[RunInfo]) -> String {
    let lines = runs.iter().map(|run| {
        let state = match run.finished_at {
            Some(_) => "complete",
            None => "interrupted, or going on",
        };
        format!(
            "{:>4}  {}  {} boots, {state}\n      {}\n",
            run.id.0,
            date(run.started_at),
            run.boots,
            run.request
        )
    });
    lines.collect()
}

/// Milliseconds since 1970 as a date and time of day, in UTC.
pub fn date(milliseconds: u64) -> String {
    let moment = SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds);
    humantime::format_rfc3339_seconds(moment).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_listed_with_when_and_what() {
        let run = RunInfo {
            id: RunId(12),
            started_at: 951_782_400_000 + 3_660_000,
            finished_at: None,
            seed: 1,
            request: "--env host".to_owned(),
            version: String::new(),
            facts: Default::default(),
            boots: 3,
            keeper: None,
            plan: None,
        };
        let expected =
            "  12  2000-02-29T01:01:00Z  3 boots, interrupted, or going on\n      --env host\n";
        assert_eq!(list(&[run]), expected);
    }
}
