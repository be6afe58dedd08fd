//! `trapline block`: how long a disk takes for a request, and how many it serves. It
//! measures, stores and shows as `trapline run` does.

use crate::args::BlockArgs;
use crate::failure::{Failure, Status};
use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::outcome;
use crate::run::{self, Means};
use trapline_model::Request;

/// Measures, stores and shows.
///
/// # Errors
/// A part is missing, the file is there already, the store cannot be written, or output
/// cannot.
pub fn block(args: &BlockArgs) -> Result<Status, Failure> {
    check_file(args)?;
    let mut store = run::open_store(&args.manner)?;
    let interrupt = Interrupt::watch()?;
    let lab = Lab::with_disk(&args.manner.simulated, args.disk.clone())?;
    let (operations, named) = args.operations();
    let request = Request {
        contenders: run::usual(&args.environments()),
        ready: run::ready(&lab),
        operations,
        named,
        scheduling: lab.scheduling(),
        block: args.settings(),
        ..args.extent.request()
    };
    let means = Means::new(&lab, &interrupt, &args.manner);
    let run = run::perform(&mut store, &request, &means)?;
    run::show(&run, &outcome::reports(&run), args.format, &interrupt)
}

/// All that is in the file would be lost.
fn check_file(args: &BlockArgs) -> Result<(), Failure> {
    let usage = |told: String, help: &str| Err(Failure::new(told).help(help).status(Status::Usage));
    let Some(path) = &args.disk else {
        return Ok(());
    };
    if path.exists() {
        let told = format!("--file: {} is there, and would be lost", path.display());
        return usage(told, "name a new file on the disk that is to be measured");
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
            let told = format!("--file: there is no directory {}", parent.display());
            usage(told, "name a new file in one that is there")
        }
        _ => Ok(()),
    }
}
