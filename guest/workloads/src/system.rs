//! What the measured code needs from the system it runs on.
//!
//! [`System`] is what any kernel offers its programs; [`Machine`] is what only a
//! kernel itself has: ports, device memory, interrupts; [`Processes`] is what only an
//! operating system offers. The image has no processes ([`NoProcesses`]), a Linux process
//! usually has no machine, and the operations that need one are then skipped with
//! the reason that the system gives.

use crate::irq::{Source, Taken, Ticking};
use core::ptr::NonNull;
use trapline_abi::block::{Request, Transfer};
use trapline_abi::job::Wait;
use trapline_abi::populate::Wish;
use trapline_abi::{Job, Op, Record};

/// Why something cannot be done here, for people.
pub type Reason = &'static str;

/// Freshly allocated memory, mapped in pages of 4 KiB and never written by the
/// one who allocated it.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Its first byte, page-aligned.
    pub start: NonNull<u8>,
    /// Its length in bytes.
    pub length: usize,
}

/// When a sleeper should have run again, and when it did.
#[derive(Clone, Copy, Debug)]
pub struct Wake {
    /// When its timer was due, in ticks.
    pub due: u64,
    /// When it ran, in ticks.
    pub woke: u64,
}

/// What the workloads ask of a system.
pub trait System {
    /// What only a kernel has.
    type Machine: Machine;

    /// What only an operating system offers.
    type Processes: Processes;

