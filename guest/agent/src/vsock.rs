//! Stream sockets of vsock (`vsock(7)`).

use crate::sys::zero_or_error;
use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

/// Listens for connections to an address of this machine, and a port, or any.
///
/// # Errors
/// The kernel has no vsock, or none with this address.
pub fn listen(cid: u32, port: u32) -> io::Result<OwnedFd> {
    let (socket, here) = (stream()?, address(cid, port));
    let length = size_of_val(&here) as libc::socklen_t;
    // SAFETY: the address is as long as it says.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const here).cast(), length) };
    zero_or_error(bound.into())?;
    // SAFETY: takes numbers.
    zero_or_error(unsafe { libc::listen(socket.as_raw_fd(), 1) }.into())?;
    Ok(socket)
}

/// Returns the port of a socket that listens.
///
/// # Errors
/// The kernel refuses.
pub fn port(socket: &OwnedFd) -> io::Result<u32> {
    let mut here = address(0, 0);
    let mut length = size_of_val(&here) as libc::socklen_t;
    let address = (&raw mut here).cast();
    // SAFETY: the kernel writes at most the length of an address.
    let named = unsafe { libc::getsockname(socket.as_raw_fd(), address, &raw mut length) };
    zero_or_error(named.into())?;
    Ok(here.svm_port)
}

/// Waits for a connection.
///
/// # Errors
/// The kernel refuses.
pub fn accept(socket: &OwnedFd) -> io::Result<File> {
    let nowhere = ptr::null_mut();
    // SAFETY: the peer address is not requested.
    let accepted = unsafe { libc::accept(socket.as_raw_fd(), nowhere, nowhere.cast()) };
    owned(accepted).map(File::from)
}

/// Connects to a machine and a port.
///
/// # Errors
/// The kernel has no vsock, or nothing listens there.
pub fn connect(cid: u32, port: u32) -> io::Result<File> {
    let (socket, there) = (stream()?, address(cid, port));
    let length = size_of_val(&there) as libc::socklen_t;
    // SAFETY: the address is as long as it says.
    let connected = unsafe { libc::connect(socket.as_raw_fd(), (&raw const there).cast(), length) };
    zero_or_error(connected.into())?;
    Ok(File::from(socket))
}

fn stream() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: makes a new descriptor from numbers.
    owned(unsafe { libc::socket(libc::AF_VSOCK, kind, 0) })
}

fn address(cid: u32, port: u32) -> libc::sockaddr_vm {
    // SAFETY: all zero is a valid address.
    let mut address: libc::sockaddr_vm = unsafe { zeroed() };
    address.svm_family = libc::AF_VSOCK as u16;
    (address.svm_cid, address.svm_port) = (cid, port);
    address
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    match fd {
        ..0 => Err(io::Error::last_os_error()),
        // SAFETY: a new descriptor.
        _ => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}
