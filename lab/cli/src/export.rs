//! `trapline export`: the raw samples of a stored run as a file for other programs.

use crate::args::ExportArgs;
use crate::failure::{Failure, Status};
use crate::interrupt::Interrupt;
use crate::{keep, outcome, show, terminal};
use trapline_export::{ExportError, Form, Source};
use trapline_store::Store;

/// Writes all samples of a run and says how many.
///
/// # Errors
/// The file's name tells no form, or it is there; there is no such store or run, or it
/// cannot be read; the file cannot be written.
pub fn export(args: &ExportArgs) -> Result<Status, Failure> {
    Form::of(&args.output).map_err(|error| usage(&error))?;
    let file = keep::file(&args.store)?;
    let mut store = Store::open_existing(&file).map_err(|error| Failure::from_error(&error))?;
    let run = show::chosen(&mut store, args.run)?;
    let run = store
        .load(run)
        .map_err(|error| Failure::from_error(&error))?;
    if outcome::builds(&run).is_some() {
        let told = format!(
            "run {} is of kernel builds, and has no samples",
            run.info.id
        );
        let help = format!("trapline show --run {} --format json", run.info.id);
        return Err(Failure::new(told).help(help).status(Status::Usage));
    }
    let interrupt = Interrupt::watch()?;
    let source = Source {
        run: run.info.id.0.unsigned_abs(),
        observations: &run.observations,
    };
    let is_asked = || interrupt.is_asked();
    let written = trapline_export::write(&args.output, &source, args.force, &is_asked);
    let written = written.map_err(|error| match &error {
        ExportError::Form(_) | ExportError::Exists(_) => usage(&error),
        _ => interrupt.explain(&error),
    })?;
    let (name, samples) = (args.output.display(), written.samples);
    let (number, kib) = (run.info.id, written.bytes.div_ceil(1024));
    terminal::print_text(&format!(
        "{name} ({samples} samples of run {number}, {kib} KiB)\n"
    ))?;
    Ok(Status::Done)
}

fn usage(error: &ExportError) -> Failure {
    Failure::from_error(error).status(Status::Usage)
}
