//! What a device has done.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counted by whoever does it, read by whoever asks.
#[derive(Debug, Default)]
pub struct Counters {
    wakes: AtomicU64,
    interrupts: AtomicU64,
    requests: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
    failures: AtomicU64,
}

/// What was counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often its thread was woken by the driver.
    pub wakes: u64,
    /// Interrupts that it raised.
    pub interrupts: u64,
    /// Requests that it gave back.
    pub requests: u64,
    /// Bytes that the guest got.
    pub read: u64,
    /// Bytes that the guest gave.
    pub written: u64,
    /// Requests that failed, and drivers that broke it.
    pub failures: u64,
}

impl Counters {
    /// The driver woke the device's thread.
    pub fn wake(&self) {
        add(&self.wakes, 1);
    }

    /// The device interrupted.
    pub fn interrupt(&self) {
        add(&self.interrupts, 1);
    }

    /// A request went back; the guest got and gave so many bytes.
    pub fn request(&self, read: usize, written: usize) {
        add(&self.requests, 1);
        add(&self.read, read as u64);
        add(&self.written, written as u64);
    }

    /// Something failed.
    pub fn fail(&self) {
        add(&self.failures, 1);
    }

    /// What was counted so far.
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
