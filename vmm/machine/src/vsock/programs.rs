//! The programs of the host that are connected, and how others are found.

use super::Spec;
use crate::virtio::Counters;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use trapline_monitor::virtio::vsock::{Gone, Heard, Host, Key, MOST};

/// All of them.
pub struct Programs<'a> {
    spec: &'a Spec,
    counters: &'a Counters,
    streams: Vec<(Key, UnixStream)>,
}

impl<'a> Programs<'a> {
    /// None yet.
    pub fn new(spec: &'a Spec, counters: &'a Counters) -> Self {
        Self {
            spec,
            counters,
            streams: Vec::with_capacity(MOST),
        }
    }

    /// One more.
    pub fn add(&mut self, key: Key, stream: UnixStream) {
        self.streams.push((key, stream));
    }

    /// None any more.
    pub fn close_all(&mut self) {
        self.streams.clear();
    }

    /// Its descriptor, to wait for it.
    pub fn descriptor(&self, key: Key) -> Option<RawFd> {
        self.find(key).map(AsRawFd::as_raw_fd)
    }

    fn find(&self, key: Key) -> Option<&UnixStream> {
        let mut streams = self.streams.iter();
        let found = streams.find(|(of, _)| *of == key);
        found.map(|(_, stream)| stream)
    }
}

impl Host for Programs<'_> {
    fn connect(&mut self, key: Key) -> bool {
        if !self.spec.guest_calls {
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
            // Nothing was sent before, so there is room; who is gone will be missed soon.
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

    fn read(&mut self, key: Key, room: &mut [u8]) -> Heard {
        let Some(mut stream) = self.find(key) else {
            return Heard::End;
        };
        match stream.read(room) {
            Ok(count) if count > 0 => {
                self.counters.request(count, 0);
                Heard::Bytes(count)
            }
            Err(error) if is_passing(error.kind()) => Heard::Nothing,
            _ => Heard::End,
        }
    }

    fn finish(&mut self, key: Key) {
        // Who is gone needs not be told.
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

/// The next program that has connected; its stream does not wait.
pub fn accept(listener: &UnixListener) -> Option<UnixStream> {
    let (fd, nowhere) = (listener.as_raw_fd(), std::ptr::null_mut());
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: makes a new descriptor; it is not asked whose it is.
    let fd = unsafe { libc::accept4(fd, nowhere, nowhere.cast(), flags) };
    // SAFETY: it is new, and nobody else's.
    (fd >= 0).then(|| unsafe { UnixStream::from_raw_fd(fd) })
}

/// Connects to who listens at `path_port`, now or not at all.
fn connect(path: &[u8], port: u32) -> io::Result<UnixStream> {
    // SAFETY: all zero is a valid address, of no path.
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
    // SAFETY: makes a new descriptor from numbers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, STREAM, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is new, and nobody else's.
    let stream = unsafe { UnixStream::from_raw_fd(fd) };
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    let address = (&raw const address).cast();
    // SAFETY: the address is as long as it says, and ends with a zero.
    match unsafe { libc::connect(stream.as_raw_fd(), address, length) } {
        0 => Ok(stream),
        _ => Err(io::Error::last_os_error()),
    }
}
