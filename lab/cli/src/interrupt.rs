//! Ctrl-C and its kin: the first asks the run to end in order, the second ends
//! it at once.

use crate::failure::{Failure, Status};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

/// Whether somebody asked the run to end.
#[derive(Clone, Default)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Watches for the signals from here on.
    ///
    /// # Errors
    /// The kernel refuses a handler.
    pub fn watch() -> Result<Self, Failure> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            interrupt.register(signal).map_err(|error| {
                Failure::new(format!("cannot watch for signal {signal}: {error}"))
            })?;
        }
        Ok(interrupt)
    }

    /// In this order: handlers run in the order of registration, so the first
    /// signal finds `asked` unset and only sets it; the next one ends the program.
    fn register(&self, signal: i32) -> std::io::Result<()> {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&self.asked))?;
        flag::register_usize(signal, Arc::clone(&self.signal), signal as usize)?;
        flag::register(signal, Arc::clone(&self.asked))?;
        Ok(())
    }

    /// The flag itself, for whoever waits for a guest.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asked)
    }

    /// Asks for an end without any signal.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Whether an end was asked for.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// What a failure is called that may have come of asking for an end.
    pub fn explain(&self, error: &dyn std::error::Error) -> Failure {
        match self.signal() {
            Some(signal) => Failure::new("interrupted").status(Status::Interrupted(signal)),
            None => Failure::from_error(error),
        }
    }

    /// The signal, once there was one.
    pub fn signal(&self) -> Option<i32> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(signal as i32),
        }
    }
}
