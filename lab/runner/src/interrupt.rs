//! Cancellation by SIGINT, SIGTERM or SIGHUP: the first signal ends the run after the current boot is
//! stopped, the second ends the process at once.

use crate::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use trapline_environments::tool;

/// A cancellation flag, and the signal that set it.
#[derive(Clone, Default)]
pub struct Interrupt {
    requested: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

/// The first one whose handlers were installed in this process.
static INSTALLED: OnceLock<Interrupt> = OnceLock::new();

impl Interrupt {
    /// Returns the signal that requested cancellation of this process's command, if there was one.
    pub fn received() -> Option<i32> {
        INSTALLED.get()?.signal()
    }

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
        let _ = INSTALLED.set(interrupt.clone());
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
