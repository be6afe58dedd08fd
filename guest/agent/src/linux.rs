//! [`System`] on Linux, for processes on the host and in Linux guests.
//!
//! Every operation uses the most direct system call. Two settings differ from the defaults, as the
//! operations require: memory is mapped in pages of 4 KiB, and timers have no slack.

use crate::block::Target;
use crate::clock::{TickClock, CALIBRATION, PRECISE_CALIBRATION};
use crate::cpus;
use crate::drivers::mount_devices;
use crate::files::Directory;
use crate::machine::GuestMachine;
use crate::network::{self, Connections};
use crate::packet_socket::PacketSocket;
use crate::processes::ProcessFamily;
use crate::region::{has_huge_pages, Region};
use crate::second_thread::{sched_yield, SecondThread};
use crate::ticking::{host, own};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use trapline_abi::block::{DiskRequest, Transfer, FACT_PREFIX};
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::job::WaitMode;
use trapline_abi::net::Exchange;
use trapline_abi::packet::Frames;
use trapline_abi::populate::{MemoryRequest, NO_HUGE_PAGES};
use trapline_abi::record::Sender;
use trapline_abi::{Job, OpSet, Record, VERSION};
use trapline_workloads::irq::{InterruptLog, TimerSource, TimerWindow};
use trapline_workloads::packets::Sender as FrameSender;
use trapline_workloads::{ticks, Block, Cpus, Files, GuestInfo, Reason, System, Wake};

/// Receiver of frames.
pub type Sink<'a> = &'a mut dyn FnMut(&[u8]);

/// First record of an agent without a job.
pub const HELLO: Record<'static> = Record::Hello {
    version: VERSION,
    sender: Sender::Agent,
    ring: 3,
    memory: 0,
    planned: OpSet::EMPTY,
};

/// Runs `job` in this process. `main` is the clock at the start of the program, in ticks.
pub fn run(job: &Job, main: u64, sink: Sink<'_>) {
    run_on(None, job, main, sink);
}

/// Runs `job` as init of a guest, with access to its machine.
pub fn run_as_init(job: &Job, main: u64, sink: Sink<'_>) {
    run_on(Some(GuestMachine::default()), job, main, sink);
}

fn run_on(machine: Option<GuestMachine>, job: &Job, main: u64, sink: Sink<'_>) {
    let info = GuestInfo {
        sender: Sender::Agent,
        ring: 3,
        memory: physical_memory(),
        entry: main,
        main,
    };
    let mut system = Linux {
        sink,
        peer: None,
        clock: TickClock::start(),
        region: Err("no memory was requested"),
        // Queried once, because it does not change during a job.
        huge: has_huge_pages(),
        processes: ProcessFamily::default(),
        disk: None,
        files: None,
        connections: Connections::default(),
        link: None,
        machine,
        null: None,
    };
    trapline_workloads::run(&mut system, job, &info);
}

struct Linux<'a> {
    sink: Sink<'a>,
    peer: Option<SecondThread>,
    clock: TickClock,
    region: Result<Region, Reason>,
    huge: bool,
    processes: ProcessFamily,
    /// Opened on first use.
    disk: Option<Result<Target, Reason>>,
    /// Opened on first use.
    files: Option<Result<Directory, Reason>>,
    connections: Connections,
    /// Opened on first use.
    link: Option<Result<FrameSender<PacketSocket>, Reason>>,
    machine: Option<GuestMachine>,
    /// The null device, opened on first use.
    null: Option<File>,
}

