//! Cancellation by SIGINT, SIGTERM or SIGHUP: the first signal ends the run after the current boot is
//! stopped, the second ends the process at once.

use crate::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use trapline_environments::tool;

/// A cancellation flag, and the signal that set it.
#[derive(Clone, Default)]
pub struct Interrupt {
    requested: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Installs the signal handlers.
    ///
    /// # Errors
    /// The kernel refuses a handler.
    pub fn install() -> Result<Self, Failure> {
        let interrupt = Self::default();
        tool::end_on(interrupt.flag());
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let registered = interrupt.register(signal);
            registered
                .map_err(|error| Failure::new(format!("cannot handle signal {signal}: {error}")))?;
        }
        Ok(interrupt)
    }

    /// Handlers run in the order of registration: the first signal finds `requested` unset and only
    /// sets it; the next one ends the process.
    fn register(&self, signal: i32) -> std::io::Result<()> {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&self.requested))?;
        flag::register_usize(signal, Arc::clone(&self.signal), signal as usize)?;
        flag::register(signal, Arc::clone(&self.requested))?;
        Ok(())
    }

    /// Returns the flag itself, for code that waits for a guest.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.requested)
    }

    /// Requests cancellation without a signal.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
    }

    /// Returns whether cancellation was requested.
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Returns `failure`, or [`Failure::interrupted`] after a signal, its likely cause.
    pub fn explain(&self, failure: impl Into<Failure>) -> Failure {
        match self.check() {
            Err(interrupted) => interrupted,
            Ok(()) => failure.into(),
        }
    }

    /// Returns [`Failure::interrupted`] after a signal.
    ///
    /// # Errors
    /// There was a signal.
    pub fn check(&self) -> Result<(), Failure> {
        self.signal()
            .map_or(Ok(()), |signal| Err(Failure::interrupted(signal)))
    }

    /// Returns the signal, if there was one.
    pub fn signal(&self) -> Option<i32> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(signal as i32),
        }
    }
}
