//! Operations of processes that depend on the privilege ring of the kernel, and on its isolation from programs.
//!
//! Code that uses them is generic, so that it is compiled once for each. At ring 0 ([`super::ring0`]) these are
//! instructions, also of an isolated kernel ([`super::isolated`]). At ring 3 the kernel's instructions are not available to
//! it: [`super::ring3`] has the substitutes.

use core::ops::Range;
use trapline_workloads::Reason;

/// Code of a program, in the image.
pub struct Code {
    /// Its first byte.
    pub start: *const u8,
    /// Its length in bytes.
    pub length: usize,
}

impl Code {
    /// Returns the code between two labels.
    pub fn between(start: *const u8, end: *const u8) -> Self {
        Self {
            start,
            length: end as usize - start as usize,
        }
    }
}

/// Privilege ring of a kernel with processes.
pub trait Ring: Default + 'static {
    /// The kernel's memory and ports are protected from programs.
    const IS_PROTECTED: bool;

    /// Enables system calls and page faults of programs.
    ///
    /// # Errors
    /// The reason why this machine has no address spaces.
    fn open(has_ports: bool) -> Result<(), Reason>;

    /// Restores the state before [`Self::open`].
    fn close();

    /// Makes a system call. The caller is a program.
    ///
    /// # Safety
    /// The kernel changes only the registers that C functions may change, and memory that the arguments name.
    unsafe fn call(number: u64, first: u64, second: u64, third: u64) -> u64;

    /// Loads the top-level table at `top`. Loading the current one flushes the TLB.
    fn load_tables(top: u64);

    /// Removes the translation of one page from the TLB.
    fn flush(address: u64);

    /// Removes the translations of a range of pages from the TLB.
    fn flush_range(range: Range<u64>);

    /// Leaves the current space, whose table is `top`, before it is freed.
    fn leave(top: u64);

    /// Removes the translations of a space that is not current, before it is freed.
    fn discard(top: u64);

    /// Saves the context of the running process at `from` and restores that at `to`, with the tables at
    /// `tables`; see entry.s.
    ///
    /// # Safety
    /// `to` was saved here or prepared by [`super::switch::start`], and the tables map the kernel.
    unsafe fn switch(from: *mut *mut u64, to: *mut u64, tables: u64);

    /// Returns the end of the stack on which exceptions of programs begin.
    fn exception_stack() -> *const u64;

    /// Returns the programs, with their offsets in the page of programs.
    fn programs() -> [(u64, Code); 2];

    /// Returns the address of the first instruction of process 1.
    fn start() -> u64;

    /// Returns the address at which a new process continues in the kernel.
    fn return_to_child() -> u64;
}
