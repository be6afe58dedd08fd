//! `trapline report`: writes a stored run as an HTML page.

use crate::args::ReportArgs;
use crate::failure::{Failure, Status};
use crate::store_path::store_path;
use crate::{outcome, recorded_command, show, terminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use trapline_host::files::{read_text, TEXT_LIMIT};
use trapline_report::page::{self as report_page, BadProfile, Profile};
use trapline_store::{Run, Store};

/// Writes the page of a run and prints its path.
///
/// # Errors
/// The store or run does not exist or cannot be read, or the page cannot be written.
pub fn report(args: &ReportArgs) -> Result<Status, Failure> {
    let is_printed = args.output.as_deref() == Some(Path::new("-"));
    if is_printed && args.open {
        return Err(Failure::usage(
            "--open is not supported with standard output",
            "name a file with --output",
        ));
    }
    let file = store_path(args.store.file.as_deref())?;
    let mut store = Store::open_existing(&file)?;
    let run = show::chosen(&mut store, args.run)?;
    let run = show::of_host(store.load(run)?, args.host.as_deref())?;
    let profiles = args.profiles.iter().map(|path| profile(path));
    let text = page(&run, &profiles.collect::<Result<Vec<_>, _>>()?);
    let named = args.output.clone();
    let path = named.unwrap_or_else(|| PathBuf::from(format!("trapline-run-{}.html", run.info.id)));
    if is_printed {
        terminal::print_text(&text)?;
        return Ok(Status::Done);
    }
    write(&path, &text)?;
    if args.open {
        open(&path)?;
    }
    Ok(Status::Done)
}

/// Reads a profile from a file.
fn profile(path: &Path) -> Result<Profile, Failure> {
    let about = format!("--profile {}", path.display());
    let text = read_text(path, TEXT_LIMIT);
    let text = text.map_err(|error| Failure::from_error(&error).about(&about))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let failure = |error: BadProfile| Failure::new(&error).help(error.remedy()).about(&about);
    Profile::parse(&name, &text).map_err(failure)
}

fn page(run: &Run, profiles: &[Profile]) -> String {
    let source = report_page::Source {
        report: &outcome::report(run),
        observations: &outcome::observations(run),
        profiles,
        run: &report_page::Run {
            number: run.info.id.0,
            started: show::date(run.info.started_at),
            boots: run.info.boots,
            is_complete: run.info.finished_at.is_some(),
            request: recorded_command::command(&run.info.request),
        },
    };
    report_page::page(&source)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| {
        Failure::new(format!(
            "--output: cannot write {}: {error}",
            path.display()
        ))
        .help("name a file in an existing, writable directory")
    })?;
    let kib = text.len().div_ceil(1024);
    terminal::print_text(&format!("{} ({kib} KiB)\n", path.display()))
}

/// Opens the page with the desktop's browser.
fn open(path: &Path) -> Result<(), Failure> {
    let started = Command::new("xdg-open")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    started.map(drop).map_err(|error| {
        Failure::new(format!("--open: cannot start xdg-open: {error}"))
            .help(format!("open {} in a browser", path.display()))
    })
}
