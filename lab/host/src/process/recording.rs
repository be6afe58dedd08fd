//! Records the output and the end of a process, so that a shell script can replay them.

use super::OutputHandler;
use crate::Error;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;
use trapline_protocol::UsageProbe;

/// Passes output on and keeps a copy.
pub(super) struct Recording<'a> {
    handler: &'a mut dyn OutputHandler,
    console: Vec<u8>,
    errors: Vec<u8>,
    events: Vec<u8>,
}

impl<'a> Recording<'a> {
    pub fn new(handler: &'a mut dyn OutputHandler) -> Self {
        Self {
            handler,
            console: Vec::new(),
            errors: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Writes a file per stream and `end`, a shell command that ends a process with `status`.
    pub fn save(&self, directory: &Path, status: ExitStatus) -> Result<(), Error> {
        let end = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit {code}\n"),
            (None, signal) => format!("kill -{} $$\n", signal.unwrap_or_default()),
        };
        std::fs::create_dir_all(directory).map_err(Error::file(directory))?;
        let streams = [
            ("console", &self.console[..]),
            ("errors", &self.errors),
            ("events", &self.events),
            ("end", end.as_bytes()),
        ];
        for (name, bytes) in streams {
            let path = directory.join(name);
            std::fs::write(&path, bytes).map_err(Error::file(&path))?;
        }
        Ok(())
    }
}

impl OutputHandler for Recording<'_> {
    fn console(&mut self, bytes: &[u8], at: u64, probe: &mut dyn UsageProbe) {
        self.console.extend(bytes);
        self.handler.console(bytes, at, probe);
    }

    fn errors(&mut self, bytes: &[u8]) {
        self.errors.extend(bytes);
        self.handler.errors(bytes);
    }

    fn events(&mut self, bytes: &[u8]) {
        self.events.extend(bytes);
        self.handler.events(bytes);
    }

    fn check(&mut self) -> Result<(), Error> {
        self.handler.check()
    }

    fn is_complete(&mut self, elapsed: Duration) -> Result<bool, Error> {
        self.handler.is_complete(elapsed)
    }

    fn last_output(&self) -> String {
        self.handler.last_output()
    }
}
