//! Exit counters of a vCPU.

use core::sync::atomic::{AtomicU64, Ordering};

/// A counter with one writer and any number of readers.
#[derive(Debug, Default)]
pub struct ExitCounter(AtomicU64);

impl ExitCounter {
    /// Adds one. Only the vCPU's thread writes, so no read-modify-write is needed.
    #[inline(always)]
    pub fn increment(&self) {
        let count = self.0.load(Ordering::Relaxed);
        self.0.store(count + 1, Ordering::Relaxed);
    }

    /// Returns the count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of one vCPU, written by its thread.
#[derive(Debug, Default)]
pub struct ExitCounters {
    /// Port accesses.
    pub port: ExitCounter,
    /// MMIO accesses.
    pub mmio: ExitCounter,
    /// Hypercalls.
    pub hypercall: ExitCounter,
    /// Halts, by `hlt` or by the idle port.
    pub halt: ExitCounter,
    /// Kicks and fatal exits.
    pub other: ExitCounter,
}

impl ExitCounters {
    /// Returns the current counts.
    pub fn counts(&self) -> ExitCounts {
        ExitCounts {
            port: self.port.get(),
            mmio: self.mmio.get(),
            hypercall: self.hypercall.get(),
            halt: self.halt.get(),
            other: self.other.get(),
        }
    }
}

/// Exit counts, see [`ExitCounters`].
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitCounts {
    pub port: u64,
    pub mmio: u64,
    pub hypercall: u64,
    pub halt: u64,
    pub other: u64,
}

impl ExitCounts {
    /// Returns the number of all exits.
    pub fn all(&self) -> u64 {
        self.port + self.mmio + self.hypercall + self.halt + self.other
    }
}

impl core::iter::Sum for ExitCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, one| Self {
            port: sum.port + one.port,
            mmio: sum.mmio + one.mmio,
            hypercall: sum.hypercall + one.hypercall,
            halt: sum.halt + one.halt,
            other: sum.other + one.other,
        })
    }
}
