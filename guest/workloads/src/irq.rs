//! How late a periodic timer's interrupt is, and at which point of its way.
//!
//! Expiries are numbered. They are taken in windows: during one nothing is told and
//! nothing computed, and between two of them the timer stands still, so that telling
//! never delays an interrupt that counts. An expiry that could not be taken for
//! itself - the one before was not done yet - has no interrupt of its own, and its
//! number is missing.

use crate::measure::{ticks, Bench};
use crate::system::{Reason, System};
use core::mem::size_of;
use trapline_abi::interrupt::{pack, MAX_PACKED, WINDOW};
use trapline_abi::job::Wait;
use trapline_abi::{Found, Interrupt, Op, Record};

/// Whose timer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The guest's.
    Own,
    /// That of whoever runs the guest.
    Host,
}

/// What is to be taken: the expiries of one window.
#[derive(Clone, Copy, Debug)]
pub struct Ticking {
    /// Of which timer.
    pub source: Source,
    /// Number of the first.
    pub first: u64,
    /// How many.
    pub expiries: u32,
    /// From one to the next, in ticks.
    pub period: u64,
    /// What to do in between.
    pub between: Wait,
}

/// Where interrupts are put down while they come.
pub struct Taken<'a> {
    slots: &'a mut [Interrupt],
    used: usize,
}

impl<'a> Taken<'a> {
    /// Room for as many interrupts as there are slots.
    pub fn new(slots: &'a mut [Interrupt]) -> Self {
        Self { slots, used: 0 }
    }

    /// Puts one down. One too many is lost, and so its expiry counts as missed.
    #[inline(always)]
    pub fn put(&mut self, interrupt: Interrupt) {
        if let Some(slot) = self.slots.get_mut(self.used) {
            *slot = interrupt;
            self.used += 1;
        }
    }

    /// Those that were put down.
    pub fn all(&self) -> &[Interrupt] {
        &self.slots[..self.used]
    }
}

/// A timer of one's own, that is set for each expiry anew.
pub trait OneShot {
    /// Sets it to a moment of the clock, or as soon as it can after that; by how many
    /// ticks it may be later.
    fn set(&mut self, due: u64) -> u64;

    /// Waits until its interrupt has been handled.
    fn wait(&mut self, between: Wait) -> Arrival;
}

/// An interrupt as seen by the one it interrupts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrival {
    /// When the handler was entered.
    pub entered: u64,
    /// When the handler was done.
    pub done: u64,
    /// When the thread behind it ran.
    pub resumed: u64,
    /// What it found.
    pub found: Found,
}

/// Takes the expiries of `ticking` of a timer that is set for each of them. The first
/// is due one period from now.
pub fn keep_time(timer: &mut impl OneShot, ticking: &Ticking, taken: &mut Taken<'_>) {
    let mut due = ticks() + ticking.period;
    for number in 0..u64::from(ticking.expiries) {
        if ticks() < due {
            let doubt = timer.set(due);
            let arrival = timer.wait(ticking.between);
            taken.put(Interrupt {
                sequence: ticking.first + number,
                due,
                doubt,
                woke: None,
                marked: None,
                entered: arrival.entered,
                done: arrival.done,
                resumed: arrival.resumed,
                found: arrival.found,
            });
        }
        due += ticking.period;
    }
}

pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    for (op, source) in [(Op::OwnTimer, Source::Own), (Op::HostTimer, Source::Host)] {
        if bench.job.wants(op) {
            measure(bench, op, source);
            bench.system.quiesce();
        }
    }
}

fn measure<S: System>(bench: &mut Bench<'_, S>, op: Op, source: Source) {
    if let Err(reason) = bench.system.can_tick(source, bench.job.between) {
        return bench.skip(op, reason);
    }
    let Some(block) = bench
        .system
        .allocate(WINDOW as usize * size_of::<Interrupt>())
    else {
        return bench.fail(op, "memory is too small for a window of interrupts");
    };
    // SAFETY: the block is as long as the slots, aligned to pages, nobody else's until
    // it is released below, and any bytes that are written here are an interrupt.
    let slots = unsafe {
        let first = block.start.as_ptr().cast::<Interrupt>();
        for slot in 0..WINDOW as usize {
            first.add(slot).write(Interrupt::default());
        }
        core::slice::from_raw_parts_mut(first, WINDOW as usize)
    };
    bench.begin_unmarked(op);
    let taken = take_windows(bench, op, source, slots);
    let (job, number) = (bench.job, u64::from(op.number()));
    match taken {
        Ok(count) => bench.end(op, count, u64::from(job.expiries) << 8 | number),
        Err(reason) => bench.fail(op, reason),
    }
    // SAFETY: allocated above, and the slots are used no more.
    unsafe { bench.system.release(block) };
}

/// How many interrupts there were. None at all is no measurement.
fn take_windows<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    source: Source,
    slots: &mut [Interrupt],
) -> Result<u32, Reason> {
    let mut count = 0;
    let mut first = 0;
    while first < bench.job.expiries {
        let expiries = WINDOW.min(bench.job.expiries - first);
        let ticking = Ticking {
            source,
            first: first.into(),
            expiries,
            period: bench.job.period,
            between: bench.job.between,
        };
        let mut taken = Taken::new(slots);
        bench.counted(|system| system.tick(&ticking, &mut taken))?;
        tell(bench.system, op, taken.all());
        count += taken.all().len() as u32;
        first += expiries;
    }
    match count {
        0 => Err("no expiry of the timer came as an interrupt of its own"),
        _ => Ok(count),
    }
}

fn tell<S: System>(system: &mut S, op: Op, mut interrupts: &[Interrupt]) {
    while !interrupts.is_empty() {
        let mut buffer = [0; MAX_PACKED];
        let (count, used) = pack(interrupts, &mut buffer);
        let packed = &buffer[..used];
        system.say(&Record::Interrupts { op, packed });
        interrupts = &interrupts[count.max(1)..];
    }
}
