//! Network test of a guest: echoes data of TCP and vsock connections from the host, and sends data to
//! an echo server on the host.

use super::Message;
use crate::sys::zero_or_error;
use crate::{drivers, interface};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::mem::zeroed;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Prefix of the word of the kernel's command line with the address of the network card.
const WORD: &str = "trapline-echo=";

const CARD: &str = "eth0";

/// Ports of the guest and of the host.
const PORT: u16 = 7;
const HOST_PORT: u32 = 80;

/// Bytes sent in total, and per request.
const LENGTH: usize = 256 << 10;
const PIECE: usize = 16 << 10;

/// Runs the test of the kernel's command line: one connection of each kind. Returns true if there is
/// one.
///
/// # Errors
/// Returns the first failure.
pub fn test() -> Result<bool, Message> {
    let words = fs::read_to_string("/proc/cmdline").map_err(|error| error.to_string())?;
    let mut words = words.split_ascii_whitespace();
    let Some(address) = words.find_map(|word| word.strip_prefix(WORD)) else {
        return Ok(false);
    };
    let address = address.parse().map_err(|_| format!("{WORD}{address}"))?;
    drivers::prepare()?;
    let result = run(address).map_err(|error| error.to_string())?;
    println!("{result}");
    Ok(true)
}

fn run(address: Ipv4Addr) -> io::Result<String> {
    interface::configure(CARD, address).map_err(named(CARD))?;
    let over_tcp = TcpListener::bind((address, PORT))?;
    let from_host = listen().map_err(named("a socket for the host"))?;
    call_host().map_err(named("a program of the host"))?;
    let by_socket = echo(&mut accept(&from_host)?)?;
    let (mut stream, _) = over_tcp.accept()?;
    let by_tcp = echo(&mut stream)?;
    Ok(format!(
        "echoed {by_socket} bytes of a socket, {by_tcp} over TCP"
    ))
}

fn named(what: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::other(format!("{what}: {error}"))
}

/// Listens for vsock connections from the host.
fn listen() -> io::Result<OwnedFd> {
    let (socket, here) = (stream()?, address(libc::VMADDR_CID_ANY, PORT.into()));
    let length = size_of_val(&here) as libc::socklen_t;
    // SAFETY: the address is as long as it says.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const here).cast(), length) };
    zero_or_error(bound.into())?;
    // SAFETY: takes numbers.
    zero_or_error(unsafe { libc::listen(socket.as_raw_fd(), 1) }.into())?;
    Ok(socket)
}

fn accept(socket: &OwnedFd) -> io::Result<File> {
    let nowhere = std::ptr::null_mut();
    // SAFETY: the peer address is not requested.
    let accepted = unsafe { libc::accept(socket.as_raw_fd(), nowhere, nowhere.cast()) };
    owned(accepted).map(File::from)
}

/// Sends data to the echo server on the host.
fn call_host() -> io::Result<()> {
    let (socket, there) = (stream()?, address(libc::VMADDR_CID_HOST, HOST_PORT));
    let length = size_of_val(&there) as libc::socklen_t;
    // SAFETY: the address is as long as it says.
    let connected = unsafe { libc::connect(socket.as_raw_fd(), (&raw const there).cast(), length) };
    zero_or_error(connected.into())?;
    let mut stream = File::from(socket);
    let (mut sent, mut received) = (vec![0; PIECE], vec![0; PIECE]);
    for number in 0..LENGTH / PIECE {
        sent.fill(number as u8);
        stream.write_all(&sent)?;
        stream.read_exact(&mut received)?;
        if sent != received {
            return Err(io::Error::other("the echo differs"));
        }
    }
    Ok(())
}

fn stream() -> io::Result<OwnedFd> {
    // SAFETY: makes a new descriptor from numbers.
    owned(unsafe { libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0) })
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

/// Echoes the stream until its end. Returns the number of bytes.
fn echo(stream: &mut (impl Read + Write)) -> io::Result<usize> {
    let (mut bytes, mut all) = (vec![0; PIECE], 0);
    loop {
        match stream.read(&mut bytes)? {
            0 => return Ok(all),
            count => {
                stream.write_all(&bytes[..count])?;
                all += count;
            }
        }
    }
}
