//! How a machine ended, and the exit status that says so.

use std::fmt;
use trapline_abi::platform::{EXIT_DONE, EXIT_PANIC, EXIT_STATUS_PANIC};
use trapline_interface::Stop;

/// How a machine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The guest was done.
    Done,
    /// The guest panicked; it has said why.
    Panicked,
    /// The guest wrote another value to the exit port.
    Other(u32),
    /// The guest reset its machine.
    Reset,
    /// The guest halted, and no interrupt can ever wake it.
    Halted,
    /// The guest could not go on.
    Stopped(Stop),
    /// Somebody said stop over its socket.
    Asked,
    /// A signal said stop.
    Signal(i32),
    /// Nobody reads the console any more.
    Deaf,
}

impl Ending {
    /// How a guest that wrote `value` to the exit port ends.
    pub fn of_exit(value: u32) -> Self {
        match value {
            EXIT_DONE => Self::Done,
            EXIT_PANIC => Self::Panicked,
            other => Self::Other(other),
        }
    }

    /// The exit status.
    pub fn status(self) -> i32 {
        match self {
            Self::Done => 0,
            Self::Panicked => EXIT_STATUS_PANIC,
            Self::Stopped(Stop::TripleFault) => 36,
            Self::Reset => 38,
            Self::Asked => 39,
            Self::Other(_) | Self::Halted | Self::Stopped(Stop::Shutdown) => 37,
            Self::Signal(number) => 128 + number,
            Self::Stopped(_) | Self::Deaf => 5,
        }
    }
}

/// What people are told; nothing where the guest has said it itself.
impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done | Self::Panicked => Ok(()),
            Self::Other(value) => write!(f, "the guest ended itself with {value:#x}"),
            Self::Reset => f.write_str("the guest reset its machine"),
            Self::Asked => f.write_str("stopped, as asked for over its socket"),
            Self::Halted => f.write_str("the guest halted for ever"),
            Self::Stopped(Stop::TripleFault) => {
                f.write_str("the guest triple-faulted: an exception that it had no handler for")
            }
            Self::Stopped(Stop::Shutdown) => f.write_str("the guest switched its machine off"),
            Self::Stopped(stop) => {
                write!(f, "the kernel could not run the guest any further ({stop})")
            }
            Self::Signal(number) => write!(f, "ended by signal {number}"),
            Self::Deaf => f.write_str("nobody reads the guest's console any more"),
        }
    }
}
