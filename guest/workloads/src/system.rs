//! Interfaces between the measured code and the system that it runs on.
//!
//! [`System`] is implemented by every kernel or program; [`Machine`] gives access to ports, device
//! memory and interrupts; [`Processes`] is implemented by processes. A kernel is not a process
//! ([`NoProcesses`]), and a process usually has no machine. Operations that need one are then
//! skipped with the reason that the system returns.

mod cpus;
mod files;
mod machine;
mod processes;

pub use cpus::Cpus;
pub use files::{CacheCounts, Files, Needed};
pub use machine::{DeviceRegisters, Doorbell, Machine, NoMachine};
pub use processes::{NoProcesses, Processes, MAPPED_PAGES};

use crate::timer::{InterruptLog, TimerSource, TimerWindow};
use core::fmt;
use core::ptr::NonNull;
use trapline_abi::block::{DiskRequest, Transfer};
use trapline_abi::job::WaitMode;
use trapline_abi::net::Exchange;
use trapline_abi::packet::Frames;
use trapline_abi::populate::MemoryRequest;
use trapline_abi::{Job, Record};

/// Human-readable reason why something cannot be done.
pub type Reason = &'static str;

const NO_FILES: Reason = "this system has no files";
const NO_DISK: Reason = "this system has no disk";
const NO_NETWORK: Reason = "this system has no network";
const NO_LINK: Reason = "this system is connected with no other guest";

/// Freshly allocated memory, mapped in pages of 4 KiB and not written yet.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// First byte, page-aligned.
    pub start: NonNull<u8>,
    /// Length in bytes.
    pub length: usize,
}

/// Due time and actual time of a wake-up.
#[derive(Clone, Copy, Debug)]
pub struct Wake {
    /// Expiry of the timer, in ticks.
    pub due: u64,
    /// Time at which the sleeper runs again, in ticks.
    pub woke: u64,
}

/// Services that all workloads use.
pub trait System {
    /// Machine below this system.
    type Machine: Machine;

    /// Processes of this system.
    type Processes: Processes;

