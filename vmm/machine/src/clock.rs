//! Clocks: the host's TSC, which stamps events, and CLOCK_MONOTONIC.

use std::arch::x86_64::_rdtsc;
use std::time::Duration;

/// Reads the TSC.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction, and Linux allows it.
    unsafe { _rdtsc() }
}

/// Returns `CLOCK_MONOTONIC`, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let mut now = timespec(0);
    // SAFETY: the kernel writes one timespec; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps until a time of `CLOCK_MONOTONIC`, in nanoseconds, or until a signal.
pub fn sleep_until(ns: u64) {
    let due = timespec(ns);
    // SAFETY: the request is valid, and the remainder is not requested.
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

/// A simultaneous reading of both clocks, to calibrate the TSC.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    ticks: u64,
    ns: u64,
}

/// Shortest calibration interval: an error of 100 ns in a reading is then 4 ppm.
const LEAST: Duration = Duration::from_millis(50);

impl Reference {
    /// Reads both clocks.
    pub fn now() -> Self {
        Self {
            ticks: ticks(),
            ns: monotonic_ns(),
        }
    }

    /// Returns TSC ticks per nanosecond since this reading; waits for the shortest interval.
    pub fn ticks_per_ns(&self) -> f64 {
        sleep_until(self.ns + LEAST.as_nanos() as u64);
        let now = Self::now();
        let ns = now.ns.saturating_sub(self.ns).max(1);
        now.ticks.wrapping_sub(self.ticks) as f64 / ns as f64
    }
}
