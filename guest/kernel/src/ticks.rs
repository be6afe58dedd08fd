//! Interrupts that keep time: of the APIC's own timer, set for each expiry anew, or
//! of a timer of the VMM's, which shares a page with us.
//!
//! The handler in vectors.s puts down what cannot be known later, for the last
//! interrupt; the thread behind it takes that and acknowledges. Nothing here is
//! executed unless a job asks for it.

use crate::cpu::{in32, in8, out32, out8, pause, ring, Global};
use crate::interrupts::{halt, has_deadline, set_deadline, Apic, Timer, TICK_VECTOR, TIMER_VECTOR};
use trapline_abi::job::Wait;
use trapline_abi::platform::{COM1, PAGE, TICKER, TICKER_IS_THERE};
use trapline_abi::ticker::{at, slot};
use trapline_abi::{Found, Interrupt};
use trapline_workloads::irq::{keep_time, Arrival, OneShot, Taken, Ticking};
use trapline_workloads::{ticks, Reason};

/// What the handler puts down.
#[repr(C)]
#[derive(Clone, Copy)]
struct Tick {
    entered: u64,
    done: u64,
    /// Number of the expiry that it stands for, if a VMM raised it.
    raised: u64,
    /// The instruction that would have come next.
    next: u64,
}

extern "C" {
    /// Moved by vectors.s only.
    static trapline_ticks: u64;
    /// Written by vectors.s only.
    static trapline_tick: Tick;
    /// Read by vectors.s: where the number of the last expiry raised stands.
    static mut trapline_tick_raised: *const u64;
}

fn taken_so_far() -> u64 {
    // SAFETY: a counter that is always there, read as it is now.
    unsafe { (&raw const trapline_ticks).read_volatile() }
}

/// The last byte of instructions that halt or reach a port (Intel SDM volume 2).
const HLT: u8 = 0xf4;
const BY_PORT: [u8; 4] = [0xec, 0xed, 0xee, 0xef];

/// What a guest floods its serial port with, and where that says whether it is ready
/// (National Semiconductor PC16550D data sheet).
const FLOOD: u8 = b'~';
const LINE_STATUS: u16 = COM1 + 5;
const READY: u8 = 0x20;

#[inline(always)]
fn flood() {
    if in8(LINE_STATUS) & READY != 0 {
        out8(COM1, FLOOD);
    }
}

/// Waits until the count of ticks is another than `before`. What the handler has put
/// down then, when that was seen, and the count.
#[inline(always)]
fn wait(before: u64, between: Wait) -> (Tick, u64, u64) {
    while taken_so_far() == before {
        match between {
            Wait::Halt => halt(taken_so_far, before),
            Wait::Poll => pause(),
            Wait::Flood => flood(),
        }
    }
    let resumed = ticks();
    loop {
        let count = taken_so_far();
        // SAFETY: always there. Another tick may come meanwhile, see take_tick in
        // vectors.s; then it is read again.
        let tick = unsafe { (&raw const trapline_tick).read_volatile() };
        if taken_so_far() == count {
            // It may have come behind the first look at the clock.
            let resumed = resumed.max(tick.done);
            return (tick, resumed, count);
        }
    }
}

impl Tick {
    fn arrival(&self, resumed: u64, between: Wait) -> Arrival {
        Arrival {
            entered: self.entered,
            done: self.done,
            resumed,
            found: self.found(between),
        }
    }

    /// Told by the instruction before the one that would have come next. At ring 3 a
    /// port is also how the processor is halted.
    fn found(&self, between: Wait) -> Found {
        // SAFETY: the byte before an instruction of ours that is not our first.
        let last = unsafe { ((self.next - 1) as *const u8).read() };
        match (last, between) {
            (HLT, _) => Found::Halt,
            (byte, Wait::Halt) if BY_PORT.contains(&byte) && ring() != 0 => Found::Halt,
            (byte, _) if BY_PORT.contains(&byte) => Found::Exit,
            _ => Found::Code,
        }
    }
}

/// The APIC's timer, set to one expiry after the other.
pub struct Own<'a> {
    apic: &'a Apic,
    timer: &'a Timer,
    by_deadline: bool,
    /// Ticks before the one that it is set to.
    before: u64,
}

