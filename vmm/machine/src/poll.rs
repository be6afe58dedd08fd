//! Requests for `poll`, and waiting for one descriptor.

use std::os::fd::RawFd;

/// Returns a request for `events` of `fd`; the kernel ignores negative descriptors.
pub fn request(fd: RawFd, events: libc::c_short) -> libc::pollfd {
    libc::pollfd {
        fd,
        events,
        revents: 0,
    }
}

/// Returns a request for something to read.
pub fn readable(fd: RawFd) -> libc::pollfd {
    request(fd, libc::POLLIN)
}

/// Returns true if `fd` is ready for `events`, or has an error, after at most `wait` milliseconds. A signal ends the wait.
pub fn is_ready(fd: RawFd, events: libc::c_short, wait: libc::c_int) -> bool {
    let mut request = request(fd, events);
    // SAFETY: one request is passed.
    unsafe { libc::poll(&raw mut request, 1, wait) > 0 }
}
