//! Machines whose output is collected, and not decoded while they run.

use trapline_abi::platform::EXIT_STATUS_DONE;
use trapline_host::process::{Command, OutputHandler, Process};
use trapline_host::{Error, Limits};
use trapline_protocol::{UsageProbe, MAX_BYTES};

/// Output of a machine.
#[derive(Default)]
pub struct Output {
    /// The guest's console.
    pub console: Vec<u8>,
    /// Messages of NOVA, of the root task and of the guest's serial port.
    pub errors: Vec<u8>,
}

/// Runs a machine until it ends. Returns its output, and whether the guest has ended successfully.
///
/// # Errors
/// The machine does not start, floods its console, or does not end in time.
pub fn run_machine(command: &Command, limits: &Limits) -> Result<(Output, bool), Error> {
    let mut process = Process::start(command)?;
    let mut output = Output::default();
    let exited = process.wait(&mut output, limits)?;
    Ok((output, exited.status.code() == Some(EXIT_STATUS_DONE)))
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
        if length as u64 > MAX_BYTES {
            Err(Error::Flooded {
                output: self.last_output(),
            })
        } else {
            Ok(())
        }
    }

    fn last_output(&self) -> String {
        String::new()
    }
}
