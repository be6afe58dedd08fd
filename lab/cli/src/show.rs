//! `trapline show`: prints the tables of a stored run.

use crate::args::ShowArgs;
use crate::failure::{Failure, Status};
use crate::store_path::store_path;
use crate::{outcome, recorded_command, terminal};
use std::time::{Duration, SystemTime};
use trapline_model::{time, Host};
use trapline_runner::is_running_elsewhere;
use trapline_store::{Run, RunId, RunInfo, Store};

/// Prints a stored run, or the list of runs.
///
/// # Errors
/// The store or run does not exist or cannot be read.
pub fn show(args: &ShowArgs) -> Result<Status, Failure> {
    let file = store_path(args.store.file.as_deref())?;
    let mut store = Store::open_existing(&file)?;
    if args.list {
        let runs = store.runs()?;
        terminal::print_text(&list(&runs))?;
        return Ok(Status::Done);
    }
    let run = chosen(&mut store, args.run)?;
    let run = of_host(store.load(run)?, args.host.as_deref())?;
    outcome::print_run(
        &run,
        &outcome::report(&run),
        &args.output,
        &args.store,
        None,
    )?;
    Ok(Status::Done)
}

/// Returns the run with this number, or the latest that has boots.
///
/// # Errors
/// The store has no such run, or cannot be read.
pub fn chosen(store: &mut Store, number: Option<u32>) -> Result<RunId, Failure> {
    if let Some(number) = number {
        return Ok(RunId(i64::from(number)));
    }
    if let Some(latest) = store.latest()? {
        return Ok(latest.id);
    }
    let runs = store.runs()?.len();
    let file = store.path().display();
    Err(match runs {
        0 => Failure::new(format!("no run in {file}")).help("trapline run"),
        _ => Failure::new(format!("no run in {file} has a boot"))
            .help("trapline show --list, and --run N to show one of them"),
    })
}

/// Returns a run with the boots of the host of this name, or whose id begins with it; the whole run if there is none.
///
/// # Errors
/// The run has no such host.
pub fn of_host(mut run: Run, name: Option<&str>) -> Result<Run, Failure> {
    let Some(name) = name else {
        return Ok(run);
    };
    let is_named =
        |host: &Host| host.name == name || (name.len() >= 8 && host.id.starts_with(name));
    let labels: Vec<String> = run
        .hosts
        .values()
        .map(|host| host.label().to_owned())
        .collect();
    run.hosts.retain(|_, host| is_named(host));
    if run.hosts.is_empty() {
        let help = match labels.len() {
            0 => "it was measured before Trapline recorded hosts: leave --host out".to_owned(),
            _ => format!("its hosts are {}", labels.join(", ")),
        };
        let message = format!("run {} has no boot of a host '{name}'", run.info.id);
        return Err(Failure::usage(message, help));
    }
    run.observations
        .retain(|boot| run.hosts.contains_key(&boot.host));
    Ok(run)
}

fn list(runs: &[RunInfo]) -> String {
    let lines = runs.iter().map(|run| {
        let state = match run.finished_at {
            Some(_) => "complete",
            None if is_running_elsewhere(run) => "in progress",
            None => "interrupted",
        };
        format!(
            "{:>4}  {}  {} boots, {state}\n      {}\n",
            run.id.0,
            date(run.started_at),
            run.boots,
            terminal::one_line(recorded_command::command(&run.request))
        )
    });
    lines.collect()
}

/// Formats milliseconds since 1970 as date and time in UTC.
pub fn date(milliseconds: u64) -> String {
    time::date(SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_model::RecordedRequest;

    #[test]
    fn runs_are_listed_with_date_and_request() {
        let run = RunInfo {
            id: RunId(12),
            started_at: 951_782_400_000 + 3_660_000,
            request: RecordedRequest {
                configs: ["host".to_owned()].into(),
                operations: vec!["basic".to_owned()],
                ..RecordedRequest::default()
            },
            boots: 3,
            ..RunInfo::default()
        };
        let expected =
            "  12  2000-02-29T01:01:00Z  3 boots, interrupted\n      trapline run --env host --workload basic\n";
        assert_eq!(list(&[run]), expected);
    }
}
