//! Tap devices (Linux, Documentation/networking/tuntap.rst).

use super::spec::TapSource;
use crate::virtio::Counters;
use crate::Failure;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use trapline_monitor::virtio::net::{FrameBuffer, Header, Network, Offloads, HEADER};
use trapline_monitor::virtio::{Memory, Part};

const DEVICE: &str = "/dev/net/tun";

/// Ethernet frames, preceded by a virtio-net header.
const FLAGS: libc::c_int = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;

/// An open, non-blocking tap.
#[derive(Debug)]
pub struct Tap {
    fd: OwnedFd,
    name: String,
}

impl AsRawFd for Tap {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Tap {
    /// Opens the tap named by `source`.
    ///
    /// # Errors
    /// The tap does not exist, is busy, or has the wrong type.
    pub fn open(source: &TapSource) -> Result<Self, Failure> {
        let tap = match source {
            TapSource::Named(name) => Self::named(name)?,
            TapSource::Inherited(fd) => Self::inherited(*fd)?,
        };
        let length = HEADER as libc::c_int;
        let failure = |error: io::Error| failure(&tap.name, &error.to_string());
        // SAFETY: the request reads one integer.
        check(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const length) })
            .map_err(failure)?;
        tap.leave(Offloads::default()).map_err(failure)?;
        Ok(tap)
    }

    fn named(name: &str) -> Result<Self, Failure> {
        if !exists(name) {
            return Err(failure(name, &format!("there is none: {}", remedy(name))));
        }
        let opened = File::options().read(true).write(true).open(DEVICE);
        let file = opened.map_err(|error| failure(name, &format!("{DEVICE}: {error}")))?;
        let fd = OwnedFd::from(file);
        let mut request = request_for(name);
        request.ifr_ifru.ifru_flags = FLAGS as libc::c_short;
        // SAFETY: the request reads and writes this structure.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })
            .map_err(|error| failure(name, &why_not(name, &error)))?;
        never_wait(&fd).map_err(|error| failure(name, &error.to_string()))?;
        let name = name.to_owned();
        Ok(Self { fd, name })
    }

    fn inherited(fd: RawFd) -> Result<Self, Failure> {
        let wrong = |why: &str| failure(&format!("of descriptor {fd}"), why);
        let mut request = request_for("");
        // SAFETY: the request writes this structure; an invalid descriptor gives an error.
        check(unsafe { libc::ioctl(fd, libc::TUNGETIFF, &raw mut request) })
            .map_err(|_| wrong("it is none, or not attached: open it before, with TUNSETIFF"))?;
        // SAFETY: the kernel has written the flags.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        if libc::c_int::from(flags as u16) & FLAGS != FLAGS {
            return Err(wrong("attach it with IFF_TAP, IFF_NO_PI and IFF_VNET_HDR"));
        }
        let name = request.ifr_name.iter().map(|byte| *byte as u8);
        let name: Vec<_> = name.take_while(|byte| *byte != 0).collect();
        // SAFETY: the descriptor is open and was passed to this process for this purpose only.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        never_wait(&fd).map_err(|error| wrong(&error.to_string()))?;
        let name = String::from_utf8_lossy(&name).into_owned();
        Ok(Self { fd, name })
    }

    /// Interface name on the host.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the MTU, if known: an inherited tap may belong to another network namespace.
    pub fn mtu(&self) -> Option<u16> {
        // SAFETY: creates a descriptor from numbers.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        check(fd).ok()?;
        // SAFETY: the descriptor is new and owned by nothing else.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut request = request_for(&self.name);
        // SAFETY: the request reads and writes this structure.
        check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) })
            .ok()?;
        // SAFETY: the kernel has written the number.
        u16::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
    }

    /// Sets the offloads of received frames.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn leave(&self, work: Offloads) -> io::Result<()> {
        let bit = |wanted, bit| if wanted { bit } else { 0 };
        let bits = bit(work.checksum, libc::TUN_F_CSUM)
            | bit(work.tcp4, libc::TUN_F_TSO4)
            | bit(work.tcp6, libc::TUN_F_TSO6);
        // SAFETY: the request takes a number.
        check(unsafe { libc::ioctl(self.as_raw_fd(), libc::TUNSETOFFLOAD, bits) })
    }

    /// Returns the tap's port to guest memory.
    pub(super) fn port<'a>(&'a self, memory: &'a Memory, counters: &'a Counters) -> Port<'a> {
        Port {
            tap: self,
            memory,
            counters,
            pieces: Vec::with_capacity(MAX_PIECES),
            is_there: true,
        }
    }
}

