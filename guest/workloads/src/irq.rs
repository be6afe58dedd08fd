//! Lateness of the interrupts of a periodic timer.
//!
//! Expiries are numbered and handled in windows. Nothing is sent or computed within a window, and
//! the timer stops between windows, so that sending records does not delay interrupts. An expiry
//! during the handling of the previous one has no interrupt of its own; its number is missing.

use crate::clock::ticks;
use crate::measure::Bench;
use crate::system::{Reason, System};
use core::mem::size_of;
use trapline_abi::interrupt::{pack, MAX_PACKED, WINDOW};
use trapline_abi::job::WaitMode;
use trapline_abi::{CpuState, Interrupt, Op, Record};

pub use crate::timer::{InterruptLog, TimerSource, TimerWindow};

/// Timer that is set for each expiry.
pub trait OneShotTimer {
    /// Sets the timer to `due`, or to the next possible time after it. Returns how much later it may be due, in ticks.
    fn set(&mut self, due: u64) -> u64;

    /// Waits until its interrupt has been handled.
    fn wait(&mut self, wait_mode: WaitMode) -> Arrival;
}

/// Timer that is set once for many expiries.
pub trait PeriodicTimer {
    /// Starts the timer with about this period, in ticks. Returns the period that it has, and the moment of its start.
    fn start(&mut self, period: u64) -> (u64, Expiry);

    /// Waits until its next interrupt has been handled.
    fn wait(&mut self, wait_mode: WaitMode) -> Arrival;

    /// Returns when the timer has expired last. The uncertainty is the same each time.
    fn last_expiry(&self) -> Expiry;
}

/// Moment of an expiry.
#[derive(Clone, Copy, Debug)]
pub struct Expiry {
    /// The latest possible moment, in ticks.
    pub due: u64,
    /// Time by which it may have been earlier, in ticks.
    pub uncertainty: u64,
}

/// Timestamps of an interrupt on the interrupted side.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrival {
    /// Entry of the handler.
    pub entered: u64,
    /// End of the handler.
    pub done: u64,
    /// Resumption of the waiting thread.
    pub resumed: u64,
    /// Interrupted activity.
    pub found: CpuState,
}

impl Arrival {
    /// Returns the interrupt of an expiry.
    fn of(self, sequence: u64, expiry: Expiry) -> Interrupt {
        Interrupt {
            sequence,
            due: expiry.due,
            uncertainty: expiry.uncertainty,
            woke: None,
            marked: None,
            entered: self.entered,
            done: self.done,
            resumed: self.resumed,
            found: self.found,
        }
    }
}

/// Handles the expiries of `window` with a timer that is set for each of them. The first one is due after one period.
/// The time that setting the timer takes is not lateness: an expiry counts from the latest moment at which it can be due.
pub fn run_one_shot_timer(
    timer: &mut impl OneShotTimer,
    window: &TimerWindow,
    log: &mut InterruptLog<'_>,
) {
    let mut due = ticks() + window.period;
    for number in 0..u64::from(window.expiries) {
        if ticks() < due {
            let uncertainty = timer.set(due);
            let arrival = timer.wait(window.wait_mode);
            let due = due + uncertainty;
            log.push(arrival.of(window.first + number, Expiry { due, uncertainty }));
        }
        due += window.period;
    }
}

/// Handles the expiries of `window` with a timer that is set once. Which expiry an interrupt belongs to is found from the
/// moments of the expiries, as whole periods since the one before. Those are known from readings of the timer, which take as
/// long each time, so that only the periods between them count; the first one is due a period after the timer's start.
pub fn run_periodic_timer(
    timer: &mut impl PeriodicTimer,
    window: &TimerWindow,
    log: &mut InterruptLog<'_>,
) {
    let (period, start) = timer.start(window.period);
    let (mut number, mut first, mut last) = (0, None, None);
    while number < u64::from(window.expiries) {
        let arrival = timer.wait(window.wait_mode);
        let mut expiry = timer.last_expiry();
        // Since the handler was entered the timer may have expired again.
        let slack = expiry.uncertainty.max(period / 16);
        let since_entry = expiry.due.saturating_sub(arrival.entered + slack);
        expiry.due -= since_entry.div_ceil(period) * period;
        let since = |last: u64| (expiry.due + period / 2).saturating_sub(last) / period;
        number += last.map_or(1, since).max(1);
        last = Some(expiry.due);
        first.get_or_insert((number, expiry.due));
        if number <= u64::from(window.expiries) {
            log.push(arrival.of(window.first + number - 1, expiry));
        }
    }
    if let (Some((first, first_due)), Some(last_due)) = (first, last) {
        let until_first = match number - first {
            0 => first * period,
            periods => (last_due - first_due) * first / periods,
        };
        correct(log, start, first_due.wrapping_sub(start.due + until_first));
    }
}

