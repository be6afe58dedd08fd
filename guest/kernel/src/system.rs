//! The kernel as the [`System`] that the workloads run on.

mod machine;

use crate::cpu::exits;
use crate::hypercall::HypercallInstruction;
use crate::interrupts::{self, can_halt, has_deadline, Apic, Timer};
use crate::memory::Stores;
use crate::populate::Window;
use crate::threads::{self, Peer};
use crate::virtio::NotifiedDevice;
use crate::xen::{Events, Xen};
use crate::{console, devices, files, memory, process, smp, ticks, virtio};
use core::cell::OnceCell;
use core::fmt::{self, Write};
use core::hint::black_box;
use core::mem;
use trapline_abi::block::{DiskRequest, Transfer};
use trapline_abi::job::{Transport, WaitMode, Zeroing};
use trapline_abi::net::Exchange;
use trapline_abi::populate::MemoryRequest;
use trapline_abi::{packet::Frames, Job, Record};
use trapline_workloads::irq::{InterruptLog, TimerSource, TimerWindow};
use trapline_workloads::{Block, Cpus, DeviceRegisters, Files, NoProcesses, Reason, System, Wake};

/// State of the kernel, which is both the system and its machine.
pub struct Kernel {
    /// The machine has Trapline's own ports.
    ports: bool,
    /// PIC and PIT are masked and stopped.
    legacy_stopped: bool,
    peer: Option<Peer>,
    apic: OnceCell<Result<Apic, Reason>>,
    timer: OnceCell<Result<Timer, Reason>>,
    hypercall_instruction: OnceCell<Result<HypercallInstruction, Reason>>,
    /// Xen, if this is a Xen domain according to the command line.
    xen: Result<Xen, Reason>,
    events: OnceCell<Result<Events, Reason>>,
    window: OnceCell<Result<Window, Reason>>,
    transport: Transport,
    zeroing: Zeroing,
    notified: OnceCell<Result<NotifiedDevice, Reason>>,
    /// Registers of a virtio device, see [`virtio::registers`].
    registers: OnceCell<Result<Option<DeviceRegisters>, Reason>>,
    /// Reason why there are no processes.
    no_processes: Reason,
}

impl Kernel {
    /// Creates the state for one job. Devices are set up on first use.
    pub fn new(job: &Job) -> Self {
        threads::begin();
        let is_xen = job.is_xen_domain();
        Self {
            ports: job.ports,
            legacy_stopped: false,
            peer: None,
            apic: OnceCell::new(),
            timer: OnceCell::new(),
            hypercall_instruction: OnceCell::new(),
            xen: is_xen.then(Xen::here).ok_or("not a Xen domain"),
            events: OnceCell::new(),
            window: OnceCell::new(),
            transport: job.transport,
            zeroing: job.zeroing,
            notified: OnceCell::new(),
            registers: OnceCell::new(),
            no_processes: "this kernel is not a process",
        }
    }

    #[inline(always)]
    fn apic(&self) -> Result<&Apic, Reason> {
        borrow(self.apic.get_or_init(Apic::open))
    }

    fn timer(&self) -> Result<&Timer, Reason> {
        let apic = self.apic()?;
        borrow(self.timer.get_or_init(|| Timer::calibrate(apic)))
    }

    #[inline(always)]
    fn hypercall_instruction(&self) -> Result<HypercallInstruction, Reason> {
        *self
            .hypercall_instruction
            .get_or_init(|| HypercallInstruction::find(self.ports))
    }

    /// Returns the event channel, with interrupts enabled, which opening the APIC does.
    #[inline(always)]
    fn channel(&self) -> Result<&Events, Reason> {
        borrow(self.events.get_or_init(|| self.open_channel()))
    }

    #[inline(always)]
    fn window(&self) -> Result<&Window, Reason> {
        borrow(self.window.get_or_init(|| Window::open(self.ports)))
    }

    /// Returns the stores that zero memory.
    #[inline(always)]
    fn stores(&self) -> Stores {
        if self.zeroing.is_non_temporal() {
            Stores::NonTemporal
        } else {
            Stores::Ordinary
        }
    }

    fn notified(&self) -> Result<&NotifiedDevice, Reason> {
        borrow(
            self.notified
                .get_or_init(|| NotifiedDevice::start(self.transport)),
        )
    }

    fn registers(&self) -> Result<Option<DeviceRegisters>, Reason> {
        *self
            .registers
            .get_or_init(|| virtio::registers(self.transport))
    }

    fn open_channel(&self) -> Result<Events, Reason> {
        let xen = self.xen?;
        self.apic()?;
        Events::open(xen)
    }
}

#[inline(always)]
fn borrow<T>(cached: &Result<T, Reason>) -> Result<&T, Reason> {
    cached.as_ref().map_err(|reason| *reason)
}

/// Returns the number of bytes that a device moved.
#[inline(always)]
fn count(moved: Option<u64>) -> usize {
    moved.map_or(usize::MAX, |moved| moved as usize)
}

impl System for Kernel {
    type Machine = Kernel;
    type Processes = NoProcesses;

    fn send(&mut self, record: &Record<'_>) {
        console::send(record);
    }

    fn wait_for_go(&mut self) {
        console::wait_for_byte();
    }

    fn quiesce(&mut self) {
        if !mem::replace(&mut self.legacy_stopped, true) {
            memory::touch_image();
            interrupts::mask_pic();
            // trapline-vmm has no PIT.
            if !self.ports {
                interrupts::stop_pit();
            }
        }
        if let Some(Ok(device)) = self.notified.take() {
            // A device that does not stop has memory of its own, which is not used again.
            let _ = device.stop();
        }
        self.timer.take();
        if let Some(Ok(apic)) = self.apic.take() {
            apic.close();
        }
    }

