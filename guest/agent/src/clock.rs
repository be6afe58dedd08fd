//! Conversion between TSC ticks and the kernel's clock.

use std::time::Duration;
use trapline_workloads::{ticks, Wake};

/// Converter between TSC ticks and the kernel's clock.
pub struct TickClock {
    began: Moment,
    rate: Option<Rate>,
}

#[derive(Clone, Copy)]
struct Rate {
    /// Ticks per nanosecond.
    per_ns: f64,
    /// Duration of the calibration.
    over: Duration,
    /// Uncertainty of the rate, as a share of it: that of both readings over the span.
    relative_uncertainty: f64,
}

/// Duration of the calibration for `timer-wake`: an error of 100 ns per reading is below 10 ppm.
pub const CALIBRATION: Duration = Duration::from_millis(20);

/// Duration of the calibration for `irq`: below 1 ppm.
pub const PRECISE_CALIBRATION: Duration = Duration::from_millis(250);

/// Readings of both clocks of which the calibration takes the least uncertain one, so that an
/// interrupt in one of them does not count.
const READINGS: usize = 8;

/// Reduction of the due time of `timer-wake`, as a share of the sleep.
const CALIBRATION_ERROR: f64 = 20e-6;

/// Simultaneous reading of both clocks.
#[derive(Clone, Copy)]
pub struct Moment {
    /// TSC.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub ns: u64,
    /// Uncertainty, in ticks.
    pub uncertainty: u64,
}

impl Moment {
    /// Reads both clocks several times and returns the least uncertain reading.
    fn precise() -> Self {
        let readings = (0..READINGS).map(|_| Self::now());
        let best = readings.min_by_key(|reading| reading.uncertainty);
        best.unwrap_or_else(Self::now)
    }

    /// Reads both clocks.
    pub fn now() -> Self {
        let before = ticks();
        let ns = monotonic_ns();
        let uncertainty = ticks() - before;
        Self {
            ticks: before + uncertainty / 2,
            ns,
            uncertainty,
        }
    }
}

/// Reads `CLOCK_MONOTONIC`, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a place for the answer; every kernel has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Converts nanoseconds to a `timespec`.
pub fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

/// Sleeps until `ns` on `CLOCK_MONOTONIC`, despite signals.
pub fn sleep_until(ns: u64) {
    let due = timespec(ns);
    // SAFETY: the request is valid, and no remainder is requested.
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
    /// Creates a converter without a known rate.
    pub fn start() -> Self {
        Self {
            began: Moment::precise(),
            rate: None,
        }
    }

    /// Calibrates the rate over at least this time; sleeps if necessary.
    pub fn calibrate(&mut self, over: Duration) {
        if self.rate.is_some_and(|rate| rate.over >= over) {
            return;
        }
        let first = self.began;
        sleep_until(first.ns + over.as_nanos() as u64);
        let last = Moment::precise();
        let (span, over) = (last.ticks - first.ticks, last.ns - first.ns);
        self.rate = Some(Rate {
            per_ns: span as f64 / over as f64,
            over: Duration::from_nanos(over),
            relative_uncertainty: (first.uncertainty + last.uncertainty) as f64 / span as f64,
        });
    }

    fn per_ns(&self) -> f64 {
        self.rate.map_or(1.0, |rate| rate.per_ns)
    }

    /// Converts nanoseconds to ticks.
    pub fn ticks(&self, ns: u64) -> u64 {
        (ns as f64 * self.per_ns()) as u64
    }

    /// Converts ticks to nanoseconds.
    pub fn ns(&self, ticks: u64) -> u64 {
        (ticks as f64 / self.per_ns()) as u64
    }

    /// Returns the uncertainty of the conversion of a span of ticks.
    pub fn uncertainty(&self, ticks: u64) -> u64 {
        let uncertainty = self.rate.map_or(1.0, |rate| rate.relative_uncertainty);
        (ticks as f64 * uncertainty).ceil() as u64
    }

    /// Sleeps at least `ticks_ahead`. The due time is reduced by the error of the calibration, so
    /// that a punctual wake-up does not seem early.
    pub fn sleep(&self, ticks_ahead: u64) -> Wake {
        let per_ns = self.per_ns();
        let nanoseconds = (ticks_ahead as f64 / per_ns).ceil() as i64;
        let request = libc::timespec {
            tv_sec: 0,
            tv_nsec: nanoseconds.min(999_999_999),
        };
        let before = ticks();
        // SAFETY: the request is valid and no remainder is requested.
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
    fn conversion_is_within_its_uncertainty() {
        let mut clock = TickClock::start();
        clock.calibrate(PRECISE_CALIBRATION);
        let first = Moment::now();
        sleep_until(first.ns + 5_000_000);
        let last = Moment::now();
        assert!(last.ns >= first.ns + 5_000_000);
        let span = last.ticks - first.ticks;
        let converted = clock.ticks(last.ns - first.ns);
        let error = first.uncertainty + last.uncertainty + clock.uncertainty(span) + 2;
        assert!(
            converted.abs_diff(span) <= error,
            "{converted} {span} {error}"
        );
        assert!(clock.ns(converted).abs_diff(last.ns - first.ns) <= 2);
    }

    #[test]
    fn calibration_is_repeated_only_for_a_longer_time() {
        let mut clock = TickClock::start();
        clock.calibrate(CALIBRATION);
        let roughly = clock.uncertainty(1_000_000);
        clock.calibrate(PRECISE_CALIBRATION);
        assert!(clock.uncertainty(1_000_000) < roughly);
        let calibrated = |clock: &TickClock| clock.rate.map(|rate| rate.over);
        let before = calibrated(&clock);
        clock.calibrate(CALIBRATION);
        assert_eq!(calibrated(&clock), before);
    }
}
