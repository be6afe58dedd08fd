//! `trapline kernel-build`: measures how long a kernel takes to build, by environment, number of CPUs
//! and their placement.

use crate::args::{Format, KernelBuildArgs};
use crate::outcome;
use crate::session::{open_store, Session};
use std::time::Instant;
use trapline_model::kernel_build::{BuildRequest, Size};
use trapline_report::kernel_build::Matrix;
use trapline_report::Family;
use trapline_runner::{kernel_build, Failure, Interrupt, Resume, Status};
use trapline_store::{Run, Store};

/// Name of the measurement, for messages.
const FAMILY: &str = "kernel builds";

/// Builds, stores and prints.
///
/// # Errors
/// A part is missing, the store cannot be written, or output cannot.
pub fn kernel_build(args: &KernelBuildArgs) -> Result<Status, Failure> {
    let mut store = open_store(&args.run_options)?;
    let inventory = args.run_options.environment_options.inventory()?;
    let session = Session::open(&args.run_options, inventory)?;
    let request = args.request();
    let size = request.size;
    let run = kernel_build::perform(&mut store, request, None, &session.context(), None)?;
    show(&run, size, args.format.into(), &session.interrupt)
}

/// Executes the builds of a plan file, and prints them.
///
/// # Errors
/// See [`kernel_build`]; also a format that builds do not have.
pub fn run_plan(
    store: &mut Store,
    request: BuildRequest,
    plan: (&str, Resume),
    session: &Session,
    deadline: Option<Instant>,
    format: Format,
) -> Result<Status, Failure> {
    // Checked before hours of building.
    let format = outcome::supported_by_family(FAMILY, format)?;
    let (size, context) = (request.size, session.context());
    let run = kernel_build::perform(store, request, Some(plan), &context, deadline)?;
    show(&run, size, format, &session.interrupt)
}

fn show(run: &Run, size: Size, format: Format, interrupt: &Interrupt) -> Result<Status, Failure> {
    let matrix = Matrix::new(size, &run.builds);
    let status = status(&matrix);
    outcome::print_family(&Family::Builds(matrix), format)?;
    Ok(outcome::of_command(run, status, interrupt))
}

fn status(matrix: &Matrix) -> Status {
    match (matrix.is_good(), matrix.wavers()) {
        (false, _) => Status::Failed,
        (true, true) => Status::Undetermined,
        (true, false) => Status::Done,
    }
}
