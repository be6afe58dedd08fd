//! The end of the program: its messages and exit statuses.

use crate::poll::is_ready;
use std::fmt::Display;
use std::io::{self, Write};
use trapline_abi::platform::EXIT_STATUS_PANIC;
use trapline_interface::Stop;
use trapline_monitor::StopReason;

/// Returns the exit status for the end of a run.
pub fn exit_status(reason: StopReason) -> i32 {
    match reason {
        StopReason::Done => 0,
        StopReason::Panicked => EXIT_STATUS_PANIC,
        StopReason::Stopped(Stop::TripleFault) => 36,
        StopReason::Other(_) | StopReason::Halted => 37,
        StopReason::Stopped(Stop::Shutdown | Stop::Emulation) => 37,
        StopReason::Reset => 38,
        StopReason::UserRequest => 39,
        StopReason::Signal(number) => 128 + number,
        StopReason::Stopped(_) | StopReason::ConsoleClosed => 5,
    }
}

/// Longest wait for a reader of standard error, in milliseconds.
const ERROR_WAIT: libc::c_int = 200;

/// Prints an error. Drops it if standard error is not read, for which the end of a VM does not wait.
pub fn print_error(what: &dyn Display) {
    if is_ready(libc::STDERR_FILENO, libc::POLLOUT, ERROR_WAIT) {
        let _ignored = writeln!(io::stderr(), "trapline-vmm: {what}");
    }
}

/// Ends the process without freeing anything; the kernel is faster.
pub fn leave(status: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}
