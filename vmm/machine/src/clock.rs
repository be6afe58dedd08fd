//! Clocks: the host's time-stamp counter, which stamps events, and the kernel's.

use std::arch::x86_64::_rdtsc;
use std::time::Duration;

/// Ticks of the host's time-stamp counter.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction, and Linux allows it.
    unsafe { _rdtsc() }
}

/// `CLOCK_MONOTONIC`, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let mut now = timespec(0);
    // SAFETY: the kernel writes one timespec, and there is one; every kernel has this
    // clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps until a moment of `CLOCK_MONOTONIC`, in nanoseconds, or a signal.
pub fn sleep_until(ns: u64) {
    let due = timespec(ns);
    // SAFETY: the request is valid, and no remainder is asked for.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const due,
            std::ptr::null_mut(),
        )
    };
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

/// Where both clocks stood once, to learn how fast the one goes by the other.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    ticks: u64,
    ns: u64,
}

/// Least time for that: an error of 100 ns in either reading is then 4 ppm.
const LEAST: Duration = Duration::from_millis(50);

impl Reference {
    /// Now.
    pub fn now() -> Self {
        Self {
            ticks: ticks(),
            ns: monotonic_ns(),
        }
    }

    /// Ticks per nanosecond, from then to now; waits for a moment if that was just
    /// before.
    pub fn ticks_per_ns(&self) -> f64 {
        sleep_until(self.ns + LEAST.as_nanos() as u64);
        let now = Self::now();
        let ns = now.ns.saturating_sub(self.ns).max(1);
        now.ticks.wrapping_sub(self.ticks) as f64 / ns as f64
    }
}
