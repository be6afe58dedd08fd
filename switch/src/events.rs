//! Events that end the engine's sleep.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A set of descriptors. They are never read here: each new event ends a sleep once.
pub struct Events(OwnedFd);

impl Events {
    /// Creates an empty set.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new() -> io::Result<Self> {
        // SAFETY: returns a descriptor without another owner, or a negative number.
        match unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } {
            ..0 => Err(io::Error::last_os_error()),
            // SAFETY: see above.
            fd => Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) })),
        }
    }

    /// Adds a descriptor.
    ///
    /// # Errors
    /// It cannot be waited for, or is in the set.
    pub fn add(&self, source: &impl AsFd) -> io::Result<()> {
        self.control(source, libc::EPOLL_CTL_ADD)
    }

    /// Removes a descriptor.
    pub fn remove(&self, source: &impl AsFd) {
        let _absent = self.control(source, libc::EPOLL_CTL_DEL);
    }

    fn control(&self, source: &impl AsFd, operation: libc::c_int) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLET) as u32,
            u64: 0,
        };
        let (set, fd) = (self.0.as_raw_fd(), source.as_fd().as_raw_fd());
        // SAFETY: both descriptors are open, and the kernel reads one structure.
        match unsafe { libc::epoll_ctl(set, operation, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits for an event, at most for a time.
    pub fn wait(&self, limit: Option<Duration>) {
        const MOST: usize = 8;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
        let limit = limit.map_or(-1, |limit| limit.as_millis() as libc::c_int);
        let count = MOST as libc::c_int;
        // SAFETY: the kernel writes at most so many structures.
        unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), count, limit) };
    }
}
