//! Threads as the CPUs of the fake kernel.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;
use trapline_workloads::semaphore::Cpu;
use trapline_workloads::{Cpus, Reason};

/// Four threads.
pub struct Threads;

/// A second CPU that does not run.
pub struct NoThread;

impl Cpus for Threads {
    fn count(&self) -> u32 {
        4
    }

    fn run_beside(
        &self,
        count: u32,
        others: &(dyn Fn(u32, &dyn Cpu) + Sync),
        first: &mut dyn FnMut(&dyn Cpu),
    ) -> Result<(), Reason> {
        thread::scope(|scope| {
            for number in 1..count {
                scope.spawn(move || others(number, &Yielding));
            }
            first(&Yielding);
        });
        Ok(())
    }

    fn wakes(&self) -> u64 {
        0
    }
}

impl Cpus for NoThread {
    fn count(&self) -> u32 {
        2
    }

    fn run_beside(
        &self,
        _: u32,
        _: &(dyn Fn(u32, &dyn Cpu) + Sync),
        _: &mut dyn FnMut(&dyn Cpu),
    ) -> Result<(), Reason> {
        Err("the second CPU does not run")
    }

    fn wakes(&self) -> u64 {
        0
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
