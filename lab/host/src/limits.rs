//! Limits of a running process.

use crate::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time limit and stop request for processes: a VMM, or a whole simulated machine.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum run time of one process.
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

    /// Checks the limits of a process started at `start`.
    ///
    /// # Errors
    /// [`Error::Stopped`], or [`Error::TimedOut`] with `output`.
    pub fn check(&self, start: Instant, output: impl Fn() -> String) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        if start.elapsed() >= self.timeout {
            return Err(Error::TimedOut {
                after: self.timeout,
                output: output(),
            });
        }
        Ok(())
    }
}