impl System for Linux<'_> {
    type Machine = GuestMachine;
    type Processes = ProcessFamily;

    fn send(&mut self, record: &Record<'_>) {
        let mut buffer = [0; MAX_FRAME];
        match encode(record, ticks(), &mut buffer) {
            Ok(length) => (self.sink)(&buffer[..length]),
            Err(error) => unreachable!("workloads truncate their texts: {error:?}"),
        }
    }

    fn wait_for_go(&mut self) {
        // End of input counts as well.
        let _ = io::stdin().read(&mut [0]);
    }

    fn exits(&mut self) -> Option<u64> {
        None
    }

    #[inline(always)]
    fn getpid(&mut self) -> u32 {
        // SAFETY: no arguments. Not libc's getpid, which may cache the result.
        unsafe { libc::syscall(libc::SYS_getpid) as u32 }
    }

    fn open_null(&mut self) -> Result<(), Reason> {
        if self.null.is_none() {
            mount_devices();
            let file = File::options().read(true).write(true).open("/dev/null");
            self.null =
                Some(file.map_err(|_| "/dev/null cannot be opened for reading and writing")?);
        }
        Ok(())
    }

    #[inline(always)]
    fn write_null(&mut self, bytes: &[u8]) -> usize {
        let Some(null) = &self.null else {
            return usize::MAX;
        };
        // SAFETY: an open descriptor, and bytes of this length.
        unsafe { libc::write(null.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) as usize }
    }

    #[inline(always)]
    fn read_null(&mut self, buffer: &mut [u8]) -> usize {
        let Some(null) = &self.null else {
            return usize::MAX;
        };
        // SAFETY: an open descriptor, and a buffer of this length.
        unsafe { libc::read(null.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) as usize }
    }

    fn start_peer(&mut self) -> Result<(), Reason> {
        self.peer = Some(SecondThread::start()?);
        Ok(())
    }

    fn yield_now(&mut self) {
        if let Some(peer) = &self.peer {
            peer.note_turn_of_first();
        }
        sched_yield();
    }

    fn peer_turns(&mut self) -> u64 {
        self.peer.as_ref().map_or(0, SecondThread::turns)
    }

    fn stop_peer(&mut self) {
        self.peer = None;
    }

    fn allocate(&mut self, bytes: usize) -> Option<Block> {
        map_advised(bytes, libc::MADV_NOHUGEPAGE)
    }

    fn allocate_huge(&mut self, bytes: usize) -> Result<Option<Block>, Reason> {
        match std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled") {
            Ok(setting) if !setting.contains("[never]") => {
                Ok(map_advised(bytes, libc::MADV_HUGEPAGE))
            }
            _ => Err("Linux has no huge pages here: switched off, or less than 512 MiB of memory"),
        }
    }

    /// The kernel allocates and zeroes all pages in the call. Blocks of at most 1 MiB, populated one by one, never cover
    /// an empty page of 2 MiB.
    fn allocate_zeroed(&mut self, bytes: usize) -> Option<Block> {
        map(bytes, libc::MAP_POPULATE)
    }

    unsafe fn release(&mut self, block: Block) {
        // SAFETY: by contract a mapping of `allocate`, still mapped and no longer used.
        unsafe { libc::munmap(block.start.as_ptr().cast(), block.length) };
    }

    fn sleep(&mut self, ticks: u64) -> Result<Wake, Reason> {
        self.clock.calibrate(CALIBRATION);
        no_timer_slack();
        Ok(self.clock.sleep(ticks))
    }

    fn check_timer(&mut self, source: TimerSource, wait_mode: WaitMode) -> Result<(), Reason> {
        match (source, wait_mode) {
            (_, WaitMode::Flood) => Err("a Linux process has no serial port of its own"),
            (TimerSource::Count | TimerSource::Periodic, _) => Err(KERNEL_SETS_TIMERS),
            (_, WaitMode::Halt | WaitMode::Poll) => Ok(()),
        }
    }

    fn run_timer(
        &mut self,
        window: &TimerWindow,
        log: &mut InterruptLog<'_>,
    ) -> Result<(), Reason> {
        no_timer_slack();
        self.clock.calibrate(PRECISE_CALIBRATION);
        match window.source {
            TimerSource::Own => own::run(&self.clock, window, log),
            TimerSource::Count | TimerSource::Periodic => Err(KERNEL_SETS_TIMERS),
            TimerSource::Host => host::run(&self.clock, window, log),
        }
    }

    #[inline(always)]
    fn attach(&mut self, request: MemoryRequest) {
        self.region = if request.huge && !self.huge {
            Err(NO_HUGE_PAGES)
        } else {
            Region::new(request)
        };
    }

    fn attached_region(&mut self) -> Result<Block, Reason> {
        let region = self.region.as_ref();
        region.map(Region::block).map_err(|reason| *reason)
    }

    unsafe fn detach(&mut self) -> Result<(), Reason> {
        self.region = Err("the region was released");
        Ok(())
    }

    #[inline(always)]
    fn machine(&mut self) -> Result<&mut GuestMachine, Reason> {
        let none =
            "a Linux process has no ports, device memory, interrupts or privileged instructions";
        self.machine.as_mut().ok_or(none)
    }

    fn open_disk(&mut self, job: &Job) -> Result<(), Reason> {
        if self.disk.is_none() {
            let disk = Target::open(job);
            for (name, fact) in disk.iter().flat_map(Target::facts) {
                (self.sink)(format!("{FACT_PREFIX}{name} {fact}\n").as_bytes());
            }
            self.disk = Some(disk);
        }
        self.disk().map(drop)
    }

    fn transfer(
        &mut self,
        transfer: &Transfer,
        job: &Job,
        slots: &mut [DiskRequest],
    ) -> Result<usize, Reason> {
        self.disk()?.transfer(transfer, job, slots)
    }

    fn read_back(&mut self, transfer: &Transfer, job: &Job, made: usize) -> Result<(), Reason> {
        self.disk()?.read_back(transfer, job, made)
    }

    fn files(&mut self, job: &Job) -> Result<&mut dyn Files, Reason> {
        let files = self.files.get_or_insert_with(|| Directory::open(job));
        match files {
            Ok(files) => Ok(files),
            Err(reason) => Err(reason),
        }
    }

    fn print_fact(&mut self, fact: fmt::Arguments<'_>) {
        (self.sink)(format!("{fact}\n").as_bytes());
    }

    fn open_network(&mut self, job: &Job, exchange: Exchange) -> Result<(), Reason> {
        self.connections.open(job, exchange)
    }

    fn exchange(&mut self, exchange: Exchange) -> Result<(), Reason> {
        self.connections.exchange(exchange)
    }

    fn open_link(&mut self) -> Result<(), Reason> {
        if self.machine.is_none() {
            return Err("a Linux process has no card to another guest");
        }
        let link = self.link.get_or_insert_with(network::open_link);
        link.as_ref().map(drop).map_err(|reason| *reason)
    }

    fn send_packets(&mut self, frames: Frames) -> Result<(), Reason> {
        match &mut self.link {
            Some(Ok(link)) => link.send(frames),
            _ => Err("the card is not open"),
        }
    }

    fn cpus(&mut self, job: &Job) -> Result<&'static dyn Cpus, Reason> {
        cpus::cpus(job.wake, self.machine.is_some())
    }

    fn processes(&mut self) -> Result<&mut ProcessFamily, Reason> {
        Ok(&mut self.processes)
    }
}

