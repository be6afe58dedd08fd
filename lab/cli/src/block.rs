//! `trapline block`: measures the latency and throughput of a disk.

use crate::args::BlockArgs;
use crate::run;
use crate::session::{open_store, Session};
use std::path::Path;
use trapline_environments::Settings;
use trapline_model::Request;
use trapline_runner::run::{default_configs, perform};
use trapline_runner::{BootOptions, Failure, Status};

/// Measures, stores and prints.
///
/// # Errors
/// A part is missing, the file exists, the store cannot be written, or output cannot.
pub fn block(args: &BlockArgs) -> Result<Status, Failure> {
    if let Some(path) = &args.disk {
        require_new(path)?;
    }
    let mut store = open_store(&args.run_options)?;
    let environment_options = &args.environment_options;
    environment_options.reject_thread_policy()?;
    let inventory = environment_options.inventory_with(|settings| Settings {
        disk: args.disk.clone(),
        ..settings
    })?;
    let session = Session::open(&args.run_options, inventory)?;
    let (operations, named) = args.operations();
    let configs = default_configs(&args.environments());
    let request = Request {
        ready: session.inventory.ready(&configs, &[]),
        configs,
        operations,
        named,
        overrides: session.inventory.overrides().clone(),
        block: args.settings(),
        ..args.size_options.request()
    };
    let options = BootOptions::default();
    let run = perform(&mut store, &request, &session.context(), &options)?;
    run::show(&run, &session.report(&run), args.format, &session.interrupt)
}

/// # Errors
/// The file exists, so that its content would be lost, or its directory does not.
fn require_new(path: &Path) -> Result<(), Failure> {
    if path.exists() {
        return Err(Failure::usage(
            format!("--file: file exists: {}", path.display()),
            "name a new file on the disk to measure: existing content would be lost",
        ));
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => Err(Failure::usage(
            format!("--file: no such directory: {}", parent.display()),
            "name a new file in an existing directory",
        )),
        _ => Ok(()),
    }
}
