//! Why vCPUs came out of the guest.

use std::sync::atomic::{AtomicU64, Ordering};

/// The exits of one vCPU, which alone counts them.
#[derive(Debug, Default)]
pub struct Exits {
    port: AtomicU64,
    mmio: AtomicU64,
    hypercall: AtomicU64,
    other: AtomicU64,
}

/// A cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A port.
    Port,
    /// A register in memory.
    Mmio,
    /// A call that the kernel did not answer.
    Hypercall,
    /// Anything else.
    Other,
}

/// What was counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitCounts {
    /// Accesses to ports.
    pub port: u64,
    /// Accesses to registers in memory.
    pub mmio: u64,
    /// Calls that the kernel did not answer.
    pub hypercall: u64,
    /// Any others: recalls, and the last one.
    pub other: u64,
}

impl ExitCounts {
    /// All of them.
    pub fn all(&self) -> u64 {
        self.port + self.mmio + self.hypercall + self.other
    }

    /// Of two vCPUs.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        Self {
            port: self.port + more.port,
            mmio: self.mmio + more.mmio,
            hypercall: self.hypercall + more.hypercall,
            other: self.other + more.other,
        }
    }
}

impl Exits {
    /// One more.
    #[inline(always)]
    pub fn count(&self, cause: Cause) {
        let count = match cause {
            Cause::Port => &self.port,
            Cause::Mmio => &self.mmio,
            Cause::Hypercall => &self.hypercall,
            Cause::Other => &self.other,
        };
        // Nobody else writes it: nothing is lost between the two.
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn counts(&self) -> ExitCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ExitCounts {
            port: load(&self.port),
            mmio: load(&self.mmio),
            hypercall: load(&self.hypercall),
            other: load(&self.other),
        }
    }
}
