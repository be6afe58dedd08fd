//! The translation block that a machine executes, and how many of its instructions began.

use std::ptr::{from_ref, null_mut, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;

/// The block that executes. Only one thread changes it.
pub(crate) struct CurrentBlock<B: 'static> {
    /// Number of instructions that began.
    executed: OnceLock<&'static AtomicU64>,
    block: AtomicPtr<B>,
    /// Value of `executed` when the block began.
    executed_before: AtomicU64,
}

impl<B> CurrentBlock<B> {
    /// Returns the state before the first block.
    pub const fn new() -> Self {
        Self {
            executed: OnceLock::new(),
            block: AtomicPtr::new(null_mut()),
            executed_before: AtomicU64::new(0),
        }
    }

    /// Sets the number that the emulator increments when an instruction of a block begins. Only the first call has an
    /// effect.
    pub fn set_executed(&self, executed: &'static AtomicU64) {
        let _ = self.executed.set(executed);
    }

    /// Returns true if the number is set.
    pub fn is_counted(&self) -> bool {
        self.executed.get().is_some()
    }

    /// Returns the number of instructions that began.
    pub fn executed(&self) -> u64 {
        let executed = self.executed.get();
        executed.map_or(0, |executed| executed.load(Relaxed))
    }

    /// Records that `block` begins. Returns the one before it, and how many of its instructions began.
    pub fn begin(&self, block: &'static B) -> Option<(&'static B, u64)> {
        self.replace(from_ref(block).cast_mut())
    }

    /// Records that another instruction than those of blocks is executed. Returns as [`Self::begin`] does.
    pub fn leave(&self) -> Option<(&'static B, u64)> {
        self.replace(null_mut())
    }

    fn replace(&self, block: *mut B) -> Option<(&'static B, u64)> {
        let before = NonNull::new(self.block.load(Relaxed));
        self.block.store(block, Relaxed);
        let now = self.executed();
        let executed = now - self.executed_before.load(Relaxed);
        self.executed_before.store(now, Relaxed);
        // SAFETY: only references that live as long as the program are stored there.
        before.map(|before| (unsafe { before.as_ref() }, executed))
    }
}
