//! Interfaces between the measured code and the system that it runs on.
//!
//! [`System`] is implemented by every kernel or program; [`Machine`] gives access to ports, device
//! memory and interrupts; [`Processes`] is implemented by processes. A kernel is not a process
//! ([`NoProcesses`]), and a process usually has no machine. Operations that need one are then
//! skipped with the reason that the system returns.

use crate::semaphore::Cpu;
use crate::timer::{InterruptLog, TimerSource, TimerWindow};
use core::ffi::CStr;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use trapline_abi::block::{DiskRequest, Transfer};
use trapline_abi::job::WaitMode;
use trapline_abi::net::Exchange;
use trapline_abi::packet::Frames;
use trapline_abi::populate::MemoryRequest;
use trapline_abi::{Job, Op, Record};

/// Human-readable reason why something cannot be done.
pub type Reason = &'static str;

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
    /// `block` was returned by [`Self::allocate`] or [`Self::allocate_zeroed`] of this system, is not released yet, and its
    /// memory is no longer used.
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

/// CPUs, or threads that each run on one.
pub trait Cpus {
    /// Returns their number, at most [`trapline_abi::job::MOST_CPUS`].
    fn count(&self) -> u32;

    /// Runs `others` in `count - 1` other threads, with their number from 1, while `first` runs in this one, whose number is 0.
    /// Returns when all have returned. Thread `n` runs on CPU `n`, counted from 0 again after the last one; at most two share a CPU.
    ///
    /// # Errors
    /// The other CPUs cannot run; neither was called.
    fn run_beside(
        &self,
        count: u32,
        others: &(dyn Fn(u32, &dyn Cpu) + Sync),
        first: &mut dyn FnMut(&dyn Cpu),
    ) -> Result<(), Reason>;

    /// Returns how many interrupts between CPUs, or system calls, have woken a CPU so far.
    fn wakes(&self) -> u64;

    /// Returns the first word of a page that [`Self::remap`] changes.
    ///
    /// # Errors
    /// There is no memory for it.
    fn page(&self) -> Result<&'static AtomicU64, Reason>;

    /// Maps another frame at the address of [`Self::page`], whose first word is `value`. Returns when neither this CPU nor
    /// those of [`Self::run_beside`] can use the old translation.
    ///
    /// # Errors
    /// The page cannot be mapped.
    fn remap(&self, value: u64) -> Result<(), Reason>;
}

/// Files behind a page cache. Their length is fixed.
pub trait Files {
    /// Opens the file at `path`, relative to the directory of all files. Returns its number.
    ///
    /// # Errors
    /// There is no such file, or too many are open.
    fn open(&mut self, path: &CStr) -> Result<u32, Reason>;

    /// Reads from an open file. Returns the number of bytes, fewer than `buffer` has only at the end of the file.
    ///
    /// # Errors
    /// The disk fails, or the file is not open.
    fn read(&mut self, file: u32, offset: u64, buffer: &mut [u8]) -> Result<usize, Reason>;

    /// Opens the file at `path`, as [`Self::open`] does, also for writing.
    ///
    /// # Errors
    /// Same as of [`Self::open`], or the file system is read-only.
    fn open_for_writing(&mut self, path: &CStr) -> Result<u32, Reason> {
        self.open(path)
    }

    /// Overwrites a part of a file that was opened for writing: in the cache, so that it may be lost before [`Self::sync`].
    ///
    /// # Errors
    /// The part exceeds the file, the disk fails, or the file is not open.
    fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<(), Reason>;

    /// Makes all writes to an open file durable (fdatasync).
    ///
    /// # Errors
    /// The disk fails: writes since the last success may be lost. The file is not open.
    fn sync(&mut self, file: u32) -> Result<(), Reason>;

    /// Closes a file. Its pages stay in the cache, changed or not.
    fn close(&mut self, file: u32);

    /// Removes all pages of an open file from the cache, and forgets how it was read. Linux keeps pages that were changed
    /// since [`Self::sync`]; the image writes them to the disk first.
    ///
    /// # Errors
    /// The cache cannot be emptied.
    fn empty_cache(&mut self, file: u32) -> Result<(), Reason>;

    /// Returns what the cache has done so far.
    ///
    /// # Errors
    /// The system does not count it.
    fn cache_counts(&mut self) -> Result<CacheCounts, Reason>;
}

/// What a page cache has done so far, in pages of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Pages read from the disk, with those read ahead.
    pub fetched: u64,
    /// Pages that a call needed, if the cache counts them.
    pub needed: Option<Needed>,
    /// Pages written to the disk, if the cache counts them.
    pub written: Option<u64>,
}

