//! Writing to the console's descriptor.

use crate::poll::is_ready;
use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

/// Longest write. A pipe that is ready takes as much without waiting (PIPE_BUF).
pub const MAX_WRITE: usize = 4096;

/// Interval of checks for a stop request while the reader does not read, in milliseconds.
const INTERVAL: libc::c_int = 500;

/// A descriptor, which stays open.
pub struct Writer {
    file: ManuallyDrop<File>,
    /// A terminal, which gives EIO once it is closed; a disk gives it for a bad sector.
    is_terminal: bool,
}

/// The reader is gone.
#[derive(Debug, PartialEq, Eq)]
pub struct Closed;

impl Writer {
    /// Creates a writer to `fd`.
    pub fn new(fd: RawFd) -> Self {
        let file = borrow(fd);
        Self {
            is_terminal: file.is_terminal(),
            file,
        }
    }

    /// Creates a writer to the pipe that `fd` is, if it is one, whose writes do not wait. Other holders of `fd` are not affected.
    pub fn without_waiting(fd: RawFd) -> Option<Self> {
        let kind = borrow(fd).metadata().ok()?.file_type();
        let mut options = File::options();
        options.write(true).custom_flags(libc::O_NONBLOCK);
        // Fails without /proc, and for another user's pipe.
        let opened = kind
            .is_fifo()
            .then(|| options.open(format!("/proc/self/fd/{fd}")));
        Some(Self {
            file: ManuallyDrop::new(opened?.ok()?),
            is_terminal: false,
        })
    }

    /// Writes bytes, at most [`MAX_WRITE`]. Waits for the reader until `stopping` returns true. Returns the number of bytes
    /// that were dropped: those not read by then, and those that a full disk does not take.
    pub fn write(&self, bytes: &[u8], stopping: impl Fn() -> bool) -> Result<u64, Closed> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let wait = if stopping() { 0 } else { INTERVAL };
            if !is_ready(self.file.as_raw_fd(), libc::POLLOUT, wait) {
                match wait {
                    0 => break,
                    _ => continue,
                }
            }
            match (&*self.file).write(rest) {
                Ok(count) if count > 0 => rest = &rest[count..],
                Ok(_) => break,
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted | ErrorKind::WouldBlock => {}
                    ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => return Err(Closed),
                    _ if self.is_terminal && error.raw_os_error() == Some(libc::EIO) => {
                        return Err(Closed)
                    }
                    _ => break,
                },
            }
        }
        Ok(rest.len() as u64)
    }
}

/// Returns a file that does not close its descriptor.
pub fn borrow(fd: RawFd) -> ManuallyDrop<File> {
    // SAFETY: the file is never dropped, so the descriptor is not closed; an invalid descriptor gives errors, which are
    // handled.
    ManuallyDrop::new(unsafe { File::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{pipe, Read};

    #[test]
    fn full_disk_drops_bytes() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let dropped = Writer::new(full.as_raw_fd()).write(b"lost", || false);
        assert_eq!(dropped, Ok(4));
    }

    #[test]
    fn missing_reader_is_reported() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let written = Writer::new(writer.as_raw_fd()).write(b"x", || false);
        assert_eq!(written, Err(Closed));
    }

    #[test]
    fn closed_terminal_is_reported() {
        let (mut master, mut terminal) = (0, 0);
        let none = std::ptr::null_mut();
        // SAFETY: both numbers are written, and null pointers ask for no name and no settings.
        let opened =
            unsafe { libc::openpty(&mut master, &mut terminal, none, none.cast(), none.cast()) };
        assert_eq!(opened, 0);
        // SAFETY: both descriptors are open, and owned by nobody else.
        let [master, terminal] = [master, terminal].map(|fd| unsafe { File::from_raw_fd(fd) });
        let output = Writer::new(terminal.as_raw_fd());
        assert_eq!(output.write(b"x", || false), Ok(0));
        drop(master);
        assert_eq!(output.write(b"x", || false), Err(Closed));
    }

    #[test]
    fn stop_request_ends_the_wait_for_a_reader() {
        let (mut reader, writer) = pipe().unwrap();
        let output = Writer::new(writer.as_raw_fd());
        let mut accepted = 0;
        // Each piece is taken if there is room, also after the request.
        while output.write(&[b'x'; MAX_WRITE], || true) == Ok(0) {
            accepted += MAX_WRITE;
        }
        assert_eq!(output.write(b"late", || true), Ok(4));
        drop(writer);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, vec![b'x'; accepted]);
    }
}
