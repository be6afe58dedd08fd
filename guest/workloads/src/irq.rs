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
    /// Sets the timer to `due`, or to the next possible time after it. Returns the uncertainty, in
    /// ticks.
    fn set(&mut self, due: u64) -> u64;

    /// Waits until its interrupt has been handled.
    fn wait(&mut self, wait_mode: WaitMode) -> Arrival;
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

/// Handles the expiries of `window` with a timer that is set for each of them. The first one is due
/// after one period.
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
            log.push(Interrupt {
                sequence: window.first + number,
                due,
                uncertainty,
                woke: None,
                marked: None,
                entered: arrival.entered,
                done: arrival.done,
                resumed: arrival.resumed,
                found: arrival.found,
            });
        }
        due += window.period;
    }
}

pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    for (op, source) in [
        (Op::OwnTimer, TimerSource::Own),
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
