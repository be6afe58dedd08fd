//! Numbered frames as the content of datagrams.

use crate::packet_socket::wait_for_frame;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use trapline_workloads::packets::Link;
use trapline_workloads::Reason;

/// Bytes of a buffer for a datagram.
pub const BUFFER: usize = 2048;

/// Bytes of a socket's receive buffer that Linux counts for a datagram of at most 1,472 bytes: those of its `sk_buff`.
const COUNTED: u64 = 2304;

/// A connected socket.
pub struct Datagrams {
    /// The socket, which blocks.
    pub socket: UdpSocket,
    buffers: u64,
    buffer: [u8; BUFFER],
    failure: Option<Reason>,
}

impl Datagrams {
    /// Returns the datagrams of a connected socket. The peer's socket has a buffer of the same size: the default of the kernel.
    ///
    /// # Errors
    /// The kernel does not report the size of the buffer.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        let bytes = receive_buffer(&socket)?;
        Ok(Self {
            socket,
            buffers: bytes / COUNTED,
            buffer: [0; BUFFER],
            failure: None,
        })
    }

    fn fail(&mut self, reason: Reason) {
        self.failure.get_or_insert(reason);
    }
}

/// Returns the size of a socket's receive buffer in bytes.
fn receive_buffer(socket: &UdpSocket) -> io::Result<u64> {
    let (level, option) = (libc::SOL_SOCKET, libc::SO_RCVBUF);
    let mut bytes: libc::c_int = 0;
    let mut length = size_of_val(&bytes) as libc::socklen_t;
    let value = (&raw mut bytes).cast();
    // SAFETY: the kernel writes an integer of this length.
    match unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, value, &raw mut length) } {
        0 => Ok(bytes.unsigned_abs().into()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Link for Datagrams {
    fn buffers(&self) -> u64 {
        self.buffers
    }

    fn receive<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let (fd, buffer) = (self.socket.as_raw_fd(), &mut self.buffer);
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: the kernel writes at most as many bytes as the buffer has.
        let length = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), flags) };
        match usize::try_from(length) {
            Ok(length) => Some(read(&buffer[..length])),
            Err(_) => {
                if io::Error::last_os_error().kind() != ErrorKind::WouldBlock {
                    self.fail("the kernel does not receive a datagram");
                }
                None
            }
        }
    }

    fn send(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let datagram = &mut self.buffer[..length];
        fill(datagram);
        let is_sent = self.socket.send(datagram).is_ok();
        if !is_sent {
            self.fail("the kernel does not send a datagram");
        }
        is_sent
    }

    fn notify(&mut self) {}

    fn check(&mut self) -> Result<(), Reason> {
        self.failure.map_or(Ok(()), Err)
    }

    fn wait(&mut self) -> Result<(), Reason> {
        self.check()?;
        wait_for_frame(self.socket.as_fd())
    }

    fn quiesce(&mut self) -> Result<(), Reason> {
        self.check()
    }
}
