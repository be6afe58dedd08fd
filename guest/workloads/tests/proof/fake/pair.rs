//! Threads as the CPUs of the fake kernel.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;
use trapline_workloads::semaphore::Cpu;
use trapline_workloads::{CpuPair, Reason};

/// Two threads.
pub struct Threads;

/// A second CPU that does not run.
pub struct NoThread;

impl CpuPair for Threads {
    fn run_beside(
        &self,
        second: &(dyn Fn(&dyn Cpu) + Sync),
        first: &mut dyn FnMut(&dyn Cpu),
    ) -> Result<(), Reason> {
        thread::scope(|scope| {
            scope.spawn(|| second(&Yielding));
            first(&Yielding);
        });
        Ok(())
    }
}

impl CpuPair for NoThread {
    fn run_beside(
        &self,
        _: &(dyn Fn(&dyn Cpu) + Sync),
        _: &mut dyn FnMut(&dyn Cpu),
    ) -> Result<(), Reason> {
        Err("the second CPU does not run")
    }
}

/// Thread that blocks by yielding.
struct Yielding;

impl Cpu for Yielding {
    fn block(&self, word: &AtomicU32, seen: u32) {
        while word.load(SeqCst) == seen {
            thread::yield_now();
        }
    }

    fn wake(&self, _: &AtomicU32) {}
}
