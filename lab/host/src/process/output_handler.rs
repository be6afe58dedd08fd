//! The receiver of a process's output.

use crate::Error;
use std::time::Duration;
use trapline_protocol::UsageProbe;

/// Handles the output of a process.
pub trait OutputHandler {
    /// Handles standard output, read at `at` ticks.
    fn console(&mut self, bytes: &[u8], at: u64, probe: &mut dyn UsageProbe);
    /// Handles standard error.
    fn errors(&mut self, bytes: &[u8]);
    /// Handles output on descriptor 3.
    fn events(&mut self, bytes: &[u8]);
    /// Checks the output after each read.
    ///
    /// # Errors
    /// The process is to be stopped.
    fn check(&mut self) -> Result<(), Error>;
    /// Returns whether the process can be killed because all output arrived; `elapsed` is its run
    /// time. Called at least every 100 ms.
    ///
    /// # Errors
    /// The process is to be stopped.
    fn is_complete(&mut self, elapsed: Duration) -> Result<bool, Error> {
        let _ = elapsed;
        Ok(false)
    }
    /// Returns the last output, for error messages.
    fn last_output(&self) -> String;
}
