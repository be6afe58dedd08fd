//! A thread with a timer of its own. Asleep it is `clock_nanosleep` to absolute
//! times, as cyclictest does by default; at work it is interrupted by a POSIX timer's
//! signal.

use super::signal::{self, Signal};
use crate::clock::{sleep_until, timespec, Moment, TickClock};
use std::ptr;
use trapline_abi::job::Wait;
use trapline_abi::Found;
use trapline_workloads::irq::{keep_time, Arrival, OneShot, Taken, Ticking};
use trapline_workloads::{ticks, Reason};

/// Takes the expiries of one window.
///
/// # Errors
/// There is no timer.
pub fn tick(clock: &TickClock, ticking: &Ticking, taken: &mut Taken<'_>) -> Result<(), Reason> {
    match ticking.between {
        Wait::Halt => keep_time(&mut Sleeper { clock, due_ns: 0 }, ticking, taken),
        Wait::Poll | Wait::Flood => keep_time(&mut Alarm::open(clock)?, ticking, taken),
    }
    Ok(())
}

/// The moment `due` on the kernel's clock, and by how many ticks that may be wrong.
fn convert(clock: &TickClock, due: u64) -> (u64, u64) {
    let now = Moment::now();
    let ahead = due.saturating_sub(now.ticks);
    (now.ns + clock.ns(ahead), now.doubt + clock.doubt(ahead))
}

/// Sleeps until each expiry.
struct Sleeper<'a> {
    clock: &'a TickClock,
    due_ns: u64,
}

impl OneShot for Sleeper<'_> {
    fn set(&mut self, due: u64) -> u64 {
        let (due_ns, doubt) = convert(self.clock, due);
        self.due_ns = due_ns;
        doubt
    }

    /// There is no handler: the thread itself is what comes first.
    fn wait(&mut self, _: Wait) -> Arrival {
        sleep_until(self.due_ns);
        let entered = ticks();
        Arrival {
            entered,
            done: entered,
            resumed: entered,
            found: Found::Halt,
        }
    }
}

/// A timer that sends this thread a signal.
struct Alarm<'a> {
    clock: &'a TickClock,
    signal: Signal,
    timer: libc::timer_t,
}

impl<'a> Alarm<'a> {
    fn open(clock: &'a TickClock) -> Result<Self, Reason> {
        // SAFETY: nobody raises, so there is no number to look for.
        let signal = unsafe { Signal::open(ptr::null_mut()) }
            .map_err(|_| "a signal's handler cannot be set")?;
        // SAFETY: all zero is a valid event.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal::NUMBER;
        // SAFETY: takes no arguments.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        let mut timer = ptr::null_mut();
        // SAFETY: a valid event, and a place for the timer.
        let made =
            unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        match made {
            0 => Ok(Self {
                clock,
                signal,
                timer,
            }),
            _ => Err("a timer that sends signals cannot be made"),
        }
    }
}

impl OneShot for Alarm<'_> {
    fn set(&mut self, due: u64) -> u64 {
        let (due_ns, doubt) = convert(self.clock, due);
        let once = libc::itimerspec {
            it_interval: timespec(0),
            it_value: timespec(due_ns),
        };
        // SAFETY: a timer of ours, and a valid time.
        unsafe {
            libc::timer_settime(
                self.timer,
                libc::TIMER_ABSTIME,
                &raw const once,
                ptr::null_mut(),
            )
        };
        doubt
    }

    fn wait(&mut self, between: Wait) -> Arrival {
        self.signal.wait(between).arrival
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        // SAFETY: made in `open`, and used no more.
        unsafe { libc::timer_delete(self.timer) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::take_some;
    use super::*;
    use trapline_workloads::irq::Source;

    #[test]
    fn nothing_comes_before_it_is_due() {
        take_some(Source::Own, 100, tick, |between, interrupt| {
            assert!(
                interrupt.entered + interrupt.doubt >= interrupt.due,
                "{interrupt:?}"
            );
            assert_eq!(interrupt.found == Found::Halt, between == Wait::Halt);
        });
    }
}