    fn exits(&mut self) -> Option<u64> {
        exits(self.ports)
    }

    #[inline(always)]
    fn getpid(&mut self) -> u32 {
        threads::process()
    }

    fn open_null(&mut self) -> Result<(), Reason> {
        Ok(())
    }

    #[inline(always)]
    fn write_null(&mut self, bytes: &[u8]) -> usize {
        count(devices::write(
            black_box(devices::NULL),
            bytes.as_ptr() as u64,
            bytes.len() as u64,
        ))
    }

    #[inline(always)]
    fn read_null(&mut self, buffer: &mut [u8]) -> usize {
        count(devices::read(
            black_box(devices::NULL),
            buffer.as_mut_ptr() as u64,
            buffer.len() as u64,
        ))
    }

    fn start_peer(&mut self) -> Result<(), Reason> {
        self.peer = Some(Peer::start()?);
        Ok(())
    }

    #[inline(always)]
    fn yield_now(&mut self) {
        threads::yield_now();
    }

    fn peer_turns(&mut self) -> u64 {
        self.peer.as_ref().map_or(0, Peer::turns)
    }

    fn stop_peer(&mut self) {
        if let Some(peer) = self.peer.take() {
            peer.stop();
        }
    }

    #[inline(always)]
    fn allocate(&mut self, bytes: usize) -> Option<Block> {
        memory::allocate(bytes)
    }

    #[inline(always)]
    fn allocate_zeroed(&mut self, bytes: usize) -> Option<Block> {
        memory::allocate_zeroed(bytes, self.stores())
    }

    fn zero_while_idle(&mut self, bytes: usize) -> u64 {
        if self.zeroing.is_idle() {
            memory::zero_ahead(bytes, self.stores())
        } else {
            0
        }
    }

    unsafe fn release(&mut self, block: Block) {
        // SAFETY: same contract.
        unsafe { memory::release(block) }
    }

    fn sleep(&mut self, ticks: u64) -> Result<Wake, Reason> {
        can_halt(self.ports)?;
        let apic = self.apic()?;
        Ok(self.timer()?.sleep(apic, ticks))
    }

    fn check_timer(&mut self, source: TimerSource, wait_mode: WaitMode) -> Result<(), Reason> {
        match source {
            TimerSource::Own | TimerSource::Count | TimerSource::Periodic => {
                if wait_mode == WaitMode::Halt {
                    can_halt(self.ports)?;
                }
                self.timer().map(drop)
            }
            TimerSource::Host => self.apic().and_then(|_| ticks::find_ticker(self.ports)),
        }
    }

    fn run_timer(
        &mut self,
        window: &TimerWindow,
        log: &mut InterruptLog<'_>,
    ) -> Result<(), Reason> {
        let apic = self.apic()?;
        let one_shot = |by_deadline| Ok(ticks::ApicTimer::open(apic, self.timer()?, by_deadline));
        match window.source {
            TimerSource::Own => one_shot(has_deadline())?.run(window, log),
            TimerSource::Count => one_shot(false)?.run(window, log),
            TimerSource::Periodic => {
                ticks::PeriodicApicTimer::open(apic, self.timer()?).run(window, log)
            }
            TimerSource::Host => ticks::run_host_timer(apic, window, log),
        }
        Ok(())
    }

    #[inline(always)]
    fn attach(&mut self, request: MemoryRequest) {
        if let Ok(window) = self.window() {
            window.request(request);
        }
    }

    fn attached_region(&mut self) -> Result<Block, Reason> {
        self.window()?.region()
    }

    unsafe fn detach(&mut self) -> Result<(), Reason> {
        // SAFETY: same contract.
        unsafe { self.window()?.release() }
    }

    #[inline(always)]
    fn machine(&mut self) -> Result<&mut Kernel, Reason> {
        Ok(self)
    }

    fn open_disk(&mut self, job: &Job) -> Result<(), Reason> {
        virtio::open(self.apic(), job)
    }

    fn transfer(
        &mut self,
        transfer: &Transfer,
        job: &Job,
        slots: &mut [DiskRequest],
    ) -> Result<usize, Reason> {
        virtio::transfer(transfer, job, slots)
    }

    fn read_back(&mut self, transfer: &Transfer, job: &Job, made: usize) -> Result<(), Reason> {
        virtio::read_back(transfer, job, made)
    }

    fn files(&mut self, job: &Job) -> Result<&mut dyn Files, Reason> {
        Ok(files::files(self.apic(), job)?)
    }

    fn print_fact(&mut self, fact: fmt::Arguments<'_>) {
        // Writing does not fail.
        let _ = console::Text.write_fmt(fact);
        console::write(b"\n");
    }

    fn open_network(&mut self, job: &Job, _: Exchange) -> Result<(), Reason> {
        virtio::open_network(self.apic(), job)
    }

    fn exchange(&mut self, exchange: Exchange) -> Result<(), Reason> {
        virtio::exchange(exchange)
    }

    fn open_link(&mut self) -> Result<(), Reason> {
        virtio::open_link(self.apic(), self.ports)
    }

    fn send_packets(&mut self, frames: Frames) -> Result<(), Reason> {
        virtio::send_packets(frames)
    }

    fn cpus(&mut self, job: &Job) -> Result<&'static dyn Cpus, Reason> {
        let apic = self.apic()?;
        smp::start_all(apic, job.cpus)?;
        smp::cpus(apic, job.wake)
    }

    fn run_in_process(&mut self, job: &Job) -> bool {
        let measured = process::measure(job, self.ports);
        self.no_processes = measured.err().unwrap_or(self.no_processes);
        measured.is_ok()
    }

    fn processes(&mut self) -> Result<&mut NoProcesses, Reason> {
        Err(self.no_processes)
    }
}
