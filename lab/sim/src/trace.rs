//! Traces of the debugger of Bochs, which share a stream with the console of the guest.

use std::fmt;
use std::io::Write;
use std::sync::{Arc, Mutex};
use trapline_host::process::Diversion;

/// Destination of the instructions executed between markers on a machine with a debugger.
#[derive(Clone)]
pub struct Trace(Arc<Mutex<dyn Write + Send>>);

impl Trace {
    /// Returns a trace written to `to` as it arrives.
    pub fn new(to: Arc<Mutex<dyn Write + Send>>) -> Self {
        Self(to)
    }

    /// Diverts the trace from the output of Bochs.
    pub fn diversion(&self) -> Diversion {
        Diversion {
            begin: b"Tracing enabled for CPU0\n",
            end: b"Tracing disabled for CPU0\n",
            to: Arc::clone(&self.0),
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trace")
    }
}