    /// Sends a record to the lab, stamped with the clock.
    fn say(&mut self, record: &Record<'_>);

    /// Blocks until the lab says go.
    fn wait_for_go(&mut self);

    /// Brings interrupt controllers and timers into the state in which every operation
    /// begins. Called before the first one and after each that uses interrupts. A process
    /// has neither.
    fn quiesce(&mut self) {}

    /// Exits to the hypervisor so far, where the machine counts them.
    fn exits(&mut self) -> Option<u64>;

    /// The caller's process number, asked of the kernel each time.
    fn getpid(&mut self) -> u32;

    /// Starts a second thread that does nothing but yield, on the same CPU.
    ///
    /// # Errors
    /// Why there can be no second thread.
    fn start_peer(&mut self) -> Result<(), Reason>;

    /// Lets another runnable thread run.
    fn yield_now(&mut self);

    /// How often the peer has run.
    fn peer_turns(&mut self) -> u64;

    /// Ends the peer. Called once after each successful [`Self::start_peer`].
    fn stop_peer(&mut self);

    /// Allocates `bytes` of fresh memory; `None` if there is not enough.
    fn allocate(&mut self, bytes: usize) -> Option<Block>;

    /// Gives a block back.
    ///
    /// # Safety
    /// `block` came from [`Self::allocate`] of this system, was not released
    /// before, and nothing uses its memory any more.
    unsafe fn release(&mut self, block: Block);

    /// Sets a timer about `ticks` ahead and sleeps until it fires.
    ///
    /// # Errors
    /// Why this system cannot sleep so.
    fn sleep(&mut self, ticks: u64) -> Result<Wake, Reason>;

    /// Whether there is such a timer, whose interrupts can be waited for so.
    ///
    /// # Errors
    /// Why not.
    fn can_tick(&mut self, source: Source, between: Wait) -> Result<(), Reason>;

    /// Takes the expiries of one window. Called only where [`Self::can_tick`].
    ///
    /// # Errors
    /// What went wrong.
    fn tick(&mut self, ticking: &Ticking, taken: &mut Taken<'_>) -> Result<(), Reason>;

    /// Asks whoever runs this system for memory; when this returns it is there or was
    /// refused, which [`Self::attached`] tells.
    fn attach(&mut self, wish: Wish);

    /// The memory that [`Self::attach`] has asked for.
    ///
    /// # Errors
    /// Why there is none.
    fn attached(&mut self) -> Result<Block, Reason>;

    /// Gives that memory back. Called once after each successful [`Self::attached`].
    ///
    /// # Errors
    /// It was not taken.
    ///
    /// # Safety
    /// Nothing uses the memory any more.
    unsafe fn detach(&mut self) -> Result<(), Reason>;

    /// The machine below.
    ///
    /// # Errors
    /// Why there is none.
    fn machine(&mut self) -> Result<&mut Self::Machine, Reason>;

    /// Makes the job's disk ready: all of it that is used holds what
    /// [`crate::block::fill`] writes for [`crate::block::PREPARED`]. Only the first call
    /// has anything to do.
    ///
    /// # Errors
    /// Why there is no disk, or it cannot be used.
    fn open_disk(&mut self, job: &Job) -> Result<(), Reason>;

    /// Makes the requests of `transfer`, as many as there are slots or as there is time
    /// for, and puts down when each was made and done, in the order in which they were
    /// made. Returns how many. What is read is compared with what must be there, and
    /// what was written is read back. Called only after [`Self::open_disk`].
    ///
    /// # Errors
    /// What went wrong.
    fn transfer(
        &mut self,
        transfer: &Transfer,
        job: &Job,
        slots: &mut [Request],
    ) -> Result<usize, Reason>;

    /// The operating system.
    ///
    /// # Errors
    /// Why there is none.
    fn processes(&mut self) -> Result<&mut Self::Processes, Reason>;
}

/// Pages that [`Processes::map`] maps.
pub const MAPPED_PAGES: u64 = 256;

/// What only an operating system offers. What cannot be done gives `None`.
pub trait Processes {
    /// Makes ready what `op` needs. [`Self::end`] is called once after each success.
    ///
    /// # Errors
    /// Why there is none of it.
    fn begin(&mut self, op: Op) -> Result<(), Reason>;

    /// Ends what [`Self::begin`] made.
    fn end(&mut self);

    /// Makes a child that ends at once with `status`; the status that it ended with.
    fn fork(&mut self, status: u8) -> Option<u8>;

    /// The same of a child that executes a program to which it gives `status`.
    fn exec(&mut self, status: u8) -> Option<u8>;

    /// Writes `byte` to a pipe and reads it from there.
    fn pipe(&mut self, byte: u8) -> Option<u8>;

    /// Sends `byte` to a partner on the same CPU, and waits for its answer: `!byte`.
    fn answer(&mut self, byte: u8) -> Option<u8>;

    /// How often this process has given its CPU away so far, as the kernel counts.
    fn switches(&mut self) -> u64;

    /// Maps a file of [`MAPPED_PAGES`] pages, all of which are in memory, so that none
    /// of them will fault. The first word of each is its number.
    fn map(&mut self) -> Option<Block>;

    /// Unmaps what [`Self::map`] has mapped; whether it could.
    ///
    /// # Safety
    /// Nothing uses the memory any more.
    unsafe fn unmap(&mut self, mapped: Block) -> bool;

    /// Makes a child that has a copy of `block`, and waits until it is there.
    ///
    /// # Errors
    /// There can be no child.
    fn share(&mut self, block: Block) -> Result<(), Reason>;

    /// Ends the child of [`Self::share`]: the sum of the first words of all pages of its
    /// copy.
    ///
    /// # Errors
    /// It cannot tell.
    fn shared(&mut self) -> Result<u64, Reason>;
}

/// The processes of a system that has none: it cannot exist.
#[derive(Debug)]
pub enum NoProcesses {}

impl Processes for NoProcesses {
    fn begin(&mut self, _: Op) -> Result<(), Reason> {
        match *self {}
    }
    fn end(&mut self) {
        match *self {}
    }
    fn fork(&mut self, _: u8) -> Option<u8> {
        match *self {}
    }
    fn exec(&mut self, _: u8) -> Option<u8> {
        match *self {}
    }
    fn pipe(&mut self, _: u8) -> Option<u8> {
        match *self {}
    }
    fn answer(&mut self, _: u8) -> Option<u8> {
        match *self {}
    }
    fn switches(&mut self) -> u64 {
        match *self {}
    }
    fn map(&mut self) -> Option<Block> {
        match *self {}
    }
    unsafe fn unmap(&mut self, _: Block) -> bool {
        match *self {}
    }
    fn share(&mut self, _: Block) -> Result<(), Reason> {
        match *self {}
    }
    fn shared(&mut self) -> Result<u64, Reason> {
        match *self {}
    }
}

/// What only a kernel can do.
pub trait Machine {
    /// Whether `op` can be tried on this machine.
    ///
    /// # Errors
    /// Why it cannot.
    fn supports(&self, op: Op) -> Result<(), Reason>;

    /// Writes a byte to a port.
    fn port_out(&mut self, port: u16, value: u8);

    /// Reads a byte from a port.
    fn port_in(&mut self, port: u16) -> u8;

    /// Reads 32 bits of device memory at physical address `address`.
    fn mmio_read(&mut self, address: u64) -> u32;

    /// Writes 32 bits of device memory at physical address `address`.
    fn mmio_write(&mut self, address: u64, value: u32);

    /// A hypercall that has no effect; returns the hypervisor's answer.
    fn hypercall(&mut self) -> i64;

    /// Sends an interrupt to this CPU and waits until its handler has run.
    fn self_ipi(&mut self);

    /// How many interrupts [`Self::self_ipi`] has caused so far.
    fn self_ipis(&mut self) -> u64;

    /// Asks Xen for its version, which is never 0.
    fn xen_version(&mut self) -> i64;

    /// Sends an event to this domain of Xen and waits until its handler has run.
    fn send_event(&mut self);

    /// How many events of [`Self::send_event`] have been handled so far.
    fn events(&mut self) -> u64;
}
