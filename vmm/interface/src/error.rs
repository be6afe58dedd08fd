//! What can go wrong once there is a hypervisor.

use crate::Gpa;
use std::io;
use thiserror::Error;

/// A request that failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The kernel refused.
    #[error("cannot {what}: {source}")]
    Refused {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// The request makes no sense.
    #[error("memory cannot be attached at {at}: {reason}")]
    BadAttach {
        /// Where.
        at: Gpa,
        /// What is wrong.
        reason: &'static str,
    },
    /// Nothing is attached there.
    #[error("no memory is attached at {0}")]
    NotAttached(Gpa),
    /// Nobody asked for its list of writes.
    #[error("writes to the memory at {0} are not tracked: call Vm::track first")]
    NotTracked(Gpa),
    /// The backend does not offer it; [`crate::Caps`] would have said so.
    #[error("this hypervisor cannot {0}")]
    Unsupported(&'static str),
    /// A replayed script and its user disagree.
    #[error("step {step} of the script: {reason}")]
    Script {
        /// Which step, from 0.
        step: usize,
        /// What is wrong.
        reason: String,
    },
}

impl Error {
    /// What a kernel's refusal of `what` is; for `map_err`.
    pub fn refused<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::Refused {
            what,
            source: source.into(),
        }
    }
}

impl From<Box<Error>> for Error {
    fn from(boxed: Box<Error>) -> Error {
        *boxed
    }
}

/// The result of such a request.
pub type Result<T> = std::result::Result<T, Error>;
