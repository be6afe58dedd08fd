//! The conformance suite of the VM interface on NOVA: one machine for each part.

use super::ImageOnNova;
use trapline_abi::platform::EXIT_STATUS_DONE;
use trapline_host::process::{OutputHandler, Process};
use trapline_host::{Error, Limits};
use trapline_protocol::{UsageProbe, MAX_BYTES};
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
    let modules = machine.modules(&format!(" conformance={part}"), "");
    let mut process = Process::start(&machine.with_modules(modules))?;
    let mut output = Output::default();
    let exited = process.wait(&mut output, limits)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Conformance {
        trace: text(&output.console),
        messages: text(&output.errors),
        has_passed: exited.status.code() == Some(EXIT_STATUS_DONE),
    })
}

#[derive(Default)]
struct Output {
    console: Vec<u8>,
    errors: Vec<u8>,
}

impl OutputHandler for Output {
    fn console(&mut self, bytes: &[u8], _: u64, _: &mut dyn UsageProbe) {
        self.console.extend(bytes);
    }

    fn errors(&mut self, bytes: &[u8]) {
        self.errors.extend(bytes);
    }

    fn events(&mut self, _: &[u8]) {}

    fn check(&mut self) -> Result<(), Error> {
        let length = self.console.len() + self.errors.len();
        match length as u64 > MAX_BYTES {
            true => Err(Error::Flooded {
                output: self.last_output(),
            }),
            false => Ok(()),
        }
    }

    fn last_output(&self) -> String {
        String::new()
    }
}
