//! Periodic timer interrupts: of the APIC timer, which is set for each expiry, or of a timer of the
//! VMM, which shares a page with the image.
//!
//! The handler in vectors.s records the last interrupt; the waiting thread reads the record and
//! acknowledges the interrupt. None of this runs unless a job selects workload `irq`.

use crate::cpu::{in32, in8, out32, out8, pause, ring, Global};
use crate::interrupts::{halt, set_deadline, Apic, Timer, TICK_VECTOR, TIMER_VECTOR};
use trapline_abi::job::WaitMode;
use trapline_abi::platform::{COM1, PAGE, TICKER, TICKER_PRESENT};
use trapline_abi::ticker::{at, slot};
use trapline_abi::{CpuState, Interrupt};
use trapline_workloads::irq::{
    run_one_shot_timer, run_periodic_timer, Arrival, Expiry, InterruptLog, OneShotTimer,
    PeriodicTimer, TimerWindow,
};
use trapline_workloads::{ticks, Reason};

/// Record of the handler.
#[repr(C)]
#[derive(Clone, Copy)]
struct Tick {
    entered: u64,
    done: u64,
    /// Number of the expiry, if the VMM raised it.
    raised: u64,
    /// Address of the interrupted instruction.
    next: u64,
}

extern "C" {
    /// Written by vectors.s only.
    static trapline_ticks: u64;
    /// Written by vectors.s only.
    static trapline_tick: Tick;
    /// Read by vectors.s: address of the number of the last expiry.
    static mut trapline_tick_raised: *const u64;
}

fn tick_count() -> u64 {
    // SAFETY: a static counter, read as volatile.
    unsafe { (&raw const trapline_ticks).read_volatile() }
}

/// Last bytes of `hlt` and of the instructions that access a port in `dx` (Intel SDM volume 2).
const HLT: u8 = 0xf4;
const PORT_ACCESS: [u8; 4] = [0xec, 0xed, 0xee, 0xef];

/// Byte for flooding the serial port, and its line status register (National Semiconductor
/// PC16550D data sheet).
const FLOOD: u8 = b'~';
const LINE_STATUS: u16 = COM1 + 5;
const READY: u8 = 0x20;

#[inline(always)]
fn flood() {
    if in8(LINE_STATUS) & READY != 0 {
        out8(COM1, FLOOD);
    }
}

/// Waits until the number of ticks differs from `before`. Returns the record of the handler, the
/// time at which it was seen, and the number of ticks.
#[inline(always)]
fn wait(before: u64, wait_mode: WaitMode) -> (Tick, u64, u64) {
    while tick_count() == before {
        match wait_mode {
            WaitMode::Halt => halt(tick_count, before),
            WaitMode::Poll => pause(),
            WaitMode::Flood => flood(),
        }
    }
    let resumed = ticks();
    loop {
        let count = tick_count();
        // SAFETY: a static. Another tick may occur meanwhile, see take_tick in vectors.s; then it
        // is read again.
        let tick = unsafe { (&raw const trapline_tick).read_volatile() };
        if tick_count() == count {
            // The tick may have occurred after the reading of the clock.
            let resumed = resumed.max(tick.done);
            return (tick, resumed, count);
        }
    }
}

impl Tick {
    fn arrival(&self, resumed: u64, wait_mode: WaitMode) -> Arrival {
        Arrival {
            entered: self.entered,
            done: self.done,
            resumed,
            found: self.cpu_state(wait_mode),
        }
    }

    /// Derives the state of the CPU from the instruction before the interrupted one. At ring 3 the
    /// CPU is halted by a port access.
    fn cpu_state(&self, wait_mode: WaitMode) -> CpuState {
        // SAFETY: the byte before an instruction of the image that is not the first.
        let last = unsafe { ((self.next - 1) as *const u8).read() };
        match (last, wait_mode) {
            (HLT, _) => CpuState::Halt,
            (byte, WaitMode::Halt) if PORT_ACCESS.contains(&byte) && ring() != 0 => CpuState::Halt,
            (byte, _) if PORT_ACCESS.contains(&byte) => CpuState::Exit,
            _ => CpuState::Code,
        }
    }
}

/// APIC timer as a one-shot timer.
pub struct ApicTimer<'a> {
    apic: &'a Apic,
    timer: &'a Timer,
    by_deadline: bool,
    /// Number of ticks before the next expiry.
    before: u64,
}

impl<'a> ApicTimer<'a> {
    /// Configures the timer, whose deadlines [`has_deadline`] says it has.
    pub fn open(apic: &'a Apic, timer: &'a Timer, by_deadline: bool) -> Self {
        if by_deadline {
            apic.use_deadline(TICK_VECTOR)
        } else {
            apic.use_count(TICK_VECTOR)
        }
        Self {
            apic,
            timer,
            by_deadline,
            before: 0,
        }
    }

    /// Handles the expiries of one window.
    pub fn run(mut self, window: &TimerWindow, log: &mut InterruptLog<'_>) {
        run_one_shot_timer(&mut self, window, log);
    }
}

/// Restores the configuration for sleeping.
impl Drop for ApicTimer<'_> {
    fn drop(&mut self) {
        self.apic.use_count(TIMER_VECTOR);
    }
}

