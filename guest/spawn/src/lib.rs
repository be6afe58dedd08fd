//! Starting a program with a stamp of the clock taken right before its exec.
//!
//! The boot workload counts from exec, so nothing of the parent may be inside
//! that time: not the copying of its page tables, not the freeing of the copy,
//! not its size. [`start`] therefore makes a child that borrows the parent's
//! memory (as `vfork` does), sets it up, reads the TSC and executes the program,
//! all in system calls. The lab starts VMMs with it on the host, and the agent
//! starts them with it on the simulated machine: both clocks count from the same
//! moment.
//!
//! A child leads a process group of its own, so that Ctrl-C on a terminal
//! reaches the parent only, which then decides; and it is killed by the kernel
//! when the *thread* that started it dies, so that nothing survives its parent,
//! not even a `kill -9` of it.

mod child;
pub mod sched;
mod terminal;

pub use terminal::terminal;

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A program to start. Its environment is empty but for `PATH` and what it is given,
/// so that what it does depends on nobody else's.
pub struct Program {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    descriptors: Vec<OwnedFd>,
}

/// The lowest number for our copies of a program's descriptors: above all those
/// they will get in the child, so that no copy is closed by another.
const PARKED: RawFd = 16;

impl Program {
    /// The program at `path`, which is also its first argument.
    ///
    /// # Errors
    /// A zero byte in `path`.
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
    /// A zero byte in `argument`.
    pub fn argument(&mut self, argument: impl AsRef<OsStr>) -> io::Result<&mut Self> {
        let argument = CString::new(argument.as_ref().as_bytes())?;
        self.arguments.push(argument);
        Ok(self)
    }

    /// Adds a variable to its environment.
    ///
    /// # Errors
    /// A zero byte in `value`.
    pub fn environment(&mut self, name: &str, value: &OsStr) -> io::Result<&mut Self> {
        let variable = [name.as_bytes(), b"=", value.as_bytes()].concat();
        self.environment.push(CString::new(variable)?);
        Ok(self)
    }

    /// Gives the program the next descriptor, from 0: a copy of `descriptor`.
    /// What it is not given it does not have.
    ///
    /// # Errors
    /// There are no more descriptors, or the program already has all it can get.
    pub fn descriptor(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<&mut Self> {
        if self.descriptors.len() >= PARKED as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the descriptor is open for as long as it is borrowed.
        let copy = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, PARKED) };
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fcntl made it just now and nobody else knows it.
        self.descriptors.push(unsafe { OwnedFd::from_raw_fd(copy) });
        Ok(self)
    }
}

/// A program that was started.
#[derive(Debug)]
pub struct Started {
    /// Its process number.
    pub pid: i32,
    /// Becomes readable when it ends.
    pub pidfd: OwnedFd,
    /// The TSC right before its exec, in ticks.
    pub exec: u64,
}

/// Starts `program`. The thread that calls this must outlive it: the kernel
/// kills the child when that thread ends.
///
/// # Errors
/// Those of clone(2), of setting the child up, and of execve(2): all is well, or
/// there is no child.
pub fn start(program: &Program) -> io::Result<Started> {
    let arguments = pointers(&program.arguments);
    let environment = pointers(&program.environment);
    let descriptors: Vec<RawFd> = program
        .descriptors
        .iter()
        .map(|fd| fd.as_raw_fd())
        .collect();
    // SAFETY: both arrays end with a null pointer and point at strings that live
    // until the child has executed or failed; PARKED keeps the numbers apart.
    unsafe { child::start(&program.path, &arguments, &environment, &descriptors) }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    let mut pointers: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
    pointers.push(std::ptr::null());
    pointers
}

/// How a child ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Its wait status, as wait(2) reports it.
    pub status: i32,
    /// Its peak resident memory in KiB, as getrusage(2) reports it. Linux counts
    /// the parent's own peak here if that is higher.
    pub peak_kib: u64,
}

impl Started {
    /// Waits until the child has ended, and reaps it.
    ///
    /// # Errors
    /// It was reaped before.
    pub fn reap(&self) -> io::Result<Ended> {
        let mut status = 0;
        // SAFETY: an all-zero rusage is valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: both are ours to be written to.
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

    /// Sends a signal to the child. Once it has ended, this does nothing.
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: takes numbers and a null pointer, which means no details.
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

    /// Kills the child, wherever it has gone, and all that is in the group it was
    /// started in. Once it is reaped this must not be called: its number may be
    /// another's by then.
    pub fn kill_group(&self) {
        self.signal(libc::SIGKILL);
        // SAFETY: takes numbers only.
        unsafe { libc::kill(-self.pid, libc::SIGKILL) };
    }
}

/// A pipe, its reading end first. Neither end is inherited by accident.
///
/// # Errors
/// There are no more descriptors.
pub fn pipe() -> io::Result<(File, File)> {
    let mut ends = [-1; 2];
    // SAFETY: room for the two numbers that it writes.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: pipe2 made them just now and nobody else knows them.
    Ok(unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) })
}

/// The TSC now, in ticks, after all that the program did before.
#[inline(always)]
pub fn ticks() -> u64 {
    use core::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: every x86-64 processor has both instructions.
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

#[cfg(test)]
mod tests;
