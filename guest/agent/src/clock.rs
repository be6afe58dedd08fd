//! Ticks against the kernel's clock: how fast they go, and what a moment of the one
//! is on the other.

use std::time::{Duration, Instant};
use trapline_workloads::{ticks, Wake};

/// Ticks against the kernel's clock.
pub struct TickClock {
    began: (u64, Instant),
    rate: Option<Rate>,
}

#[derive(Clone, Copy)]
struct Rate {
    per_ns: f64,
    /// How long it was watched.
    over: Duration,
}

/// Time between two readings that is enough for `timer-wake`: an error of 100 ns in
/// either is then below 10 ppm.
pub const CALIBRATION: Duration = Duration::from_millis(20);

/// The same for `irq`: below 1 ppm.
pub const PRECISELY: Duration = Duration::from_millis(250);

/// How wrong a reading of both clocks may be, in nanoseconds.
const READING_ERROR_NS: f64 = 100.0;

/// What the due time of `timer-wake` is rounded down by, as a share of the time asleep.
const CALIBRATION_ERROR: f64 = 20e-6;

/// Both clocks at one moment.
#[derive(Clone, Copy)]
pub struct Moment {
    /// Ours, in ticks.
    pub ticks: u64,
    /// The kernel's, in nanoseconds.
    pub ns: u64,
    /// By how many ticks it was not one moment.
    pub doubt: u64,
}

impl Moment {
    /// Now.
    pub fn now() -> Self {
        let before = ticks();
        let ns = monotonic_ns();
        let doubt = ticks() - before;
        Self {
            ticks: before + doubt / 2,
            ns,
            doubt,
        }
    }
}

/// `CLOCK_MONOTONIC`, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a place for the answer; every kernel has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// As the kernel takes it.
pub fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

/// Sleeps until a moment of `CLOCK_MONOTONIC`, through signals if there are any.
pub fn sleep_until(ns: u64) {
    let due = timespec(ns);
    // SAFETY: the request is valid, and no remainder is asked for.
    let sleep = || unsafe {
        let absolute = libc::TIMER_ABSTIME;
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            absolute,
            &raw const due,
            std::ptr::null_mut(),
        )
    };
    while sleep() == libc::EINTR {}
}

impl TickClock {
    /// A clock whose rate is not known yet.
    pub fn start() -> Self {
        Self {
            began: (ticks(), Instant::now()),
            rate: None,
        }
    }

    /// Learns the rate from at least so much time, waiting for it if need be.
    pub fn calibrate(&mut self, over: Duration) {
        if self.rate.is_some_and(|rate| rate.over >= over) {
            return;
        }
        let (first, began) = self.began;
        if let Some(rest) = over.checked_sub(began.elapsed()) {
            std::thread::sleep(rest);
        }
        let (last, over) = (ticks(), began.elapsed());
        let per_ns = (last - first) as f64 / over.as_nanos() as f64;
        self.rate = Some(Rate { per_ns, over });
    }

    fn per_ns(&self) -> f64 {
        self.rate.map_or(1.0, |rate| rate.per_ns)
    }

    /// So many nanoseconds in ticks.
    pub fn ticks(&self, ns: u64) -> u64 {
        (ns as f64 * self.per_ns()) as u64
    }

    /// So many ticks in nanoseconds.
    pub fn ns(&self, ticks: u64) -> u64 {
        (ticks as f64 / self.per_ns()) as u64
    }

    /// By how much a span of ticks may be wrong when it is converted.
    pub fn doubt(&self, ticks: u64) -> u64 {
        let over = self.rate.map_or(CALIBRATION, |rate| rate.over);
        (ticks as f64 * 2.0 * READING_ERROR_NS / over.as_nanos() as f64).ceil() as u64
    }

    /// Sleeps at least `ticks_ahead`. The due time is rounded down by the error of
    /// the calibration, so that a punctual wake is not taken for an early one.
    pub fn sleep(&self, ticks_ahead: u64) -> Wake {
        let per_ns = self.per_ns();
        let nanoseconds = (ticks_ahead as f64 / per_ns).ceil() as i64;
        let request = libc::timespec {
            tv_sec: 0,
            tv_nsec: nanoseconds.min(999_999_999),
        };
        let before = ticks();
        // SAFETY: the request is valid and no remainder is asked for.
        unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                0,
                &raw const request,
                std::ptr::null_mut(),
            )
        };
        let woke = ticks();
        let asleep = request.tv_nsec as f64 * per_ns * (1.0 - CALIBRATION_ERROR);
        Wake {
            due: before + asleep as u64,
            woke,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_the_same_on_both_clocks() {
        let mut clock = TickClock::start();
        clock.calibrate(PRECISELY);
        let first = Moment::now();
        sleep_until(first.ns + 5_000_000);
        let last = Moment::now();
        assert!(last.ns >= first.ns + 5_000_000);
        let span = last.ticks - first.ticks;
        let told = clock.ticks(last.ns - first.ns);
        let error = first.doubt + last.doubt + clock.doubt(span) + 2;
        assert!(told.abs_diff(span) <= error, "{told} {span} {error}");
        assert!(clock.ns(told).abs_diff(last.ns - first.ns) <= 2);
    }

    #[test]
    fn a_rate_is_learnt_anew_only_from_more_time() {
        let mut clock = TickClock::start();
        clock.calibrate(CALIBRATION);
        let roughly = clock.doubt(1_000_000);
        clock.calibrate(PRECISELY);
        assert!(clock.doubt(1_000_000) * 5 < roughly);
        let before = Instant::now();
        clock.calibrate(CALIBRATION);
        assert!(before.elapsed() < CALIBRATION);
    }
}
