//! Processes of a system.

use super::{Block, Reason};
use trapline_abi::Op;

/// Number of pages that [`Processes::map`] maps.
pub const MAPPED_PAGES: u64 = 256;

/// Services of an operating system to its processes. Methods return `None` on failure.
pub trait Processes {
    /// Allocates the resources of `op`. [`Self::finish`] is called once after each success.
    ///
    /// # Errors
    /// The reason why they are not available.
    fn prepare(&mut self, op: Op) -> Result<(), Reason>;

    /// Releases the resources of [`Self::prepare`].
    fn finish(&mut self);

    /// Forks a child that exits at once with `status`. Returns its exit status.
    fn fork(&mut self, status: u8) -> Option<u8>;

    /// Forks a child that executes a program, which exits with `status`. Returns its exit status.
    fn exec(&mut self, status: u8) -> Option<u8>;

    /// Forks a child that executes the program of [`crate::script`] with `number` in a pipe, and exits with `status`.
    /// Returns what it writes to another pipe; `None` if it exits with another status.
    fn step(&mut self, number: u64, status: u8) -> Option<u64>;

    /// Writes `byte` to a pipe and reads it back.
    fn pipe(&mut self, byte: u8) -> Option<u8>;

    /// Sends `byte` to a process on the same CPU. Returns its answer, which is `!byte`.
    fn ping(&mut self, byte: u8) -> Option<u8>;

    /// Returns the number of voluntary context switches of this process, as the kernel counts.
    fn switch_count(&mut self) -> u64;

    /// Maps a file of [`MAPPED_PAGES`] resident pages, which are populated at once. The first
    /// word of each page is its index.
    fn map(&mut self) -> Option<Block>;

    /// Unmaps a mapping of [`Self::map`]. Returns true on success.
    ///
    /// # Safety
    /// The memory is no longer used.
    unsafe fn unmap(&mut self, mapped: Block) -> bool;

    /// Makes a touched page of this process writable or read-only. Returns true on success.
    fn protect(&mut self, writable: bool) -> bool;

    /// Has the kernel write to the page of [`Self::protect`]. Returns true if it can.
    fn is_writable(&mut self) -> Option<bool>;

    /// Forks a child, which shares `block` copy-on-write, and waits until it runs.
    ///
    /// # Errors
    /// The child cannot be created.
    fn fork_with_copy(&mut self, block: Block) -> Result<(), Reason>;

    /// Ends the child of [`Self::fork_with_copy`]. Returns the sum of the first words of all pages
    /// of its copy.
    ///
    /// # Errors
    /// The child does not answer.
    fn copy_sum(&mut self) -> Result<u64, Reason>;
}

/// Processes of a system without processes. The type has no values.
#[derive(Debug)]
pub enum NoProcesses {}

impl Processes for NoProcesses {
    fn prepare(&mut self, _: Op) -> Result<(), Reason> {
        match *self {}
    }
    fn finish(&mut self) {
        match *self {}
    }
    fn fork(&mut self, _: u8) -> Option<u8> {
        match *self {}
    }
    fn exec(&mut self, _: u8) -> Option<u8> {
        match *self {}
    }
    fn step(&mut self, _: u64, _: u8) -> Option<u64> {
        match *self {}
    }
    fn pipe(&mut self, _: u8) -> Option<u8> {
        match *self {}
    }
    fn ping(&mut self, _: u8) -> Option<u8> {
        match *self {}
    }
    fn switch_count(&mut self) -> u64 {
        match *self {}
    }
    fn map(&mut self) -> Option<Block> {
        match *self {}
    }
    unsafe fn unmap(&mut self, _: Block) -> bool {
        match *self {}
    }
    fn protect(&mut self, _: bool) -> bool {
        match *self {}
    }
    fn is_writable(&mut self) -> Option<bool> {
        match *self {}
    }
    fn fork_with_copy(&mut self, _: Block) -> Result<(), Reason> {
        match *self {}
    }
    fn copy_sum(&mut self) -> Result<u64, Reason> {
        match *self {}
    }
}
