//! Starts a program with a timestamp right before its exec.
//!
//! Workload `boot` counts from exec, so no work that depends on the parent may be included, such as
//! copying its page tables. So [`start`] creates a child that shares the parent's memory (as `vfork`),
//! sets it up, reads the TSC and executes the program, by system calls only. The lab uses it on the
//! host, the agent on simulated machines.
//!
//! A child leads its own process group, so that Ctrl-C on a terminal reaches only the parent. The
//! kernel kills it when the *thread* that started it dies, even by SIGKILL.

mod arch;
mod child;
pub mod memory;
pub mod sched;
mod terminal;

pub use arch::ticks;
pub use terminal::terminal;

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Program to start. Its environment has only `PATH` and the given variables, so that its behaviour
/// does not depend on that of the parent.
pub struct Program {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    descriptors: Vec<OwnedFd>,
}

/// Lowest number of the parent's copies of descriptors, above all numbers in the child, so that no
/// copy is overwritten.
const FIRST_COPY: RawFd = 16;

impl Program {
    /// Creates a program with `path` as its first argument.
    ///
    /// # Errors
    /// `path` contains a zero byte.
    pub fn new(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        Ok(Self {
            arguments: vec![path.clone()],
            path,
            environment: vec![c"PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned()],
            descriptors: Vec::new(),
        })
    }

    /// Appends an argument.
    ///
    /// # Errors
    /// `argument` contains a zero byte.
    pub fn argument(&mut self, argument: impl AsRef<OsStr>) -> io::Result<&mut Self> {
        let argument = CString::new(argument.as_ref().as_bytes())?;
        self.arguments.push(argument);
        Ok(self)
    }

    /// Adds a variable to the environment.
    ///
    /// # Errors
    /// `value` contains a zero byte.
    pub fn environment(&mut self, name: &str, value: &OsStr) -> io::Result<&mut Self> {
        let variable = [name.as_bytes(), b"=", value.as_bytes()].concat();
        self.environment.push(CString::new(variable)?);
        Ok(self)
    }

    /// Adds a copy of `descriptor` as the next descriptor of the program, from 0. All others are
    /// closed.
    ///
    /// # Errors
    /// The process has no free descriptor, or the program has the maximum number.
    pub fn descriptor(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<&mut Self> {
        if self.descriptors.len() >= FIRST_COPY as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the descriptor is open for as long as it is borrowed.
        let copy =
            unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FIRST_COPY) };
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor.
        self.descriptors.push(unsafe { OwnedFd::from_raw_fd(copy) });
        Ok(self)
    }
}

/// Running program.
#[derive(Debug)]
pub struct Started {
    /// Process id.
    pub pid: i32,
    /// Becomes readable when the program exits.
    pub pidfd: OwnedFd,
    /// Clock right before exec, in ticks.
    pub exec: u64,
}

/// Starts `program`. The calling thread must outlive it, because the kernel kills the child when that
/// thread ends.
///
/// # Errors
/// Returns errors of clone(2), of the setup of the child, and of execve(2). There is no child then.
pub fn start(program: &Program) -> io::Result<Started> {
    let arguments = pointers(&program.arguments);
    let environment = pointers(&program.environment);
    let descriptors: Vec<RawFd> = program
        .descriptors
        .iter()
        .map(|fd| fd.as_raw_fd())
        .collect();
    // SAFETY: both arrays end with a null pointer and point to strings that are valid until the child
    // has executed or failed; FIRST_COPY keeps the numbers distinct.
    unsafe { child::start(&program.path, &arguments, &environment, &descriptors) }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    let mut pointers: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
    pointers.push(std::ptr::null());
    pointers
}

/// Result of a child.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Wait status, as in wait(2).
    pub status: i32,
    /// Peak resident memory in KiB, as in getrusage(2). Linux reports the peak of the parent if it
    /// is higher.
    pub peak_kib: u64,
}

impl Started {
    /// Waits until the child exits, and reaps it.
    ///
    /// # Errors
    /// The child was reaped before.
    pub fn reap(&self) -> io::Result<Ended> {
        let mut status = 0;
        // SAFETY: an all-zero rusage is valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: both are local variables.
            let reaped = unsafe { libc::wait4(self.pid, &mut status, 0, &mut usage) };
            if reaped == self.pid {
                let peak_kib = usage.ru_maxrss.max(0) as u64;
                return Ok(Ended { status, peak_kib });
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Sends a signal to the child. Does nothing if it has exited.
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: numbers and a null pointer.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.pidfd.as_fd().as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
    }

    /// Kills the child and its original process group. Must not be called after the child is
    /// reaped, because its id may be reused.
    pub fn kill_group(&self) {
        self.signal(libc::SIGKILL);
        // SAFETY: takes numbers only.
        unsafe { libc::kill(-self.pid, libc::SIGKILL) };
    }
}

/// Creates a pipe with close-on-exec. Returns the reading end first.
///
/// # Errors
/// The process has no free descriptor.
pub fn pipe() -> io::Result<(File, File)> {
    let mut ends = [-1; 2];
    // SAFETY: room for two numbers.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new descriptors.
    Ok(unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) })
}

#[cfg(test)]
mod tests;
