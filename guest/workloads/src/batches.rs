//! Batches of work of another CPU.

use crate::semaphore::{Cpu, Semaphore};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The part of another CPU in an operation: batches that the first CPU begins, and whose results it gets.
pub struct Batches {
    /// Posted at the begin of each batch, and at the end of the operation.
    start: Semaphore,
    /// Posted when the other CPU has finished a batch.
    done: Semaphore,
    /// Number of operations of the batch; 0 ends the other CPU's part.
    size: AtomicU64,
    /// Result of the last batch.
    result: AtomicU64,
    /// Duration of polling before a wait blocks, in ticks.
    poll: u64,
}

impl Batches {
    /// Creates the part of a CPU that polls for `poll` ticks before it blocks.
    pub const fn new(poll: u64) -> Self {
        Self {
            start: Semaphore::new(0),
            done: Semaphore::new(0),
            size: AtomicU64::new(0),
            result: AtomicU64::new(0),
            poll,
        }
    }

    /// Begins a batch of the other CPU.
    pub fn begin(&self, cpu: &dyn Cpu, size: u64) {
        self.size.store(size, Relaxed);
        self.start.post(cpu);
    }

    /// Waits for the end of a batch. Returns its result.
    pub fn finish(&self, cpu: &dyn Cpu) -> u64 {
        self.done.wait(cpu, self.poll);
        self.result.load(Relaxed)
    }

    /// Ends the part of the other CPU.
    pub fn stop(&self, cpu: &dyn Cpu) {
        self.begin(cpu, 0);
    }

    /// Calls `batch` on the other CPU with the size of each batch, and keeps its result.
    #[inline(always)]
    pub fn serve(&self, cpu: &dyn Cpu, mut batch: impl FnMut(u64) -> u64) {
        loop {
            self.start.wait(cpu, self.poll);
            match self.size.load(Relaxed) {
                0 => return,
                size => self.result.store(batch(size), Relaxed),
            }
            self.done.post(cpu);
        }
    }
}
