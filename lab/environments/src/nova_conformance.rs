//! The conformance suite of the VM interface on NOVA: one machine for each part.

use crate::bochs;
use crate::sim::nova::{run_machine, ImageOnNova, Output};
use trapline_host::{Error, Limits};
use trapline_model::layers::Machine;
use trapline_model::EnvironmentId;
use trapline_sim::settings::Settings;

/// Memory for the guest, in MiB.
const MEMORY_MIB: u32 = 64;

/// Begin of the root task's message about a failure.
const FAILURE: &str = "\ntrapline-nova: ";

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

/// Runs a part of the suite on the machine of `environment`.
///
/// # Errors
/// A file is missing, or the machine failed.
pub fn run_nova_conformance(
    environment: EnvironmentId,
    settings: &Settings,
    part: &str,
    limits: &Limits,
) -> Result<Conformance, Error> {
    let image = settings.parts.image()?;
    let words = format!("conformance={part}");
    let (Output { console, errors }, _) = match environment.stack().machine {
        Machine::SimVmx => {
            let machine = bochs::ImageOnNova::new(settings, &image, MEMORY_MIB, None)?;
            run_machine(&machine.with_words(&words, "")?, limits)?
        }
        _ => {
            let machine = ImageOnNova::new(settings, &image, MEMORY_MIB)?;
            run_machine(&machine.with_words(&words, ""), limits)?
        }
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (console, messages) = (text(&console), text(&errors));
    // Bochs prints there before.
    let start = console.find(part).unwrap_or(console.len());
    let trace = console[start..].to_owned();
    Ok(Conformance {
        has_passed: !trace.is_empty() && !messages.contains(FAILURE),
        trace,
        messages,
    })
}
