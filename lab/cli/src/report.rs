//! `trapline report`: a stored run as one page of HTML, from the store alone.

use crate::args::ReportArgs;
use crate::failure::{Failure, Status};
use crate::{keep, outcome, show, terminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use trapline_report::page::{self, Ledger};
use trapline_store::{Run, Store};

/// Makes the page of a run and says where it is.
///
/// # Errors
/// There is no such store or run, it cannot be read, or the page cannot be written.
pub fn report(args: &ReportArgs) -> Result<Status, Failure> {
    let is_printed = args.output.as_deref() == Some(Path::new("-"));
    if is_printed && args.open {
        let told = Failure::new("--open: there is no file to be opened");
        return Err(told.help("name one with --output").status(Status::Usage));
    }
    let file = keep::file(&args.store)?;
    let mut store = Store::open_existing(&file).map_err(|error| Failure::from_error(&error))?;
    let run = show::chosen(&mut store, args.run)?;
    let run = store
        .load(run)
        .map_err(|error| Failure::from_error(&error))?;
    let ledgers = args.ledgers.iter().map(|path| ledger(path));
    let text = made(&run, &ledgers.collect::<Result<Vec<_>, _>>()?);
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

/// Reads a ledger from a file.
fn ledger(path: &Path) -> Result<Ledger, Failure> {
    let told = |error: &dyn std::error::Error| {
        Failure::from_error(error).about(&format!("--ledger {}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| told(&error))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    Ledger::parse(&name, &text).map_err(|error| told(&error))
}

fn made(run: &Run, ledgers: &[Ledger]) -> String {
    let builds = outcome::builds(run);
    let source = page::Source {
        studies: &outcome::studies(run),
        ledgers,
        builds: builds.as_ref(),
        run: &page::Run {
            number: run.info.id.0,
            started: show::date(run.info.started_at),
            boots: run.info.boots,
            is_complete: run.info.finished_at.is_some(),
            request: run.info.request.clone(),
        },
    };
    page::page(&source)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| {
        let told = format!("--output: cannot write {}: {error}", path.display());
        Failure::new(told).help("name a file in a directory that is there and may be written to")
    })?;
    let kib = text.len().div_ceil(1024);
    terminal::print_text(&format!("{} ({kib} KiB)\n", path.display()))
}

/// Hands the page to whatever the desktop opens pages with.
fn open(path: &Path) -> Result<(), Failure> {
    let started = Command::new("xdg-open")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    // It is the desktop's from now on, and ends when it likes.
    started.map(drop).map_err(|error| {
        Failure::new(format!("--open: xdg-open cannot be started: {error}"))
            .help(format!("open {} in a browser", path.display()))
    })
}
