//! `trapline floor`: what the kernel itself charges for an exit, measured with no
//! VMM around it, on this host.

use crate::args::FloorArgs;
use crate::failure::Failure;
use crate::{parts, terminal};
use std::process::{Command, Stdio};

/// Runs the floor's own program and prints what it found.
///
/// # Errors
/// It is not there, or it failed.
pub fn floor(_args: &FloorArgs) -> Result<(), Failure> {
    let program = parts::directory().join("trapline-floor");
    let output = Command::new(&program)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            Failure::new(format!("{} cannot be started: {error}", program.display()))
                .help("make build")
        })?;
    terminal::print_text(&String::from_utf8_lossy(&output.stdout))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(words.trim()).help("trapline doctor tells what /dev/kvm is here"))
}
