//! Numbers of system calls, and of their results.

/// Result of a system call that fails.
pub const FAILED: u64 = u64::MAX;

/// Statuses from here on are those of programs that were ended by the exception with this number.
pub const EXCEPTION: u64 = 256;

/// Added to the status after a page fault if the page is present in the tables of the program, so that its protection was
/// violated.
pub const PROTECTION: u64 = 32;

/// Returns the process number.
pub const GETPID: u64 = 0;
/// Ends the process with a status below [`EXCEPTION`].
pub const EXIT: u64 = 1;
/// Returns the number of a new child; 0 in the child.
pub const FORK: u64 = 2;
/// Executes a program, with the byte at an address as its argument: [`EXIT_PROGRAM`] or [`STEP_PROGRAM`].
pub const EXEC: u64 = 3;
/// Waits for the end of a child. Returns its status.
pub const WAIT: u64 = 4;
/// Creates a pipe.
pub const PIPE: u64 = 5;
/// Closes a pipe.
pub const CLOSE: u64 = 6;
/// Reads from a pipe or device to an address, at most a number of bytes. Returns their number, which is 0
/// if the pipe is empty and no other process has it open.
pub const READ: u64 = 7;
/// Writes bytes at an address to a pipe or device. Returns their number.
pub const WRITE: u64 = 8;
/// Allocates a number of bytes of zeros. Returns their address.
pub const ALLOCATE: u64 = 9;
/// Unmaps pages.
pub const RELEASE: u64 = 10;
/// Makes a page writable or read-only.
pub const PROTECT: u64 = 11;
/// Maps the file. Returns its address.
pub const MAP: u64 = 12;
/// Returns the number of waits of this process.
pub const SWITCHES: u64 = 13;
/// Sends an encoded record.
pub const SEND: u64 = 14;
/// Returns the number of exits of the machine.
pub const EXITS: u64 = 15;

/// Programs, by their offsets in the page of programs: the program of operation `exec`, of four instructions.
pub const EXIT_PROGRAM: u64 = 0;
/// The program of a step of operation `make`.
pub const STEP_PROGRAM: u64 = 64;

/// Numbers of the pipes that the program of a step reads from and writes to: the first ones of process 1.
pub const INPUT: u64 = 0;
pub const OUTPUT: u64 = 1;
