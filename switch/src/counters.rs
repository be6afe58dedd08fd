//! Counters of a port. The engine writes them, all threads read them.

use crate::ring::Fault;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The reason why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// It is shorter than an Ethernet header, or longer than any frame.
    Length,
    /// Its source is the address of a group, or zero.
    Source,
    /// Its source is the fixed address of another port, or its port has a fixed address that is not its source.
    Spoofed,
    /// Its destination is behind an isolated port, and so is its source.
    Isolated,
    /// Bridges do not forward frames to this destination.
    LinkLocal,
    /// Its destination is behind the port from which it came.
    SamePort,
    /// The receiver is not connected.
    Down,
    /// The receiver has no buffer.
    NoBuffer,
    /// The receiver's buffers are too short, or of too many descriptors.
    TooLong,
    /// The kernel does not take it for a tap: it is longer than the MTU, or its memory is gone.
    Refused,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 10] = [
        Self::Length,
        Self::Source,
        Self::Spoofed,
        Self::Isolated,
        Self::LinkLocal,
        Self::SamePort,
        Self::Down,
        Self::NoBuffer,
        Self::TooLong,
        Self::Refused,
    ];
}

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    #[inline]
    pub fn add(&self, count: u64) {
        // One thread writes: no need for an atomic addition.
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(count);
        self.0.store(sum, Ordering::Relaxed);
    }

    /// Returns its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of a port, as its guest sees it.
#[derive(Debug, Default)]
pub struct Counters {
    /// Frames and bytes that the guest has sent.
    pub sent: [Counter; 2],
    /// Frames and bytes that it has got.
    pub received: [Counter; 2],
    /// Frames from the guest that were dropped before a receiver was known, and those to the guest, by reason.
    pub dropped: [Counter; Reason::ALL.len()],
    /// Times that both directions were connected.
    pub connections: Counter,
    /// Notifications to the guest.
    pub notifications: Counter,
    /// Addresses for which there was no room.
    pub not_learnt: Counter,
    /// Errors after which the port was stopped.
    pub faults: Counter,
    /// The last one.
    fault: Mutex<Option<Fault>>,
    /// The time before which the port is not started again.
    rest: Mutex<Option<Instant>>,
}

impl Counters {
    /// Counts a dropped frame.
    #[inline]
    pub fn drop(&self, reason: Reason) {
        self.dropped[reason as usize].add(1);
    }

    /// Counts an error.
    pub fn fail(&self, fault: Fault) {
        self.faults.add(1);
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
    }

    /// Delays the next start of the port.
    pub fn delay(&self, rest: Duration) {
        *self.rest.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + rest);
    }

    /// Returns the time until the port may be started again.
    pub fn rest(&self) -> Duration {
        let rest = *self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = rest.map(|end| end.saturating_duration_since(Instant::now()));
        rest.unwrap_or_default()
    }

    /// Returns the last error.
    pub fn fault(&self) -> Option<Fault> {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of frames dropped for a reason.
    pub fn dropped(&self, reason: Reason) -> u64 {
        self.dropped[reason as usize].get()
    }
}