/// Pages that calls needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needed {
    /// Those in the cache.
    pub hits: u64,
    /// Pages that were not in the cache, or still being read ahead. A read waits for them.
    pub misses: u64,
}

impl CacheCounts {
    /// Returns what the cache has done since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let needed = self.needed.zip(before.needed);
        let written = self.written.zip(before.written);
        Self {
            fetched: self.fetched.saturating_sub(before.fetched),
            needed: needed.map(|(after, before)| Needed {
                hits: after.hits - before.hits,
                misses: after.misses - before.misses,
            }),
            written: written.map(|(after, before)| after - before),
        }
    }
}

const NO_FILES: Reason = "this system has no files";
const NO_DISK: Reason = "this system has no disk";
const NO_NETWORK: Reason = "this system has no network";
const NO_LINK: Reason = "this system is connected with no other guest";

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

/// Registers of a virtio device on PCI (virtio 1.2, section 4.1.4.3) or of a virtio-mmio transport (4.2.2), by their
/// addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRegisters {
    /// The register that selects 32 feature bits.
    pub selector: u64,
    /// The register with the selected feature bits.
    pub features: u64,
}

/// Register by which a driver notifies a virtio device of its queue 0 (virtio 1.2, sections 4.2.2 and 4.1.4.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doorbell {
    /// Its address.
    pub address: u64,
    /// It is written with 16 bits, as on PCI, not with 32, as in a virtio-mmio transport.
    pub is_narrow: bool,
}

/// Access to the machine.
///
/// Methods with a default body are needed by the kernel only: no other implementation supports the
/// operations that call them.
pub trait Machine {
    /// Checks that this machine can run `op`, see [`Op::need`].
    ///
    /// # Errors
    /// The reason why not.
    fn supports(&self, op: Op) -> Result<(), Reason>;

    /// Writes a byte to a port.
    fn port_out(&mut self, port: u16, value: u8);

    /// Reads a byte from a port.
    fn port_in(&mut self, port: u16) -> u8;

    /// Returns registers of a virtio device if the machine has no transport at [`trapline_abi::platform::VIRTIO_MMIO`].
    fn device_registers(&mut self) -> Option<DeviceRegisters> {
        None
    }

    /// Reads 32 bits of device memory at physical address `address`.
    fn mmio_read(&mut self, address: u64) -> u32;

    /// Writes 32 bits of device memory at physical address `address`.
    fn mmio_write(&mut self, address: u64, value: u32);

    /// Returns the doorbell of a virtio device that was started with an empty queue.
    fn doorbell(&mut self) -> Doorbell {
        Doorbell::default()
    }

    /// Writes 16 bits of device memory at physical address `address`.
    fn mmio_write16(&mut self, _address: u64, _value: u16) {}

    /// Checks that the device of [`Self::doorbell`] works.
    ///
    /// # Errors
    /// The reason why it does not.
    fn check_doorbell(&mut self) -> Result<(), Reason> {
        Ok(())
    }

    /// Makes a hypercall without effect. Returns the hypervisor's answer.
    fn hypercall(&mut self) -> i64 {
        0
    }

    /// Sends an interrupt to this CPU and waits until its handler has run.
    fn self_ipi(&mut self) {}

    /// Returns the number of interrupts handled after [`Self::self_ipi`].
    fn self_ipi_count(&mut self) -> u64 {
        0
    }

    /// Reads a model-specific register that every CPU with a local APIC has.
    fn read_msr(&mut self, _register: u32) -> u64 {
        0
    }

    /// Queries Xen for its version, which is never 0.
    fn xen_version(&mut self) -> i64 {
        0
    }

    /// Sends an event to this Xen domain and waits until its handler has run.
    fn send_event(&mut self) {}

    /// Returns the number of events handled after [`Self::send_event`].
    fn event_count(&mut self) -> u64 {
        0
    }
}

/// Machine of a system without access to one. The type has no values.
#[derive(Debug)]
pub enum NoMachine {}

impl Machine for NoMachine {
    fn supports(&self, _: Op) -> Result<(), Reason> {
        match *self {}
    }
    fn port_out(&mut self, _: u16, _: u8) {
        match *self {}
    }
    fn port_in(&mut self, _: u16) -> u8 {
        match *self {}
    }
    fn mmio_read(&mut self, _: u64) -> u32 {
        match *self {}
    }
    fn mmio_write(&mut self, _: u64, _: u32) {
        match *self {}
    }
}
