//! A step of the script of operation `make`: a child that executes a program with pipes to and from this process.

use super::child::{exit, get_bytes, put_bytes, wait};
use super::program::{self, Executable, INPUT, OUTPUT};
use crate::arch::fork::fork;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use trapline_workloads::Reason;

/// Program of all steps, and its pipes.
pub struct Step {
    executable: Executable,
    to: File,
    from: File,
    /// The program's ends of the pipes, at the numbers that it uses.
    _ends: [File; 2],
}

impl Step {
    /// Creates the program and its pipes.
    ///
    /// # Errors
    /// The kernel refuses them.
    pub fn new() -> Result<Self, Reason> {
        const NO_PIPE: Reason = "pipes for a program cannot be created";
        let executable = Executable::new(program::step())?;
        let (input, to) = trapline_spawn::pipe().map_err(|_| NO_PIPE)?;
        let (from, output) = trapline_spawn::pipe().map_err(|_| NO_PIPE)?;
        let ends = [inherited(&input, INPUT), inherited(&output, OUTPUT)];
        let [Some(input), Some(output)] = ends else {
            return Err(NO_PIPE);
        };
        Ok(Self {
            executable,
            to,
            from,
            _ends: [input, output],
        })
    }

    /// Runs one step. Returns the number that it writes; `None` if it does not exit with `status`.
    #[inline(always)]
    pub fn run(&self, number: u64, status: u8) -> Option<u64> {
        put_bytes(&self.to, number.to_ne_bytes())?;
        // SAFETY: the child only executes a program, or exits.
        let ended = match unsafe { fork() }? {
            0 => {
                self.executable.execute(status);
                exit(!status)
            }
            child => wait(child)?,
        };
        // A program that failed may have written nothing.
        (ended == status).then_some(())?;
        get_bytes(&self.from).map(u64::from_ne_bytes)
    }
}

/// Returns a copy of `file` that executed programs inherit at this number; `None` if the number is in use.
fn inherited(file: &File, number: RawFd) -> Option<File> {
    // SAFETY: creates a descriptor.
    let copy = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, number) };
    // SAFETY: a new descriptor.
    let copy = (copy >= 0).then(|| unsafe { File::from_raw_fd(copy) })?;
    (copy.as_raw_fd() == number).then_some(copy)
}
