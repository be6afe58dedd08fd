//! Listener of a seccomp filter (seccomp_unotify(2)).

use crate::control::Control;
use crate::tracee::Tracee;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Number of the system call by which the handler of signals reports a stop. Linux has none with it.
pub(crate) const REPORT: u32 = 0x7ffe;

/// Flags of a filter: it has a listener (`SECCOMP_FILTER_FLAG_NEW_LISTENER`), and signals do not end the wait for an answer
/// (`SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`, Linux 5.19).
pub(crate) const FLAGS: u64 = 1 << 3 | 1 << 5;

/// `SECCOMP_IOCTL_NOTIF_RECV` and `SECCOMP_IOCTL_NOTIF_SEND` (linux/seccomp.h).
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;

/// A system call that waits for its answer: `struct seccomp_notif`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    pub number: u32,
    architecture: u32,
    pub pointer: u64,
    pub arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Response {
    id: u64,
    value: u64,
    error: i32,
    flags: u32,
}

/// Result of a wait.
pub(crate) enum Event {
    /// A system call waits.
    Call(Notification),
    /// The time is over, or the process has ended.
    None,
}

/// A listener.
pub(crate) struct Listener {
    file: OwnedFd,
    /// The call that waits.
    pending: Option<u64>,
}

impl Listener {
    /// Moves the descriptor `number` of the process to this one.
    pub fn take(tracee: &mut Tracee, number: u64) -> io::Result<Self> {
        // SAFETY: takes numbers only.
        let process = opened(unsafe { libc::syscall(libc::SYS_pidfd_open, tracee.pid(), 0) })?;
        // SAFETY: as above.
        let file = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
        let file = opened(file)?;
        tracee.call_checked(libc::SYS_close, [number, 0, 0, 0, 0])?;
        Ok(Self {
            file,
            pending: None,
        })
    }

    /// Waits for a system call, for a limited time.
    pub fn wait(&mut self, time: &libc::timespec) -> io::Result<Event> {
        let milliseconds = time.tv_sec * 1000 + time.tv_nsec / 1_000_000;
        let mut poll = libc::pollfd {
            fd: self.file.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the kernel writes to one structure.
        let ready = unsafe { libc::poll(&raw mut poll, 1, milliseconds as libc::c_int) };
        if ready <= 0 || poll.revents & libc::POLLIN == 0 {
            return Ok(Event::None);
        }
        let mut call = Notification::default();
        // SAFETY: the kernel writes to one structure of this layout.
        match unsafe { libc::ioctl(self.file.as_raw_fd(), RECEIVE, &raw mut call) } {
            0 => {
                self.pending = Some(call.id);
                Ok(Event::Call(call))
            }
            // The wait of the process was ended by a signal.
            _ => Ok(Event::None),
        }
    }

    /// Answers the call that waits. That its process has ended shows in the next wait.
    pub fn answer(&mut self, value: u64) {
        let Some(id) = self.pending.take() else {
            return;
        };
        let mut response = Response {
            id,
            value,
            error: 0,
            flags: 0,
        };
        // SAFETY: the kernel reads one structure of this layout.
        unsafe { libc::ioctl(self.file.as_raw_fd(), SEND, &raw mut response) };
    }
}

fn opened(file: libc::c_long) -> io::Result<OwnedFd> {
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for this caller.
    Ok(unsafe { OwnedFd::from_raw_fd(file as libc::c_int) })
}
