//! Device statistics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters, updated by any thread.
#[derive(Debug, Default)]
pub struct Counters {
    wakes: AtomicU64,
    interrupts: AtomicU64,
    requests: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
    failures: AtomicU64,
}

/// Values of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Notifications by the driver.
    pub wakes: u64,
    /// Interrupts raised.
    pub interrupts: u64,
    /// Completed requests.
    pub requests: u64,
    /// Bytes to the guest.
    pub read: u64,
    /// Bytes from the guest.
    pub written: u64,
    /// Failed requests and driver errors.
    pub failures: u64,
}

impl Counters {
    /// Counts a notification.
    pub fn wake(&self) {
        add(&self.wakes, 1);
    }

    /// Counts an interrupt.
    pub fn interrupt(&self) {
        add(&self.interrupts, 1);
    }

    /// Counts a completed request with its bytes to and from the guest.
    pub fn request(&self, read: usize, written: usize) {
        add(&self.requests, 1);
        add(&self.read, read as u64);
        add(&self.written, written as u64);
    }

    /// Counts a failure.
    pub fn fail(&self) {
        add(&self.failures, 1);
    }

    /// Returns the values.
    pub fn counts(&self) -> Counts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            wakes: load(&self.wakes),
            interrupts: load(&self.interrupts),
            requests: load(&self.requests),
            read: load(&self.read),
            written: load(&self.written),
            failures: load(&self.failures),
        }
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}