fn failure(name: &str, why: &str) -> Failure {
    Failure::Host(format!("tap {name}: {why}"))
}

fn remedy(name: &str) -> String {
    format!("'ip tuntap add {name} mode tap user USER' makes one, as root")
}

fn why_not(name: &str, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EBUSY) => "another program uses it: end that, or name another tap".to_owned(),
        Some(libc::EPERM) => {
            let remedy = remedy(name);
            format!("it belongs to another user: delete it, and {remedy} for you")
        }
        Some(libc::EINVAL) => {
            format!("it is no tap, or one of several queues: {}", remedy(name))
        }
        _ => error.to_string(),
    }
}

fn exists(name: &str) -> bool {
    // SAFETY: the string is zero-terminated.
    CString::new(name).is_ok_and(|name| unsafe { libc::if_nametoindex(name.as_ptr()) } != 0)
}

/// Creates an interface request for this name, truncated.
fn request_for(name: &str) -> libc::ifreq {
    // SAFETY: all zero is a valid request without a name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (place, byte) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    request
}

fn never_wait(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: reads the flags of this descriptor.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    check(flags)?;
    // SAFETY: sets the flags of this descriptor.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })
}

fn check(status: libc::c_int) -> io::Result<()> {
    match status {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Limit of pieces in one call (IOV_MAX).
const MAX_PIECES: usize = 1_024;

/// A tap with access to guest memory.
pub(super) struct Port<'a> {
    tap: &'a Tap,
    memory: &'a Memory,
    counters: &'a Counters,
    pieces: Vec<libc::iovec>,
    is_there: bool,
}

impl Port<'_> {
    /// Returns false once the tap was deleted.
    pub(super) fn is_there(&self) -> bool {
        self.is_there
    }

    /// Appends guest memory to the pieces.
    fn add(&mut self, parts: &[Part]) {
        let memory = self.memory;
        self.pieces.extend(parts.iter().filter_map(|part| {
            Some(libc::iovec {
                iov_base: memory.pointer(part.at, part.length)?.as_ptr().cast(),
                iov_len: part.length,
            })
        }));
    }

    /// Returns the number of bytes transferred.
    fn outcome(&mut self, count: isize) -> Option<usize> {
        if let Ok(count) = usize::try_from(count) {
            return Some(count);
        }
        let error = io::Error::last_os_error();
        // A deleted tap reports this error at each read.
        self.is_there &= error.raw_os_error() != Some(libc::EBADFD);
        None
    }
}

impl Network for Port<'_> {
    fn read(&mut self, room: FrameBuffer<'_>) -> Option<usize> {
        let own = |bytes: &mut [u8]| libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        self.pieces.clear();
        self.pieces.push(own(room.header));
        self.add(room.parts);
        self.pieces.push(own(room.rest));
        let (first, count) = (self.pieces.as_ptr(), self.pieces.len());
        // SAFETY: the slice has `count` pieces. The first and the last are buffers borrowed for this call; the others
        // are checked guest memory, mapped as long as `memory` lives, to which no reference exists.
        let read = unsafe { libc::readv(self.tap.as_raw_fd(), first, count as libc::c_int) };
        let frame = self.outcome(read)?.checked_sub(HEADER)?;
        self.counters.request(frame, 0);
        Some(frame)
    }

    fn write(&mut self, header: &Header, parts: &[Part]) {
        self.pieces.clear();
        self.pieces.push(libc::iovec {
            // The kernel only reads it.
            iov_base: header.0.as_ptr().cast_mut().cast(),
            iov_len: HEADER,
        });
        self.add(parts);
        let (first, count) = (self.pieces.as_ptr(), self.pieces.len());
        // SAFETY: the slice has `count` pieces. The first is borrowed for this call; the others are checked guest
        // memory, mapped as long as `memory` lives, to which no reference exists.
        let written = unsafe { libc::writev(self.tap.as_raw_fd(), first, count as libc::c_int) };
        match self.outcome(written) {
            Some(count) => self.counters.request(0, count.saturating_sub(HEADER)),
            None => self.lost(),
        }
    }

    fn lost(&mut self) {
        self.counters.fail();
    }
}
