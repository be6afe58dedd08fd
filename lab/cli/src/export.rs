//! `trapline export`: writes the raw samples of a stored run to a file.

use crate::args::ExportArgs;
use crate::failure::{Failure, Status};
use crate::store_path::store_path;
use crate::{show, terminal};
use trapline_report::export::{ExportError, Format, Source};
use trapline_runner::Interrupt;
use trapline_store::Store;

/// Writes all samples of a run and prints their number.
///
/// # Errors
/// The file has an unknown extension, exists, or cannot be written; the store or run does not exist or
/// cannot be read.
pub fn export(args: &ExportArgs) -> Result<Status, Failure> {
    Format::of(&args.output).map_err(|error| failure(&error).status(Status::Usage))?;
    let file = store_path(args.store.file.as_deref())?;
    let mut store = Store::open_existing(&file)?;
    let run = show::chosen(&mut store, args.run)?;
    let run = store.load(run)?;
    let interrupt = Interrupt::install()?;
    let source = Source {
        run: run.info.id.0.unsigned_abs(),
        observations: &run.observations,
    };
    let is_cancelled = || interrupt.is_requested();
    let written = trapline_report::export::write(&args.output, &source, args.force, &is_cancelled);
    let written = written.map_err(|error| match &error {
        ExportError::Format(_) | ExportError::Exists(_) => failure(&error).status(Status::Usage),
        _ => failure(&error),
    })?;
    let (name, samples) = (args.output.display(), written.samples);
    let (number, kib) = (run.info.id, written.bytes.div_ceil(1024));
    terminal::print_text(&format!(
        "{name} ({samples} samples of run {number}, {kib} KiB)\n"
    ))?;
    Ok(Status::Done)
}

fn failure(error: &ExportError) -> Failure {
    Failure {
        help: error.remedy().map(str::to_owned),
        ..Failure::from_error(error)
    }
}
