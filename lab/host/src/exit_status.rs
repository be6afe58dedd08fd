//! Meaning of the exit statuses of programs that run guests.

use crate::Error;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use trapline_abi::platform::{EXIT_STATUS_DONE, EXIT_STATUS_PANIC};
use trapline_protocol::{EndState, GuestDecoder};

/// Exit statuses of a program that runs guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitCodes {
    /// The guest ended successfully.
    pub done: i32,
    /// The guest panicked.
    pub panicked: Option<i32>,
    /// The guest reset its CPU.
    pub reset: Option<i32>,
}

impl ExitCodes {
    /// The agent.
    pub const AGENT: Self = Self {
        done: 0,
        panicked: None,
        reset: None,
    };
    /// `trapline-vmm`.
    pub const VMM: Self = Self {
        done: 0,
        panicked: Some(35),
        reset: Some(36),
    };
    /// QEMU with `isa-debug-exit` and `-no-reboot`.
    pub const QEMU: Self = Self {
        done: EXIT_STATUS_DONE,
        panicked: Some(EXIT_STATUS_PANIC),
        reset: Some(0),
    };

    /// Checks that a guest ended successfully, from the exit status of `program` and its records.
    ///
    /// # Errors
    /// The guest did not end well.
    pub fn check(
        self,
        program: &str,
        status: ExitStatus,
        records: &GuestDecoder,
    ) -> Result<(), Error> {
        let output = records.last_output();
        let program = program.to_owned();
        if let EndState::Panicked(message) = records.end() {
            let message = message.clone();
            return Err(Error::Panicked { message });
        }
        let Some(status) = status.code() else {
            let signal = status.signal().unwrap_or_default();
            return Err(Error::Killed {
                program,
                signal,
                output,
            });
        };
        match records.end() {
            EndState::Done if status == self.done => Ok(()),
            _ if status == self.done => Err(Error::NoDone { output }),
            _ if Some(status) == self.reset => Err(Error::Reset { output }),
            _ if Some(status) == self.panicked => Err(Error::Panicked { message: output }),
            _ => Err(Error::Failed {
                program,
                status,
                output,
            }),
        }
    }
}
