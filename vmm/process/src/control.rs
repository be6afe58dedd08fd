//! Control of a guest's process: one trait for processes that are traced and for those that report signals themselves.

use crate::registers::Registers;
use std::io;

/// Reason why a process has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It was about to receive this signal.
    Signal(libc::c_int),
    /// It has tried a system call.
    Call,
    /// It has ended, by this signal or with this status.
    Ended(libc::c_int),
    /// The VMM was interrupted; the process runs.
    Interrupted,
}

/// Extent of a continuation of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Until it stops.
    Run,
    /// For one instruction.
    Step,
}

/// A system call: its number and arguments.
pub(crate) type Call = (libc::c_long, [u64; 5]);

/// State of the guest, valid while its process is stopped.
pub(crate) struct GuestState {
    pub registers: Registers,
    /// They differ from those of the process.
    pub is_changed: bool,
    /// Number of the system call that has stopped it.
    pub call_number: u64,
    /// A notification has stopped it.
    pub is_signalled: bool,
    /// It waits for the answer to a system call, which is going to be in `rax`, and only the arguments of the call are
    /// known. [`Control::complete`] ends this.
    pub is_partial: bool,
}

impl GuestState {
    pub fn new(registers: Registers) -> Self {
        Self {
            registers,
            is_changed: true,
            call_number: 0,
            is_signalled: false,
            is_partial: false,
        }
    }
}

/// A stopped process of a guest, which ends when this is dropped.
pub(crate) trait Control {
    /// Returns the number of the current process.
    fn pid(&self) -> libc::pid_t;

    /// Returns the numbers of all processes of the guest.
    fn pids(&self) -> Vec<libc::pid_t> {
        vec![self.pid()]
    }

    /// Continues the guest until it stops. Its system calls have no effect.
    fn run(&mut self, guest: &mut GuestState, mode: Mode) -> io::Result<Stop>;

    /// Answers a call that is pending ([`GuestState::is_partial`]) and reads all registers.
    fn complete(&mut self, _guest: &mut GuestState) -> io::Result<()> {
        Ok(())
    }

    /// Makes the process execute a system call. Returns its result, negative for an error.
    fn call(&mut self, number: libc::c_long, arguments: [u64; 5]) -> io::Result<i64>;

    /// Makes the process execute a system call that must succeed, at the latest before it continues.
    fn defer(&mut self, number: libc::c_long, arguments: [u64; 5]) -> io::Result<()> {
        self.call_checked(number, arguments).map(drop)
    }

    /// Returns the number of the process among those of the guest.
    fn index(&self) -> usize {
        0
    }

    /// Returns the top-level page table that the guest has loaded itself; `None` if it cannot.
    fn root(&self) -> Option<u64> {
        None
    }

    /// Sets the top-level page table of the current process.
    fn set_root(&mut self, _root: u64) {}

    /// Makes the process for a top-level page table the current one, or assigns one, to which the guest switches itself.
    /// Returns false if the current process continues with it, and has to drop mappings.
    fn load_space(&mut self, _root: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// Discards the mappings of a top-level page table.
    fn discard_space(&mut self, _root: u64) {}

    /// Makes all other processes drop their mappings before they continue.
    fn invalidate_others(&mut self) {}

    /// Returns code and address of the signal that has stopped the process.
    fn signal_info(&self) -> io::Result<(libc::c_int, u64)>;

    /// Makes the process execute a system call that must succeed.
    fn call_checked(&mut self, number: libc::c_long, arguments: [u64; 5]) -> io::Result<u64> {
        check(self.call(number, arguments)?)
    }
}

/// Returns the result of a system call.
pub(crate) fn check(result: i64) -> io::Result<u64> {
    match result {
        error @ -4095..=-1 => Err(io::Error::from_raw_os_error(-error as i32)),
        result => Ok(result as u64),
    }
}
