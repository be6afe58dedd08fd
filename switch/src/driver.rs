//! The other side of a port: memory, queues and frames as a VMM with its guest has them. For tests and benchmarks.

pub mod any_endpoint;
pub mod endpoint;
pub mod hostile;
pub mod kernel;
mod packed;
mod peer;
mod random;
mod split;
mod stream;
pub mod traffic;
pub mod vde;

pub use packed::PackedDriver;
pub use peer::{Peer, PeerError, Setup, BUFFER};
pub use random::Random;
pub use split::SplitDriver;

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;

/// Frames that are sent or received at a time.
pub const BATCH: usize = 64;

/// Creates a file in memory.
///
/// # Errors
/// The kernel refuses.
pub fn memory_file(size: u64) -> io::Result<File> {
    // SAFETY: the name is a C string; the descriptor has no other owner.
    let file = unsafe {
        match libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC) {
            ..0 => return Err(io::Error::last_os_error()),
            fd => File::from_raw_fd(fd),
        }
    };
    file.set_len(size)?;
    Ok(file)
}

/// A buffer that the device has returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returned {
    /// Its number.
    pub id: u16,
    /// Bytes that the device has written.
    pub written: u32,
}

/// A driver of either format.
enum Either {
    Split(SplitDriver),
    Packed(PackedDriver),
}

/// Calls a method of either format.
macro_rules! either {
    ($queue:expr, $name:ident => $call:expr) => {
        match $queue {
            Either::Split($name) => $call,
            Either::Packed($name) => $call,
        }
    };
}

impl Driver for Either {
    #[inline]
    fn add(&mut self, id: u16, address: u64, length: u32, is_writable: bool) {
        either!(self, it => it.add(id, address, length, is_writable));
    }

    #[inline]
    fn publish(&mut self) {
        either!(self, it => it.publish());
    }

    #[inline]
    fn next(&mut self) -> Option<Returned> {
        either!(self, it => it.next())
    }

    fn set_notifications(&mut self, are_wanted: bool) {
        either!(self, it => it.set_notifications(are_wanted));
    }

    fn wants_notification(&self) -> bool {
        either!(self, it => it.wants_notification())
    }
}

/// The driver's side of a queue. Each buffer has one descriptor, and the number of that.
pub trait Driver {
    /// Makes a buffer available, which the device sees after [`Self::publish`]. `id` is free.
    fn add(&mut self, id: u16, address: u64, length: u32, is_writable: bool);

    /// Lets the device see what was added.
    fn publish(&mut self);

    /// Returns the next buffer that the device has returned.
    fn next(&mut self) -> Option<Returned>;

    /// Asks the device to notify of returned buffers, or not to.
    fn set_notifications(&mut self, are_wanted: bool);

    /// Returns whether the device has to be notified.
    fn wants_notification(&self) -> bool;
}
