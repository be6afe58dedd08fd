//! Endpoints of Linux's network: packet sockets and taps, in a network namespace of this process.

use super::endpoint::{receive_each, send_each, Endpoint, LONGEST};
use super::BATCH;
use crate::tap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;

/// Bytes that wait in a socket, at most.
const WAITING: libc::c_int = 4 << 20;

/// Moves this process to a network namespace of its own, which ends with it. It must have one thread.
///
/// # Errors
/// The kernel does not permit that.
pub fn enter_namespace() -> io::Result<()> {
    let unshare = |flags| {
        // SAFETY: changes namespaces of this process only.
        match unsafe { libc::unshare(flags) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // Without CAP_SYS_ADMIN it needs a user namespace.
    unshare(libc::CLONE_NEWNET).or_else(|_| unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET))
}

/// Moves this process to the user and network namespaces of another one. It must have one thread.
///
/// # Errors
/// There is no such process, or it belongs to another user.
pub fn join_namespaces(process: u32) -> io::Result<()> {
    let path = |process: &str, kind| format!("/proc/{process}/ns/{kind}");
    let mut others = Vec::new();
    for kind in ["user", "net"] {
        let other = path(&process.to_string(), kind);
        // The kernel refuses to join a namespace in which the process is already.
        if std::fs::read_link(&other)? != std::fs::read_link(path("self", kind))? {
            others.push(File::open(other)?);
        }
    }
    for namespace in others {
        // SAFETY: changes a namespace of this process only.
        check(unsafe { libc::setns(namespace.as_raw_fd(), 0) })?;
    }
    Ok(())
}

/// Runs `ip` (iproute2) with each line of arguments.
///
/// # Errors
/// It is missing, or fails.
pub fn configure(lines: &[&str]) -> io::Result<()> {
    for line in lines {
        let output = Command::new("ip").args(line.split(' ')).output()?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(io::Error::other(format!("ip {line}: {error}")));
        }
    }
    Ok(())
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(result),
    }
}

/// The program's side of a tap. Each frame is a system call.
pub struct Tap(File);

impl Tap {
    /// Creates a tap.
    ///
    /// # Errors
    /// /dev/net/tun is missing, or the name is too long or used.
    pub fn create(name: &str) -> io::Result<Self> {
        tap::open(name, 0).map(Self)
    }
}

impl Endpoint for Tap {
    fn send(&mut self, _: usize, most: usize, fill: impl FnMut(&mut [u8]) -> usize) -> usize {
        send_each(most, fill, |frame| self.0.write(frame))
    }

    fn receive(&mut self, visit: impl FnMut(&[u8])) {
        receive_each(visit, |frame| self.0.read(frame));
    }
}

/// A packet socket (packet(7)), which sends and receives up to 64 frames with a system call.
pub struct PacketSocket {
    socket: OwnedFd,
    frames: Box<[[u8; LONGEST]; BATCH]>,
}

impl PacketSocket {
    /// Opens a socket of a network interface.
    ///
    /// # Errors
    /// There is no such interface, or the kernel refuses.
    pub fn open(interface: &str) -> io::Result<Self> {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let name = CString::new(interface).map_err(|_| ErrorKind::InvalidInput)?;
        // SAFETY: the name is a C string.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: the new descriptor has no other owner.
        let socket = unsafe {
            let fd = check(libc::socket(libc::AF_PACKET, kind, 0))?;
            OwnedFd::from_raw_fd(fd)
        };
        let set = |level, option, value: libc::c_int| {
            let size = size_of_val(&value) as libc::socklen_t;
            let value = (&raw const value).cast();
            // SAFETY: the value is a C integer of that size.
            check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, size) })
        };
        set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
        // In a user namespace the limit of the host holds.
        set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, WAITING)
            .or_else(|_| set(libc::SOL_SOCKET, libc::SO_RCVBUF, WAITING))?;
        // SAFETY: zeros are a valid value of this C structure.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index as i32;
        let size = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address is a whole `sockaddr_ll`.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) })?;
        Ok(Self {
            socket,
            frames: Box::new([[0; LONGEST]; BATCH]),
        })
    }

    /// Calls `transfer` with headers for the first frames, which have `lengths`.
    fn with_headers(
        &mut self,
        lengths: &[usize],
        transfer: impl FnOnce(i32, &mut [libc::mmsghdr]) -> libc::c_int,
    ) -> (usize, [usize; BATCH]) {
        // SAFETY: zeros are valid values of these C structures.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut buffers: [libc::iovec; BATCH] = unsafe { std::mem::zeroed() };
        let used = self.frames.iter_mut().zip(lengths).zip(&mut buffers);
        for (((frame, length), buffer), header) in used.zip(&mut headers) {
            buffer.iov_base = frame.as_mut_ptr().cast();
            buffer.iov_len = *length;
            header.msg_hdr.msg_iov = buffer;
            header.msg_hdr.msg_iovlen = 1;
        }
        let done = transfer(self.socket.as_raw_fd(), &mut headers[..lengths.len()]);
        let sizes = headers.map(|header| (header.msg_len as usize).min(LONGEST));
        (usize::try_from(done).unwrap_or(0), sizes)
    }
}

impl Endpoint for PacketSocket {
    fn send(&mut self, _: usize, most: usize, mut fill: impl FnMut(&mut [u8]) -> usize) -> usize {
        let mut lengths = [0; BATCH];
        let count = most.min(BATCH);
        for (frame, length) in self.frames.iter_mut().zip(&mut lengths).take(count) {
            *length = fill(frame);
        }
        if count == 0 {
            return 0;
        }
        let sent = self.with_headers(&lengths[..count], |fd, headers| {
            // SAFETY: the headers point to frames, which this call only reads.
            unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), headers.len() as u32, 0) }
        });
        sent.0
    }

    fn receive(&mut self, mut visit: impl FnMut(&[u8])) {
        let (count, sizes) = self.with_headers(&[LONGEST; BATCH], |fd, headers| {
            let (count, no_timeout) = (headers.len() as u32, std::ptr::null_mut());
            // SAFETY: the headers point to frames of this length, which nothing else uses.
            unsafe { libc::recvmmsg(fd, headers.as_mut_ptr(), count, 0, no_timeout) }
        });
        for (frame, size) in self.frames.iter().zip(sizes).take(count) {
            visit(&frame[..size]);
        }
    }
}