impl OneShotTimer for ApicTimer<'_> {
    #[inline(always)]
    fn set(&mut self, due: u64) -> u64 {
        self.before = tick_count();
        if self.by_deadline {
            // SAFETY: `open` has checked `has_deadline`.
            unsafe { set_deadline(due) };
            return 0;
        }
        let now = ticks();
        let counts = self.timer.counts(due.saturating_sub(now));
        self.apic.count(counts.min(u32::MAX.into()) as u32);
        // The timer starts at some point in between.
        ticks() - now
    }

    #[inline(always)]
    fn wait(&mut self, wait_mode: WaitMode) -> Arrival {
        let (tick, resumed, _) = wait(self.before, wait_mode);
        self.apic.acknowledge();
        tick.arrival(resumed, wait_mode)
    }
}

/// APIC timer as a periodic one.
pub struct PeriodicApicTimer<'a> {
    apic: &'a Apic,
    timer: &'a Timer,
    /// Counts of a period.
    counts: u32,
    /// Number of ticks before the next expiry.
    before: u64,
}

impl<'a> PeriodicApicTimer<'a> {
    /// Configures the timer.
    pub fn open(apic: &'a Apic, timer: &'a Timer) -> Self {
        apic.use_periodic_count(TICK_VECTOR);
        Self {
            apic,
            timer,
            counts: 0,
            before: tick_count(),
        }
    }

    /// Handles the expiries of one window.
    pub fn run(mut self, window: &TimerWindow, log: &mut InterruptLog<'_>) {
        run_periodic_timer(&mut self, window, log);
    }
}

/// Restores the configuration for sleeping.
impl Drop for PeriodicApicTimer<'_> {
    fn drop(&mut self) {
        self.apic.count(0);
        self.apic.drain(TICK_VECTOR);
        self.apic.use_count(TIMER_VECTOR);
    }
}

impl PeriodicTimer for PeriodicApicTimer<'_> {
    fn start(&mut self, period: u64) -> (u64, Expiry) {
        self.counts = self.timer.counts(period).min(u32::MAX.into()) as u32;
        let before = ticks();
        self.apic.count(self.counts);
        let due = ticks();
        let uncertainty = due - before;
        (self.timer.ticks(self.counts), Expiry { due, uncertainty })
    }

    #[inline(always)]
    fn wait(&mut self, wait_mode: WaitMode) -> Arrival {
        let (tick, resumed, count) = wait(self.before, wait_mode);
        self.before = count;
        self.apic.acknowledge();
        tick.arrival(resumed, wait_mode)
    }

    fn last_expiry(&self) -> Expiry {
        let before = ticks();
        let remaining = self.apic.remaining();
        let now = ticks();
        Expiry {
            due: now - self.timer.ticks(self.counts.saturating_sub(remaining)),
            uncertainty: now - before,
        }
    }
}

/// Page that is shared with the timer of the VMM.
#[repr(C, align(4096))]
struct Shared([u64; PAGE as usize / 8]);

static SHARED: Global<Shared> = Global::new(Shared([0; PAGE as usize / 8]));

/// Access to the shared page, by volatile words.
#[derive(Clone, Copy)]
struct Page(*mut u64);

impl Page {
    fn get() -> Self {
        // SAFETY: there are no references; all accesses use this pointer.
        Self(unsafe { (&raw mut SHARED.get().0).cast() })
    }

    fn read(self, offset: usize) -> u64 {
        // SAFETY: the offsets of the layout are within the page.
        unsafe { self.0.byte_add(offset).read_volatile() }
    }

    fn write(self, offset: usize, value: u64) {
        // SAFETY: as in `read`.
        unsafe { self.0.byte_add(offset).write_volatile(value) };
    }

    /// Returns the interrupt of the expiry with this number.
    fn interrupt(self, first: u64, raised: u64, arrival: &Arrival) -> Interrupt {
        let slot = slot(raised);
        Interrupt {
            sequence: first + raised - 1,
            due: self.read(slot + at::DUE),
            uncertainty: 0,
            woke: Some(self.read(slot + at::WOKE)),
            marked: Some(self.read(slot + at::MARKED)),
            entered: arrival.entered,
            done: arrival.done,
            resumed: arrival.resumed,
            found: arrival.found,
        }
    }
}

/// Checks that the VMM has a timer for the guest.
///
/// # Errors
/// It has none.
pub fn find_ticker(ports: bool) -> Result<(), Reason> {
    if ports && in32(TICKER) == TICKER_PRESENT {
        Ok(())
    } else {
        Err("the VMM has no timer for its guest")
    }
}

/// Handles the expiries of one window of the VMM's timer.
pub fn run_host_timer(apic: &Apic, window: &TimerWindow, log: &mut InterruptLog<'_>) {
    let page = Page::get();
    page.write(at::RAISED, 0);
    page.write(at::PERIOD, window.period);
    // SAFETY: the page is a static; the handler does not run meanwhile, because the timer is not
    // started yet.
    unsafe { trapline_tick_raised = page.0 };
    let mut before = tick_count();
    // Identity-mapped.
    out32(TICKER, page.0 as u32);
    let mut last = 0;
    while last < u64::from(window.expiries) {
        let (tick, resumed, count) = wait(before, window.wait_mode);
        before = count;
        if tick.raised > last && tick.raised <= u64::from(window.expiries) {
            let arrival = tick.arrival(resumed, window.wait_mode);
            log.push(page.interrupt(window.first, tick.raised, &arrival));
        }
        last = last.max(tick.raised);
        apic.acknowledge();
    }
    out32(TICKER, 0);
    // Some interrupts may be pending; the timer raises no more.
    apic.drain(TICK_VECTOR);
}
