//! A guard for a process that starts others: when the lab dies, however that happens, the
//! kernel kills the process that the lab started, but not those that this one traces. The
//! guard - the agent, in their group - is told of the lab's death instead, and kills the
//! group.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use trapline_spawn::{Program, Started};

/// A guard. Dropping it ends it, and it alone.
pub struct Guard(Started);

impl Guard {
    /// Lets `agent` guard a group, which must not be reaped meanwhile.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(agent: &Path, group: i32) -> io::Result<Self> {
        let mut program = Program::new(agent)?;
        program.argument(format!("trapline.guard={group}"))?;
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        for _ in 0..3 {
            program.descriptor(nothing.as_fd())?;
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