    /// Sends a record with a timestamp to the lab.
    fn send(&mut self, record: &Record<'_>);

    /// Blocks until the lab sends a byte.
    fn wait_for_go(&mut self);

    /// Resets interrupt controllers and timers to the state in which every operation begins.
    /// Called before the first operation and after each that uses interrupts.
    fn quiesce(&mut self) {}

    /// Returns the number of exits so far, if the machine counts them.
    fn exits(&mut self) -> Option<u64>;

    /// Queries the kernel for the process number.
    fn getpid(&mut self) -> u32;

    /// Opens the null device. Later calls have no effect.
    ///
    /// # Errors
    /// The reason why there is none.
    fn open_null(&mut self) -> Result<(), Reason>;

    /// Writes to the null device. Returns the number of bytes that it took; `usize::MAX` on failure. Called only after
    /// [`Self::open_null`].
    fn write_null(&mut self, bytes: &[u8]) -> usize;

    /// Reads from the null device. Returns the number of bytes read; `usize::MAX` on failure. Called only after
    /// [`Self::open_null`].
    fn read_null(&mut self, buffer: &mut [u8]) -> usize;

    /// Starts a second thread on the same CPU, which only yields.
    ///
    /// # Errors
    /// The reason why there is no second thread.
    fn start_peer(&mut self) -> Result<(), Reason>;

    /// Yields to another runnable thread.
    fn yield_now(&mut self);

    /// Returns how often the second thread has run.
    fn peer_turns(&mut self) -> u64;

    /// Ends the second thread. Called once after each successful [`Self::start_peer`].
    fn stop_peer(&mut self);

    /// Allocates `bytes` of fresh memory; `None` if memory is exhausted.
    fn allocate(&mut self, bytes: usize) -> Option<Block>;

    /// Allocates `bytes` of fresh memory whose first touches are of pages of 2 MiB, or of the hypervisor's; `None` if memory
    /// is exhausted.
    ///
    /// # Errors
    /// The reason why this system has no such pages.
    fn allocate_huge(&mut self, bytes: usize) -> Result<Option<Block>, Reason> {
        Ok(self.allocate(bytes))
    }

    /// Allocates `bytes` of memory that is zero and mapped in pages of 4 KiB; `None` if memory is exhausted.
    fn allocate_zeroed(&mut self, _bytes: usize) -> Option<Block> {
        None
    }

    /// Zeroes memory in advance, for allocations of `bytes` in total by [`Self::allocate_zeroed`], if this system does
    /// so while it is idle. Returns the number of bytes that it wrote.
    fn zero_while_idle(&mut self, _bytes: usize) -> u64 {
        0
    }

    /// Releases a block.
    ///
    /// # Safety
    /// `block` was returned by an allocation of this system, is not released yet, and its memory is no longer used.
    unsafe fn release(&mut self, block: Block);

    /// Sleeps until a timer, set about `ticks` ahead, expires.
    ///
    /// # Errors
    /// The reason why this system cannot sleep.
    fn sleep(&mut self, ticks: u64) -> Result<Wake, Reason>;

    /// Checks that the timer exists and that the system can wait for its interrupts in this mode.
    ///
    /// # Errors
    /// The reason why not.
    fn check_timer(&mut self, source: TimerSource, between: WaitMode) -> Result<(), Reason>;

    /// Handles the expiries of one window. Called only after [`Self::check_timer`].
    ///
    /// # Errors
    /// The reason of the failure.
    fn run_timer(
        &mut self,
        window: &TimerWindow,
        taken: &mut InterruptLog<'_>,
    ) -> Result<(), Reason>;

    /// Requests memory from the VMM or kernel. [`Self::attached_region`] returns the result.
    fn attach(&mut self, request: MemoryRequest);

    /// Returns the memory requested by [`Self::attach`].
    ///
    /// # Errors
    /// The reason why there is none.
    fn attached_region(&mut self) -> Result<Block, Reason>;

    /// Releases that memory. Called once after each successful [`Self::attached_region`].
    ///
    /// # Errors
    /// The VMM or kernel did not take it back.
    ///
    /// # Safety
    /// The memory is no longer used.
    unsafe fn detach(&mut self) -> Result<(), Reason>;

    /// Returns the machine.
    ///
    /// # Errors
    /// The reason why there is none.
    fn machine(&mut self) -> Result<&mut Self::Machine, Reason>;

    /// Prepares the disk of the job: fills the used part by [`crate::block::fill`] with
    /// generation [`crate::block::PREPARED`]. Later calls have no effect.
    ///
    /// # Errors
    /// The reason why there is no usable disk.
    fn open_disk(&mut self, _job: &Job) -> Result<(), Reason> {
        Err(NO_DISK)
    }

    /// Performs the requests of `transfer`, one per slot or as many as time allows, and stores
    /// their timestamps in the order of submission. Returns their number. Data read is compared
    /// with the expected pattern; all writes are flushed at the end. Called only after
    /// [`Self::open_disk`].
    ///
    /// # Errors
    /// The reason of the failure.
    fn transfer(
        &mut self,
        _transfer: &Transfer,
        _job: &Job,
        _slots: &mut [DiskRequest],
    ) -> Result<usize, Reason> {
        Err(NO_DISK)
    }

    /// Compares the disk with what the first `made` requests of `transfer` have written. Called only
    /// after [`Self::transfer`].
    ///
    /// # Errors
    /// The disk fails, or does not have the content.
    fn read_back(&mut self, _transfer: &Transfer, _job: &Job, _made: usize) -> Result<(), Reason> {
        Ok(())
    }

    /// Returns the files of the job, which the first call opens.
    ///
    /// # Errors
    /// The reason why there are none.
    fn files(&mut self, _job: &Job) -> Result<&mut dyn Files, Reason> {
        Err(NO_FILES)
    }

    /// Prints a line with a fact about the measurement.
    fn print_fact(&mut self, _fact: fmt::Arguments<'_>) {}

    /// Connects to the peer of workload `net` for an exchange. Later calls with one of the same connection have no effect.
    ///
    /// # Errors
    /// The reason why there is no usable network.
    fn open_network(&mut self, _job: &Job, _exchange: Exchange) -> Result<(), Reason> {
        Err(NO_NETWORK)
    }

    /// Performs one exchange with the peer, and checks every byte received. Called only after
    /// [`Self::open_network`].
    ///
    /// # Errors
    /// The network fails, or the peer received or sent wrong content.
    fn exchange(&mut self, _exchange: Exchange) -> Result<(), Reason> {
        Err(NO_NETWORK)
    }

    /// Opens the network card to another guest. Later calls have no effect.
    ///
    /// # Errors
    /// The reason why there is none.
    fn open_link(&mut self) -> Result<(), Reason> {
        Err(NO_LINK)
    }

    /// Sends frames until the other guest has checked and answered them. Called only after [`Self::open_link`].
    ///
    /// # Errors
    /// The card fails, or a frame was lost or damaged.
    fn send_packets(&mut self, _frames: Frames) -> Result<(), Reason> {
        Err(NO_LINK)
    }

    /// Returns this CPU and others, which it starts on the first call.
    ///
    /// # Errors
    /// The reason why there is no second CPU, or why it cannot wait as the job asks.
    fn cpus(&mut self, _job: &Job) -> Result<&'static dyn Cpus, Reason> {
        Err("this system has no second CPU")
    }

    /// Runs the operations of workload `system` in a process, if this system is a kernel that has
    /// processes. Returns false if the caller has to run them itself.
    fn run_in_process(&mut self, _job: &Job) -> bool {
        false
    }

    /// Returns the processes of the operating system.
    ///
    /// # Errors
    /// The reason why there are none.
    fn processes(&mut self) -> Result<&mut Self::Processes, Reason>;
}
