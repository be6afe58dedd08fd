//! Limits of a running process.

use crate::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Time limit and stop request for processes: a VMM, or a whole simulated machine.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest run time of one process: CPU time of an emulator, wall time of any other.
    pub timeout: Duration,
    /// Requests the end of all processes when set.
    pub stop: Arc<AtomicBool>,
}

impl Limits {
    /// Returns a time limit without a stop request.
    pub fn timeout(timeout: Duration) -> Self {
        Self {
            timeout,
            stop: Arc::default(),
        }
    }

    /// Checks the limits of a process that ran for `elapsed`.
    ///
    /// # Errors
    /// [`Error::Stopped`], or [`Error::TimedOut`] with `output`.
    pub fn check(&self, elapsed: Duration, output: impl Fn() -> String) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        if elapsed >= self.timeout {
            return Err(Error::TimedOut {
                after: self.timeout,
                output: output(),
            });
        }
        Ok(())
    }
}
