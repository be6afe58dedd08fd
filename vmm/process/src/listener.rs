//! Listener of a seccomp filter (seccomp_unotify(2)).
//!
//! A process without a tracer can make the calls of its handler at any time and with any arguments. Of these, `mremap` alone
//! makes the kernel allocate page tables. So the filter notifies the VMM of it: the call proceeds if it is exactly the next one
//! that the VMM has requested, and fails otherwise. The process has one thread, which waits: its arguments cannot change.
//! The VMM also has to see that the process unmaps what it counts as unmapped, hence [`CHECKED`].

use crate::control::{Call, Control};
use crate::tracee::Tracee;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Number of the system call by which the handler of signals reports a stop. Linux has none with it.
pub(crate) const REPORT: u32 = 0x7ffe;

/// Third argument of `munmap`, which the kernel ignores: the filter notifies the VMM of the call.
pub(crate) const CHECKED: u64 = 0xfff;

/// Returns whether the filter notifies the VMM of a call.
fn is_checked((number, arguments): &Call) -> bool {
    match *number {
        libc::SYS_mremap => true,
        libc::SYS_munmap => arguments[2] == CHECKED,
        _ => false,
    }
}

/// Flags of a filter: it has a listener (`SECCOMP_FILTER_FLAG_NEW_LISTENER`), and signals do not end the wait for an answer
/// (`SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`, Linux 5.19).
pub(crate) const FLAGS: u64 = 1 << 3 | 1 << 5;

/// `SECCOMP_IOCTL_NOTIF_RECV` and `SECCOMP_IOCTL_NOTIF_SEND` (linux/seccomp.h).
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
/// `SECCOMP_IOCTL_NOTIF_SET_FLAGS`, and `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP` (Linux 6.6): the process and the VMM wake each other on
/// the same CPU.
const SET_FLAGS: libc::c_ulong = 0x4008_2104;
const SAME_CPU: libc::c_ulong = 1;

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE` (Linux 5.5).
const CONTINUE: u32 = 1;

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
    /// A requested change of mappings proceeds.
    Permitted,
    /// A change of mappings that was not requested has failed.
    Refused,
    /// The time is over, or the process has ended.
    None,
}

/// A listener.
pub(crate) struct Listener {
    file: OwnedFd,
    /// The call that waits.
    pending: Option<u64>,
    /// Requested changes of mappings that the process has not begun.
    requested: VecDeque<Call>,
}

impl Listener {
    /// Moves the descriptor `number` of the process to this one.
    pub fn take(tracee: &mut Tracee, number: u64) -> io::Result<Self> {
        // SAFETY: takes numbers only.
        let process = opened(unsafe { libc::syscall(libc::SYS_pidfd_open, tracee.pid(), 0) })?;
        // SAFETY: as above.
        let file = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
        let file = opened(file)?;
        // An older kernel fails, and wakes them on any CPU.
        // SAFETY: takes numbers only.
        unsafe { libc::ioctl(file.as_raw_fd(), SET_FLAGS, SAME_CPU) };
        tracee.call_checked(libc::SYS_close, [number, 0, 0, 0, 0])?;
        Ok(Self {
            file,
            pending: None,
            requested: VecDeque::new(),
        })
    }

    /// Permits a call of which the filter notifies once, after those permitted before.
    pub fn request(&mut self, call: Call) {
        if is_checked(&call) {
            self.requested.push_back(call);
        }
    }

    /// Returns whether requested changes have not begun.
    pub fn has_requests(&self) -> bool {
        !self.requested.is_empty()
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
        if unsafe { libc::ioctl(self.file.as_raw_fd(), RECEIVE, &raw mut call) } != 0 {
            // The wait of the process was ended by a signal.
            return Ok(Event::None);
        }
        match libc::c_long::from(call.number) {
            libc::SYS_mremap | libc::SYS_munmap => Ok(self.decide(&call)),
            _ => {
                self.pending = Some(call.id);
                Ok(Event::Call(call))
            }
        }
    }

    /// Lets a change of mappings proceed if it is the next requested one.
    fn decide(&mut self, call: &Notification) -> Event {
        let next = self.requested.front();
        let is_requested = next.is_some_and(|(number, arguments)| {
            *number == call.number.into() && *arguments == call.arguments[..5]
        });
        if !is_requested {
            self.send(call.id, 0, -libc::EPERM, 0);
            return Event::Refused;
        }
        self.requested.pop_front();
        self.send(call.id, 0, 0, CONTINUE);
        Event::Permitted
    }

    /// Answers the call that waits. That its process has ended shows in the next wait.
    pub fn answer(&mut self, value: u64) {
        if let Some(id) = self.pending.take() {
            self.send(id, value, 0, 0);
        }
    }

    fn send(&self, id: u64, value: u64, error: i32, flags: u32) {
        let mut response = Response {
            id,
            value,
            error,
            flags,
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
