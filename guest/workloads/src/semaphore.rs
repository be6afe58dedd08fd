//! Counting semaphore between CPUs.
//!
//! The algorithm is that of POSIX semaphores on futexes (glibc, nptl/sem_waitcommon.c): a post without a waiter is two
//! accesses to memory, and only a waiter that found no post blocks. [`Cpu`] blocks and wakes: the image halts its CPU
//! and sends an interrupt, Linux has the futex.

use crate::clock::ticks;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// CPU, or thread, that blocks and wakes others.
pub trait Cpu {
    /// Blocks while `word` is `seen`. May return earlier.
    fn block(&self, word: &AtomicU32, seen: u32);

    /// Wakes one of the CPUs that are blocked at `word`, which has changed.
    fn wake(&self, word: &AtomicU32);
}

/// Counting semaphore, in cache lines of its own.
#[repr(align(128))]
pub struct Semaphore {
    count: AtomicU32,
    waiters: AtomicU32,
}

impl Semaphore {
    /// Creates a semaphore with this count.
    pub const fn new(count: u32) -> Self {
        Self {
            count: AtomicU32::new(count),
            waiters: AtomicU32::new(0),
        }
    }

    /// Increments the count, and wakes a blocked CPU.
    #[inline(always)]
    pub fn post(&self, cpu: &dyn Cpu) {
        self.count.fetch_add(1, SeqCst);
        if self.waiters.load(SeqCst) != 0 {
            cpu.wake(&self.count);
        }
    }

    /// Waits until the count is not 0, and decrements it. Polls for `poll_ticks` before it blocks.
    #[inline(always)]
    pub fn wait(&self, cpu: &dyn Cpu, poll_ticks: u64) {
        if !self.try_take() && !self.poll(poll_ticks) {
            self.block(cpu);
        }
    }

    #[inline(always)]
    fn try_take(&self) -> bool {
        let mut count = self.count.load(SeqCst);
        while count != 0 {
            match self
                .count
                .compare_exchange_weak(count, count - 1, SeqCst, SeqCst)
            {
                Ok(_) => return true,
                Err(now) => count = now,
            }
        }
        false
    }

    fn poll(&self, poll_ticks: u64) -> bool {
        if poll_ticks == 0 {
            return false;
        }
        let start = ticks();
        loop {
            core::hint::spin_loop();
            if self.try_take() {
                return true;
            }
            if ticks() - start >= poll_ticks {
                return false;
            }
        }
    }

    /// The number of waiters is written before the count is compared, and a post writes the count before it reads the
    /// number, so that one of both sees the other.
    fn block(&self, cpu: &dyn Cpu) {
        self.waiters.fetch_add(1, SeqCst);
        while !self.try_take() {
            cpu.block(&self.count, 0);
        }
        self.waiters.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
pub mod testing {
    //! A thread as a CPU.

    use super::*;
    use std::thread;

    /// Thread that blocks by yielding.
    pub struct Yielding;

    impl Cpu for Yielding {
        fn block(&self, word: &AtomicU32, seen: u32) {
            while word.load(SeqCst) == seen {
                thread::yield_now();
            }
        }

        fn wake(&self, _: &AtomicU32) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::thread;
    use std::vec::Vec;

    /// Counts calls. A block returns at once, as the trait allows.
    #[derive(Default)]
    struct Counting {
        blocks: AtomicU64,
        wakes: AtomicU64,
    }

    impl Cpu for Counting {
        fn block(&self, word: &AtomicU32, seen: u32) {
            assert_eq!(seen, 0);
            // Stands for the other CPU, which posts.
            if self.blocks.fetch_add(1, SeqCst) == 2 {
                word.fetch_add(1, SeqCst);
            }
        }

        fn wake(&self, _: &AtomicU32) {
            self.wakes.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn posts_are_counted_and_wake_no_one_without_a_waiter() {
        let (cpu, semaphore) = (Counting::default(), Semaphore::new(1));
        semaphore.post(&cpu);
        (0..2).for_each(|_| semaphore.wait(&cpu, 0));
        assert!(!semaphore.try_take());
        assert_eq!(cpu.blocks.load(SeqCst) + cpu.wakes.load(SeqCst), 0);
    }

    #[test]
    fn a_wait_blocks_until_there_is_a_post_and_polls_before() {
        let (cpu, semaphore) = (Counting::default(), Semaphore::new(0));
        let start = ticks();
        semaphore.wait(&cpu, 100_000);
        assert!(ticks() - start >= 100_000);
        assert_eq!(
            cpu.blocks.load(SeqCst),
            3,
            "blocked again after early returns"
        );
        assert_eq!(semaphore.waiters.load(SeqCst), 0);
    }

    #[test]
    fn a_post_wakes_a_waiter() {
        let (cpu, semaphore) = (Counting::default(), Semaphore::new(0));
        semaphore.waiters.store(1, SeqCst);
        semaphore.post(&cpu);
        assert_eq!(cpu.wakes.load(SeqCst), 1);
    }

    /// Blocks as futexes do, by sleeping of the thread.
    struct Parking(thread::Thread);

    impl Cpu for Parking {
        fn block(&self, word: &AtomicU32, seen: u32) {
            if word.load(SeqCst) == seen {
                thread::park();
            }
        }

        fn wake(&self, _: &AtomicU32) {
            self.0.unpark();
        }
    }

    #[test]
    fn no_post_is_lost_between_threads() {
        const POSTS: u32 = 20_000;
        let semaphores = [Semaphore::new(0), Semaphore::new(0)];
        let main = thread::current();
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let cpu = Parking(main.clone());
                (0..POSTS).for_each(|_| {
                    semaphores[0].wait(&cpu, 0);
                    semaphores[1].post(&cpu);
                });
            });
            let cpu = Parking(other.thread().clone());
            (0..POSTS).for_each(|_| {
                semaphores[0].post(&cpu);
                semaphores[1].wait(&cpu, 0);
            });
        });
        let left: Vec<_> = semaphores.iter().map(|it| it.count.load(SeqCst)).collect();
        assert_eq!(left, [0, 0]);
    }
}