impl<'a> Own<'a> {
    /// The timer, ready to be set.
    pub fn open(apic: &'a Apic, timer: &'a Timer) -> Self {
        let by_deadline = has_deadline();
        match by_deadline {
            true => apic.use_deadline(TICK_VECTOR),
            false => apic.use_count(TICK_VECTOR),
        }
        Self {
            apic,
            timer,
            by_deadline,
            before: 0,
        }
    }

    /// Takes the expiries of one window.
    pub fn tick(mut self, ticking: &Ticking, taken: &mut Taken<'_>) {
        keep_time(&mut self, ticking, taken);
    }
}

/// Who sleeps by it wants it as it was.
impl Drop for Own<'_> {
    fn drop(&mut self) {
        self.apic.use_count(TIMER_VECTOR);
    }
}

impl OneShot for Own<'_> {
    #[inline(always)]
    fn set(&mut self, due: u64) -> u64 {
        self.before = taken_so_far();
        if self.by_deadline {
            // SAFETY: `open` has asked.
            unsafe { set_deadline(due) };
            return 0;
        }
        let now = ticks();
        let counts = self.timer.counts(due.saturating_sub(now));
        self.apic.count(counts.min(u32::MAX.into()) as u32);
        // It counts from some moment in between.
        ticks() - now
    }

    #[inline(always)]
    fn wait(&mut self, between: Wait) -> Arrival {
        let (tick, resumed, _) = wait(self.before, between);
        self.apic.acknowledge();
        tick.arrival(resumed, between)
    }
}

/// The page that is shared with the VMM's timer.
#[repr(C, align(4096))]
struct Shared([u64; PAGE as usize / 8]);

static SHARED: Global<Shared> = Global::new(Shared([0; PAGE as usize / 8]));

/// The shared page as both sides use it: word by word, each time anew.
#[derive(Clone, Copy)]
struct Page(*mut u64);

impl Page {
    fn get() -> Self {
        // SAFETY: nobody makes a reference of it; all go through this pointer.
        Self(unsafe { (&raw mut SHARED.get().0).cast() })
    }

    fn read(self, offset: usize) -> u64 {
        // SAFETY: offsets are those of the page's layout, which fits it.
        unsafe { self.0.byte_add(offset).read_volatile() }
    }

    fn write(self, offset: usize, value: u64) {
        // SAFETY: as in `read`.
        unsafe { self.0.byte_add(offset).write_volatile(value) };
    }

    /// The interrupt of the expiry that was raised under this number.
    fn told(self, first: u64, raised: u64, arrival: &Arrival) -> Interrupt {
        let slot = slot(raised);
        Interrupt {
            sequence: first + raised - 1,
            due: self.read(slot + at::DUE),
            doubt: 0,
            woke: Some(self.read(slot + at::WOKE)),
            marked: Some(self.read(slot + at::MARKED)),
            entered: arrival.entered,
            done: arrival.done,
            resumed: arrival.resumed,
            found: arrival.found,
        }
    }
}

/// Whether the VMM has a timer for its guest.
///
/// # Errors
/// It has none.
pub fn find_ticker(ports: bool) -> Result<(), Reason> {
    match ports && in32(TICKER) == TICKER_IS_THERE {
        true => Ok(()),
        false => Err("whoever runs this machine keeps no time for it"),
    }
}

/// Takes the expiries of one window of the VMM's timer.
pub fn tick_by_host(apic: &Apic, ticking: &Ticking, taken: &mut Taken<'_>) {
    let page = Page::get();
    page.write(at::RAISED, 0);
    page.write(at::PERIOD, ticking.period);
    // SAFETY: the page is always there; the handler does not run meanwhile, because
    // nobody raises anything yet.
    unsafe { trapline_tick_raised = page.0 };
    let mut before = taken_so_far();
    // Virtual is physical here.
    out32(TICKER, page.0 as u32);
    let mut last = 0;
    while last < u64::from(ticking.expiries) {
        let (tick, resumed, count) = wait(before, ticking.between);
        before = count;
        if tick.raised > last && tick.raised <= u64::from(ticking.expiries) {
            let arrival = tick.arrival(resumed, ticking.between);
            taken.put(page.told(ticking.first, tick.raised, &arrival));
        }
        last = last.max(tick.raised);
        apic.acknowledge();
    }
    out32(TICKER, 0);
    // Some may have been raised before that; nobody raises any after it.
    apic.settle(TICK_VECTOR);
}