impl Linux<'_> {
    fn disk(&self) -> Result<&Target, Reason> {
        let disk = self.disk.as_ref().ok_or("the disk is not open")?;
        disk.as_ref().map_err(|reason| *reason)
    }
}

/// Maps anonymous memory, with further flags of `mmap`.
fn map(bytes: usize, flags: libc::c_int) -> Option<Block> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: a new private mapping at an address of the kernel's choice.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    Some(Block {
        start: NonNull::new(start.cast())?,
        length: bytes,
    })
}

/// Maps memory with advice on huge pages.
fn map_advised(bytes: usize, advice: libc::c_int) -> Option<Block> {
    let block = map(bytes, 0)?;
    // SAFETY: the range was just mapped. A kernel without huge pages refuses, which is harmless.
    unsafe { libc::madvise(block.start.as_ptr().cast(), bytes, advice) };
    Some(block)
}

const KERNEL_SETS_TIMERS: Reason =
    "the kernel sets the timer of its CPU for each expiry: choose irq/own-timer";

/// Disables timer slack, which by default delays wake-ups by up to 50 us.
fn no_timer_slack() {
    // SAFETY: sets a number of this thread; an unknown option is refused.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64) };
}

fn physical_memory() -> u64 {
    // SAFETY: both only read a configuration value.
    let (pages, size) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    (pages.max(0) as u64).saturating_mul(size.max(0) as u64)
}

#[cfg(test)]
mod tests;
