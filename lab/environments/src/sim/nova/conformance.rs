//! The conformance suite of the VM interface on NOVA: one machine for each part.

use super::output::{run_machine, Output};
use super::ImageOnNova;
use trapline_host::{Error, Limits};
use trapline_sim::settings::Settings;

/// Memory for the guest, in MiB.
const MEMORY_MIB: u32 = 64;

/// Output of a part of the suite.
#[derive(Debug, Default)]
pub struct Conformance {
    /// The trace, or the reason to skip the part.
    pub trace: String,
    /// Messages of the machine.
    pub messages: String,
    /// The part passed or was skipped.
    pub has_passed: bool,
}

/// Runs a part of the suite.
///
/// # Errors
/// A file is missing, or the machine failed.
pub fn run_conformance(
    settings: &Settings,
    part: &str,
    limits: &Limits,
) -> Result<Conformance, Error> {
    let image = settings.parts.image()?;
    let machine = ImageOnNova::new(settings, &image, MEMORY_MIB)?;
    let command = machine.with_words(&format!(" conformance={part}"), "");
    let (output, has_passed) = run_machine(&command, limits)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let Output { console, errors } = output;
    Ok(Conformance {
        trace: text(&console),
        messages: text(&errors),
        has_passed,
    })
}
