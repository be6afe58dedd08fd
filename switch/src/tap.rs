//! Taps as ports (Linux, Documentation/networking/tuntap.rst).
//!
//! The kernel has no call for several frames of a tap: each is one system call, `read` or `writev`. Frames have a virtio-net header
//! (`IFF_VNET_HDR`) as those of guests have, and no offloads.

use crate::copy::HEADERS;
use crate::counters::Reason;
use crate::frame::{Header, LONGEST};
use crate::net_header::{self, NET_HEADER};
use crate::ring::{Chain, Segment, MOST_SEGMENTS};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::NonNull;

/// Turns of the engine in which a tap without a frame is not read again: a read costs more than a turn.
const REST: u32 = 32;

/// Bytes of the buffer.
const ROOM: usize = (NET_HEADER + LONGEST) as usize;

/// `struct ifreq` of linux/if.h, as far as `TUNSETIFF` reads it.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; 22],
}

/// Opens the tap `name` without blocking, and creates it if there is none.
///
/// # Errors
/// /dev/net/tun is missing, or the name is too long, used, or of another user.
pub fn open(name: &str, flags: libc::c_int) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let file = options
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    let mut request = Request {
        name: [0; libc::IFNAMSIZ],
        flags: (libc::IFF_TAP | libc::IFF_NO_PI | flags) as libc::c_short,
        rest: [0; 22],
    };
    if name.len() >= libc::IFNAMSIZ {
        return Err(ErrorKind::InvalidInput.into());
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the request is a whole `struct ifreq`.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw const request) })?;
    Ok(file)
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Result of reading a tap.
#[derive(Debug)]
pub enum Arrival {
    /// A frame, in the buffer of the tap until the next one is read.
    Frame(Chain),
    /// There is none.
    Nothing,
    /// The interface was deleted.
    Gone,
}

/// A tap of the host.
pub struct Tap {
    file: File,
    buffer: Box<[u8]>,
    /// Turns until it is read again.
    rest: u32,
    /// It had no frame when it was read last.
    is_drained: bool,
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Tap {
    /// Opens an existing tap.
    ///
    /// # Errors
    /// There is none, it is used, or belongs to another user.
    pub fn new(name: &str) -> io::Result<Self> {
        let text = CString::new(name).map_err(|_| ErrorKind::InvalidInput)?;
        // SAFETY: the name is a C string.
        if unsafe { libc::if_nametoindex(text.as_ptr()) } == 0 {
            return Err(io::Error::last_os_error());
        }
        let file = open(name, libc::IFF_VNET_HDR)?;
        let (fd, length) = (file.as_raw_fd(), NET_HEADER as libc::c_int);
        // SAFETY: the request reads one integer.
        check(unsafe { libc::ioctl(fd, libc::TUNSETVNETHDRSZ, &raw const length) })?;
        // SAFETY: the request takes a number: no offloads.
        check(unsafe { libc::ioctl(fd, libc::TUNSETOFFLOAD, 0) })?;
        Ok(Self {
            file,
            buffer: vec![0; ROOM].into(),
            rest: 0,
            is_drained: false,
        })
    }

    /// Returns whether it is to be read in this turn.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        let is_due = self.rest == 0;
        self.rest = self.rest.saturating_sub(1);
        is_due
    }

    /// Lets the next turn read it. Returns whether it may have a frame that no event will announce.
    pub fn wake(&mut self) -> bool {
        self.rest = 0;
        !self.is_drained
    }

    /// Reads a frame.
    pub fn read(&mut self) -> Arrival {
        let read = (&self.file).read(&mut self.buffer);
        self.is_drained = read.is_err();
        match read {
            Ok(length) => Arrival::Frame(Chain::single(
                0,
                Segment {
                    start: NonNull::from(&mut *self.buffer).cast(),
                    length: length as u32,
                },
            )),
            Err(error) => {
                self.rest = REST;
                match error.raw_os_error() {
                    Some(libc::EBADFD) => Arrival::Gone,
                    _ => Arrival::Nothing,
                }
            }
        }
    }

    /// Writes a frame: this header, and the bytes of `segments` behind theirs.
    ///
    /// # Errors
    /// The reason why the kernel did not take it.
    pub fn write(&self, header: Header, segments: &[Segment]) -> Result<(), Reason> {
        const MOST: usize = MOST_SEGMENTS as usize + 1;
        let mut headers = [0; HEADERS];
        let (net, ethernet) = headers.split_at_mut(NET_HEADER as usize);
        net.copy_from_slice(&net_header::bytes(0));
        ethernet.copy_from_slice(&header.bytes());
        let piece = |start: NonNull<u8>, length: usize| libc::iovec {
            iov_base: start.as_ptr().cast(),
            iov_len: length,
        };
        let own = NonNull::from(&mut headers).cast();
        let mut pieces = [piece(own, HEADERS); MOST];
        let (mut skip, mut count) = (HEADERS, 1);
        for segment in segments.iter().take(MOST_SEGMENTS as usize) {
            let skipped = skip.min(segment.length as usize);
            skip -= skipped;
            // SAFETY: at most the length of the segment.
            let start = unsafe { segment.start.add(skipped) };
            pieces[count] = piece(start, segment.length as usize - skipped);
            count += 1;
        }
        // SAFETY: the first piece is borrowed for this call; the others are checked memory, which the kernel only reads.
        let written =
            unsafe { libc::writev(self.file.as_raw_fd(), pieces.as_ptr(), count as libc::c_int) };
        match written {
            ..0 => Err(reason(&io::Error::last_os_error())),
            _ => Ok(()),
        }
    }
}

/// Returns why the kernel did not take a frame.
#[cold]
fn reason(error: &io::Error) -> Reason {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Reason::NoBuffer,
        Some(libc::EIO | libc::EBADFD) => Reason::Down,
        _ => Reason::Refused,
    }
}
