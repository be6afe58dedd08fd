//! Thread with its own timer. It sleeps by `clock_nanosleep` until absolute times, as cyclictest does
//! by default, or polls and is interrupted by the signal of a POSIX timer.

use super::signal::{self, Signal};
use crate::clock::{sleep_until, timespec, Moment, TickClock};
use std::ptr;
use trapline_abi::job::WaitMode;
use trapline_abi::CpuState;
use trapline_workloads::irq::{
    run_one_shot_timer, Arrival, InterruptLog, OneShotTimer, TimerWindow,
};
use trapline_workloads::{ticks, Reason};

/// Handles the expiries of one window.
///
/// # Errors
/// There is no timer.
pub fn run(
    clock: &TickClock,
    window: &TimerWindow,
    log: &mut InterruptLog<'_>,
) -> Result<(), Reason> {
    match window.wait_mode {
        WaitMode::Halt => run_one_shot_timer(&mut Sleeper { clock, due_ns: 0 }, window, log),
        WaitMode::Poll | WaitMode::Flood => {
            run_one_shot_timer(&mut Alarm::open(clock)?, window, log)
        }
    }
    Ok(())
}

/// Converts `due` to the kernel's clock. Returns the uncertainty, in ticks.
fn convert(clock: &TickClock, due: u64) -> (u64, u64) {
    let now = Moment::now();
    let ahead = due.saturating_sub(now.ticks);
    (
        now.ns + clock.ns(ahead),
        now.uncertainty + clock.uncertainty(ahead),
    )
}

/// Sleeps until each expiry.
struct Sleeper<'a> {
    clock: &'a TickClock,
    due_ns: u64,
}

impl OneShotTimer for Sleeper<'_> {
    fn set(&mut self, due: u64) -> u64 {
        let (due_ns, uncertainty) = convert(self.clock, due);
        self.due_ns = due_ns;
        uncertainty
    }

    /// There is no handler; the thread itself runs first.
    fn wait(&mut self, _: WaitMode) -> Arrival {
        sleep_until(self.due_ns);
        let entered = ticks();
        Arrival {
            entered,
            done: entered,
            resumed: entered,
            found: CpuState::Halt,
        }
    }
}

/// Timer that sends a signal to this thread.
struct Alarm<'a> {
    clock: &'a TickClock,
    signal: Signal,
    timer: libc::timer_t,
}

impl<'a> Alarm<'a> {
    fn open(clock: &'a TickClock) -> Result<Self, Reason> {
        // SAFETY: there are no numbered expiries.
        let signal = unsafe { Signal::open(ptr::null_mut()) }
            .map_err(|_| "the handler of a signal cannot be set")?;
        // SAFETY: all zero is a valid event.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal::NUMBER;
        // SAFETY: takes no arguments.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        let mut timer = ptr::null_mut();
        // SAFETY: a valid event, and room for the timer.
        let made =
            unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        match made {
            0 => Ok(Self {
                clock,
                signal,
                timer,
            }),
            _ => Err("a timer that sends signals cannot be created"),
        }
    }
}

impl OneShotTimer for Alarm<'_> {
    fn set(&mut self, due: u64) -> u64 {
        let (due_ns, uncertainty) = convert(self.clock, due);
        let once = libc::itimerspec {
            it_interval: timespec(0),
            it_value: timespec(due_ns),
        };
        // SAFETY: an open timer, and a valid time.
        unsafe {
            libc::timer_settime(
                self.timer,
                libc::TIMER_ABSTIME,
                &raw const once,
                ptr::null_mut(),
            )
        };
        uncertainty
    }

    fn wait(&mut self, wait_mode: WaitMode) -> Arrival {
        self.signal.wait(wait_mode).arrival
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        // SAFETY: created in `open`, no longer used.
        unsafe { libc::timer_delete(self.timer) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check_interrupts;
    use super::*;
    use trapline_workloads::irq::TimerSource;

    #[test]
    fn no_interrupt_is_early() {
        check_interrupts(TimerSource::Own, 100, run, |wait_mode, interrupt| {
            assert!(
                interrupt.entered + interrupt.uncertainty >= interrupt.due,
                "{interrupt:?}"
            );
            assert_eq!(
                interrupt.found == CpuState::Halt,
                wait_mode == WaitMode::Halt
            );
        });
    }
}
