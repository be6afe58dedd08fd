//! Kills a process group when this process dies.
//!
//! The kernel kills the process that this one started, but not processes that it traces. The guard,
//! an agent in the same group, receives the parent-death signal and kills the group.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use trapline_spawn::{Program, Started};

/// A running guard. Dropping it ends the guard only.
pub struct Guard(Started);

impl Guard {
    /// Starts `agent` as the guard of `group`, which must not be reaped before the guard is dropped.
    ///
    /// # Errors
    /// The agent cannot be started.
    pub fn start(agent: &Path, group: i32) -> io::Result<Self> {
        let mut program = Program::new(agent)?;
        program.argument(format!("trapline.guard={group}"))?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        for _ in 0..3 {
            program.descriptor(null.as_fd())?;
        }
        trapline_spawn::start(&program).map(Self)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.signal(libc::SIGKILL);
        // Fails only if there is nothing to reap.
        let _ = self.0.reap();
    }
}