/// Corrects the moments of expiries by what readings of the timer add to each: `late_by` according to the timer's start.
fn correct(log: &mut InterruptLog<'_>, start: Expiry, late_by: u64) {
    let read = log.entries().iter().map(|one| one.uncertainty).min();
    let read = read.unwrap_or(0);
    let (late_by, uncertainty) = if late_by <= read {
        (late_by, start.uncertainty)
    } else {
        // The readings are the closer bound, or a hypervisor has delayed the first expiry; Xen does, by half a period
        // (xen/arch/x86/hvm/vpt.c). Then it is known only that no interrupt comes before its expiry.
        let early = |one: &Interrupt| one.due.saturating_sub(one.entered);
        let early = log.entries().iter().map(early).max().unwrap_or(0);
        (early, read.saturating_sub(early))
    };
    for interrupt in log.entries_mut() {
        interrupt.due = interrupt.due.wrapping_sub(late_by);
        interrupt.uncertainty = uncertainty;
    }
}

pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    for (op, source) in [
        (Op::OwnTimer, TimerSource::Own),
        (Op::CountTimer, TimerSource::Count),
        (Op::PeriodicTimer, TimerSource::Periodic),
        (Op::HostTimer, TimerSource::Host),
    ] {
        if bench.job.selects(op) {
            measure(bench, op, source);
            bench.system.quiesce();
        }
    }
}

fn measure<S: System>(bench: &mut Bench<'_, S>, op: Op, source: TimerSource) {
    if let Err(reason) = bench.system.check_timer(source, bench.job.wait_mode) {
        return bench.skip(op, reason);
    }
    let Some(block) = bench
        .system
        .allocate(WINDOW as usize * size_of::<Interrupt>())
    else {
        return bench.fail(op, "not enough memory for a window of interrupts");
    };
    // SAFETY: the block is as long as the slots, page-aligned, exclusive until it is released below,
    // and all slots are initialised here.
    let slots = unsafe {
        let first = block.start.as_ptr().cast::<Interrupt>();
        for slot in 0..WINDOW as usize {
            first.add(slot).write(Interrupt::default());
        }
        core::slice::from_raw_parts_mut(first, WINDOW as usize)
    };
    bench.begin_unmarked(op);
    let count = run_windows(bench, op, source, slots);
    let (job, number) = (bench.job, u64::from(op.number()));
    match count {
        Ok(count) => bench.end(op, count, u64::from(job.expiries) << 8 | number),
        Err(reason) => bench.fail(op, reason),
    }
    // SAFETY: allocated above; the slots are no longer used.
    unsafe { bench.system.release(block) };
}

/// Returns the number of interrupts, which must not be 0.
fn run_windows<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    source: TimerSource,
    slots: &mut [Interrupt],
) -> Result<u32, Reason> {
    let mut count = 0;
    let mut first = 0;
    while first < bench.job.expiries {
        let expiries = WINDOW.min(bench.job.expiries - first);
        let window = TimerWindow {
            source,
            first: first.into(),
            expiries,
            period: bench.job.period,
            wait_mode: bench.job.wait_mode,
        };
        let mut log = InterruptLog::new(slots);
        bench.count_exits(|system| system.run_timer(&window, &mut log))?;
        send_interrupts(bench.system, op, log.entries());
        count += log.entries().len() as u32;
        first += expiries;
    }
    match count {
        0 => Err("no expiry of the timer caused an interrupt of its own"),
        _ => Ok(count),
    }
}

fn send_interrupts<S: System>(system: &mut S, op: Op, mut interrupts: &[Interrupt]) {
    while !interrupts.is_empty() {
        let mut buffer = [0; MAX_PACKED];
        let (count, used) = pack(interrupts, &mut buffer);
        let packed = &buffer[..used];
        system.send(&Record::Interrupts { op, packed });
        interrupts = &interrupts[count.max(1)..];
    }
}
