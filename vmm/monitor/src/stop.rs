//! Reasons for the end of a run.

use core::fmt;
use trapline_abi::platform::{EXIT_DONE, EXIT_PANIC};
use trapline_interface::Stop;

/// Reason for the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The guest wrote [`EXIT_DONE`] or powered off.
    Done,
    /// The guest panicked and reported the message.
    Panicked,
    /// The guest wrote another value to the exit port.
    Other(u32),
    /// The guest reset the VM.
    Reset,
    /// The guest halted, and no interrupt can wake it.
    Halted,
    /// The guest cannot continue.
    Stopped(Stop),
    /// The user stopped the VM.
    UserRequest,
    /// The program received a signal.
    Signal(i32),
    /// Console output failed.
    ConsoleClosed,
}

impl StopReason {
    /// Returns the reason for a write of `value` to the exit port.
    pub fn from_exit_port(value: u32) -> Self {
        match value {
            EXIT_DONE => Self::Done,
            EXIT_PANIC => Self::Panicked,
            other => Self::Other(other),
        }
    }
}

/// Message; empty if the guest has reported the reason.
impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done | Self::Panicked => Ok(()),
            Self::Other(value) => write!(f, "guest exited with {value:#x}"),
            Self::Reset => f.write_str("guest reset"),
            Self::UserRequest => f.write_str("stopped by the control socket"),
            Self::Halted => f.write_str("guest halted without a wake-up source"),
            Self::Stopped(Stop::TripleFault) => {
                f.write_str("guest triple fault: exception without a handler")
            }
            Self::Stopped(Stop::Emulation) => {
                f.write_str("guest executed an instruction that the hypervisor cannot emulate")
            }
            Self::Stopped(Stop::Shutdown) => f.write_str("guest power-off"),
            Self::Stopped(stop) => write!(f, "the hypervisor cannot continue the guest: {stop}"),
            Self::Signal(number) => write!(f, "stopped by signal {number}"),
            Self::ConsoleClosed => f.write_str("guest console closed"),
        }
    }
}
