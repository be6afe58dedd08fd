//! `trapline kernel-build`: measures how long a kernel takes to build, by environment, number of CPUs
//! and their placement.

use crate::args::KernelBuildArgs;
use crate::session::{open_store, Session};
use crate::{run, terminal};
use std::io::{self, IsTerminal};
use trapline_environments::kernel_build::{self as builds, Download};
use trapline_model::Request;
use trapline_runner::{Failure, Inventory, Status};

/// Builds, stores and prints.
///
/// # Errors
/// A part is missing, the store cannot be written, or output cannot.
pub fn kernel_build(args: &KernelBuildArgs) -> Result<Status, Failure> {
    let mut store = open_store(&args.run_options)?;
    let inventory = args.environment_options.inventory()?;
    confirm(args, &inventory)?;
    let session = Session::open(&args.run_options, inventory)?;
    let request = args.request();
    let request = Request {
        ready: session.inventory.ready(&request.configs, &request.long),
        ..request
    };
    run::measure(
        &request,
        &mut store,
        &session,
        &args.output,
        &args.run_options.store,
    )
}

/// Prints what is to be downloaded, and asks on a terminal.
///
/// # Errors
/// The answer is no.
fn confirm(args: &KernelBuildArgs, inventory: &Inventory) -> Result<(), Failure> {
    // What is missing is reported by the run.
    let download = builds::download(&inventory.settings().cache, args.size);
    let Ok(Some(download)) = download else {
        return Ok(());
    };
    terminal::print_error(&announcement(&download));
    let asks = !args.yes && terminal::is_watched() && io::stdin().is_terminal();
    if asks && !is_yes(&terminal::answer("download them? [Y/n] ")) {
        let declined = Failure::new("kernel-build: the download was declined");
        let declined = declined.help("--yes downloads without a question");
        return Err(declined.status(Status::Unmeasured));
    }
    Ok(())
}

fn announcement(download: &Download) -> String {
    let size = match download.bytes {
        0 => String::new(),
        bytes => format!(", {} MB", bytes.div_ceil(1_000_000)),
    };
    let count = download.packages;
    format!("the kernel's source and a compiler are {count} packages{size}, kept in the cache and not installed")
}

fn is_yes(answer: &str) -> bool {
    ["", "y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_download_has_a_size_and_needs_consent() {
        let download = Download {
            packages: 92,
            bytes: 217_300_000,
        };
        let expected = "the kernel's source and a compiler are 92 packages, 218 MB, kept in the cache and not installed";
        assert_eq!(announcement(&download), expected);
        for (answer, expected) in [
            ("\n", true),
            ("Y\n", true),
            ("n\n", false),
            ("what?\n", false),
        ] {
            assert_eq!(is_yes(answer), expected, "{answer}");
        }
    }
}
