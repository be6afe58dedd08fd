//! The debugger of Bochs: its script continues the machine, and traces the instructions between the markers of a batch.
//!
//! Markers are its magic breakpoint ([`trapline_abi::marker`]), at which it stops in any program and mode. Between batches
//! the machine runs freely. A stop takes no time on the machine.

use super::program::{Bochs, Debugger, REMEDY};
use crate::trace::Trace;
use trapline_host::Error;

/// Script that continues the machine.
pub const GO: &str = "c\n";

/// Line of the configuration for the magic breakpoint.
pub const BREAKPOINT: &str = "magic_break: enabled=1\n";

/// Script of a batch: continue to the marker at its begin, and to that at its end.
const BATCH: &str = "c\ntrace on\nc\ntrace off\n";

/// Number of traced batches, above that of any job. Commands after the end of the machine are not read.
const MOST_BATCHES: usize = 1 << 14;

/// A debugger that traces batches.
#[derive(Clone, Debug)]
pub struct Watcher {
    /// Destination of the trace.
    pub trace: Trace,
}

impl Watcher {
    /// Traces the batches of a machine of `bochs`.
    ///
    /// # Errors
    /// Bochs has no debugger.
    pub fn of(trace: &Trace, bochs: &Bochs) -> Result<Self, Error> {
        let program = bochs.program.display();
        let reason = format!("{program} was built without its debugger, which lists instructions");
        match bochs.debugger {
            Debugger::Missing => Err(Error::missing(reason, REMEDY)),
            Debugger::Always | Debugger::Option => Ok(Self {
                trace: trace.clone(),
            }),
        }
    }

    /// Returns the script of the debugger.
    pub fn script() -> String {
        BATCH.repeat(MOST_BATCHES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn bochs_without_a_debugger_is_rejected() {
        let bochs = Bochs {
            program: "/opt/bochs".into(),
            version: "3".to_owned(),
            model: "",
            debugger: Debugger::Missing,
        };
        let trace = Trace::new(std::sync::Arc::new(std::sync::Mutex::new(Vec::new())));
        let text = Watcher::of(&trace, &bochs);
        expect!["/opt/bochs was built without its debugger, which lists instructions: sudo apt-get install --no-install-recommends bochs bochs-term"].assert_eq(&text.unwrap_err().to_string());
    }
}
