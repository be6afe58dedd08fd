//! Exit statuses of the program.

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
