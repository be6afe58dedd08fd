//! Waiting for one descriptor.

use std::os::fd::RawFd;

/// Returns true if `fd` is ready for `events`, or has an error, after at most `wait` milliseconds. A signal ends the wait.
pub fn is_ready(fd: RawFd, events: libc::c_short, wait: libc::c_int) -> bool {
    let mut request = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    // SAFETY: one request is passed.
    unsafe { libc::poll(&raw mut request, 1, wait) > 0 }
}
