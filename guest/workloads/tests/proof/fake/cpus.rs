//! Threads as the CPUs of the fake kernel.

use super::Defect;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::thread;
use trapline_workloads::semaphore::Cpu;
use trapline_workloads::{Cpus, Reason};

/// Four threads, and a page that all of them read.
pub struct Threads {
    page: AtomicU64,
    interrupts: AtomicU64,
    defect: Defect,
}

impl Threads {
    pub fn new(defect: Defect) -> Self {
        Self {
            page: AtomicU64::new(0),
            interrupts: AtomicU64::new(0),
            defect,
        }
    }
}

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

    fn page(&self) -> Result<&'static AtomicU64, Reason> {
        // SAFETY: never released, see `cpus` of the fake.
        Ok(unsafe { AtomicU64::from_ptr(self.page.as_ptr()) })
    }

    fn remap(&self, value: u64) -> Result<(), Reason> {
        match self.defect {
            Defect::NoMemory if value == 0 => Err("there is no memory for a page"),
            Defect::KeepMapping if value > 2 => Err("the page cannot be mapped"),
            Defect::KeepTranslation if value > 2 => Ok(()),
            _ => {
                self.page.store(value, SeqCst);
                Ok(())
            }
        }
    }

    fn interrupt(&self) {
        // Every tenth is lost.
        let sent = self.interrupts.fetch_add(1, SeqCst);
        if self.defect == Defect::LoseInterrupt && sent % 10 == 9 {
            self.interrupts.fetch_sub(1, SeqCst);
        }
    }

    fn interrupts(&self) -> Result<u64, Reason> {
        Ok(self.interrupts.load(SeqCst))
    }

    fn reset(&self) -> Result<(), Reason> {
        Ok(())
    }

    fn restart(&self) -> Result<(), Reason> {
        match (self.defect, self.interrupts.fetch_add(1, SeqCst)) {
            (Defect::NeverStart, 1..) => Err("a CPU did not start"),
            _ => Ok(()),
        }
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

    fn page(&self) -> Result<&'static AtomicU64, Reason> {
        static PAGE: AtomicU64 = AtomicU64::new(0);
        Ok(&PAGE)
    }

    fn remap(&self, _: u64) -> Result<(), Reason> {
        Ok(())
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
