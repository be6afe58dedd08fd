//! Errors of a hypervisor.

use crate::Gpa;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use thiserror::Error;

/// An error number of the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl core::error::Error for Errno {}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[cfg(feature = "std")]
        return std::io::Error::from_raw_os_error(self.0).fmt(f);
        #[cfg(not(feature = "std"))]
        write!(f, "error {}", self.0)
    }
}

/// Errors without a number become `EIO`.
#[cfg(feature = "std")]
impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// A failed request.
#[derive(Debug, Error)]
pub enum Error {
    /// The hypervisor refused.
    #[error("cannot {what}: {source}")]
    Refused {
        /// Operation, as an infinitive.
        what: &'static str,
        /// Cause.
        source: Errno,
    },
    /// The operating system refused, for a cause with a remedy.
    #[error("cannot {what}: {source}: {help}")]
    Denied {
        /// Operation, as an infinitive.
        what: &'static str,
        /// Cause.
        source: Errno,
        /// Remedy.
        help: &'static str,
    },
    /// The region cannot be attached.
    #[error("memory cannot be attached at {at}: {reason}")]
    BadAttach {
        /// Address.
        at: Gpa,
        /// Cause.
        reason: &'static str,
    },
    /// No region is attached at this address.
    #[error("no memory is attached at {0}")]
    NotAttached(Gpa),
    /// Dirty tracking is off for the region at this address.
    #[error("dirty tracking is off for the memory at {0}: call Vm::track_dirty first")]
    NotTracked(Gpa),
    /// The backend does not support this operation; see [`crate::Caps`].
    #[error("this hypervisor cannot {0}")]
    Unsupported(&'static str),
    /// A replayed script and its caller disagree.
    #[error("step {step} of the script: {reason}")]
    Script {
        /// Step, from 0.
        step: usize,
        /// Difference.
        reason: String,
    },
}

impl Error {
    /// Returns a constructor of [`Error::Refused`] for `map_err`.
    #[cfg(feature = "std")]
    pub fn refused<E: Into<std::io::Error>>(what: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::Refused {
            what,
            source: Errno::from(source.into()),
        }
    }
}

impl From<Box<Error>> for Error {
    fn from(boxed: Box<Error>) -> Error {
        *boxed
    }
}

/// Result of a request.
pub type Result<T> = core::result::Result<T, Error>;
