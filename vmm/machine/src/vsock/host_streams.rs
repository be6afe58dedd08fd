//! Connected host programs.

use super::Spec;
use crate::virtio::Counters;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use trapline_monitor::virtio::vsock::{Gone, Host, Key, ReadResult, MAX};

/// Connected programs by connection.
pub struct HostStreams<'a> {
    spec: &'a Spec,
    counters: &'a Counters,
    streams: Vec<(Key, UnixStream)>,
}

impl<'a> HostStreams<'a> {
    /// Creates an empty table.
    pub fn new(spec: &'a Spec, counters: &'a Counters) -> Self {
        Self {
            spec,
            counters,
            streams: Vec::with_capacity(MAX),
        }
    }

    /// Adds a program.
    pub fn add(&mut self, key: Key, stream: UnixStream) {
        self.streams.push((key, stream));
    }

    /// Closes all connections.
    pub fn close_all(&mut self) {
        self.streams.clear();
    }

    /// Returns the descriptor to poll.
    pub fn descriptor(&self, key: Key) -> Option<RawFd> {
        self.find(key).map(AsRawFd::as_raw_fd)
    }

    fn find(&self, key: Key) -> Option<&UnixStream> {
        let mut streams = self.streams.iter();
        let found = streams.find(|(of, _)| *of == key);
        found.map(|(_, stream)| stream)
    }
}

impl Host for HostStreams<'_> {
    fn connect(&mut self, key: Key) -> bool {
        if !self.spec.allow_guest {
            return false;
        }
        let path = self.spec.path.as_os_str().as_bytes();
        let connected = connect(path, key.host);
        if connected.is_err() {
            self.counters.fail();
        }
        connected.map(|stream| self.add(key, stream)).is_ok()
    }

    fn accepted(&mut self, key: Key) {
        let line = format!("OK {}\n", key.host);
        if let Some(mut stream) = self.find(key) {
            // The socket buffer is empty; a closed connection is detected later.
            let _all = stream.write(line.as_bytes());
        }
    }

    fn write(&mut self, key: Key, bytes: &[u8]) -> Result<usize, Gone> {
        let mut stream = self.find(key).ok_or(Gone)?;
        match stream.write(bytes) {
            Ok(count) => {
                self.counters.request(0, count);
                Ok(count)
            }
            Err(error) if is_passing(error.kind()) => Ok(0),
            Err(_) => Err(Gone),
        }
    }

    fn read(&mut self, key: Key, room: &mut [u8]) -> ReadResult {
        let Some(mut stream) = self.find(key) else {
            return ReadResult::End;
        };
        match stream.read(room) {
            Ok(count) if count > 0 => {
                self.counters.request(count, 0);
                ReadResult::Bytes(count)
            }
            Err(error) if is_passing(error.kind()) => ReadResult::Pending,
            _ => ReadResult::End,
        }
    }

    fn finish(&mut self, key: Key) {
        // A closed connection needs no shutdown.
        let _told = self
            .find(key)
            .map(|stream| stream.shutdown(Shutdown::Write));
    }

    fn close(&mut self, key: Key) {
        self.streams.retain(|(of, _)| *of != key);
    }
}

fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Interrupted | ErrorKind::WouldBlock)
}

const STREAM: libc::c_int = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

/// Accepts the next connection, as a non-blocking stream.
pub fn accept(listener: &UnixListener) -> Option<UnixStream> {
    let (fd, nowhere) = (listener.as_raw_fd(), std::ptr::null_mut());
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: creates a descriptor; the address is not requested.
    let fd = unsafe { libc::accept4(fd, nowhere, nowhere.cast(), flags) };
    // SAFETY: the descriptor is new and owned by nothing else.
    (fd >= 0).then(|| unsafe { UnixStream::from_raw_fd(fd) })
}

/// Connects to the listener at `path_port` without waiting.
fn connect(path: &[u8], port: u32) -> io::Result<UnixStream> {
    // SAFETY: all zero is a valid address without a path.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let mut name = path.to_vec();
    write!(name, "_{port}")?;
    if name.len() >= address.sun_path.len() {
        return Err(ErrorKind::InvalidInput.into());
    }
    for (place, byte) in address.sun_path.iter_mut().zip(&name) {
        *place = *byte as libc::c_char;
    }
    // SAFETY: creates a descriptor from numbers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, STREAM, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and owned by nothing else.
    let stream = unsafe { UnixStream::from_raw_fd(fd) };
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    let address = (&raw const address).cast();
    // SAFETY: the length is that of the address, whose path is zero-terminated.
    match unsafe { libc::connect(stream.as_raw_fd(), address, length) } {
        0 => Ok(stream),
        _ => Err(io::Error::last_os_error()),
    }
}
