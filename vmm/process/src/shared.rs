//! State of a VM that its vCPU shares.

use crate::memory::Memory;
use crate::signals::Lines;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// State shared with the vCPU.
#[derive(Default)]
pub(crate) struct Shared {
    memory: Mutex<Memory>,
    pub lines: Arc<Lines>,
    /// Number of changes after which the vCPU has to drop its mappings.
    changes: AtomicU64,
}

impl Shared {
    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        // A poisoned map is still consistent.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Makes the vCPU drop its mappings before the guest continues.
    pub fn change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.lines.notify();
    }
}
