//! The thread to which the measured one yields, on the same CPU.

use crate::cpu::{affinity, pin_to_current_cpu, set_affinity};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::thread::JoinHandle;
use trapline_workloads::Reason;

/// Second thread. Dropping it ends and joins the thread and restores the affinity of the measured
/// thread.
pub struct SecondThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    cpus: libc::cpu_set_t,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    second_ran_last: AtomicBool,
    /// Number of turns of the second thread.
    turns: AtomicU64,
}

impl SecondThread {
    /// Starts it on the CPU of this thread.
    ///
    /// # Errors
    /// The threads cannot be pinned, or there is no second one.
    pub fn start() -> Result<Self, Reason> {
        let cpus = affinity().ok_or("the affinity of this process cannot be read")?;
        pin_to_current_cpu().ok_or("threads cannot be pinned to one CPU")?;
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .spawn(move || theirs.yield_until_stopped())
            .map_err(|_| "a second thread cannot be started")?;
        Ok(Self {
            shared,
            thread: Some(thread),
            cpus,
        })
    }

    /// Notes that the measured thread runs.
    #[inline(always)]
    pub fn note_turn_of_first(&self) {
        self.shared.second_ran_last.store(false, Relaxed);
    }

    /// Returns how often the second thread ran after the measured one.
    pub fn turns(&self) -> u64 {
        self.shared.turns.load(Relaxed)
    }
}

impl Shared {
    /// Only one of the two threads runs at a time, so plain loads and stores are exact.
    fn yield_until_stopped(&self) {
        while !self.stop.load(Relaxed) {
            if !self.second_ran_last.load(Relaxed) {
                self.second_ran_last.store(true, Relaxed);
                self.turns.store(self.turns.load(Relaxed) + 1, Relaxed);
            }
            sched_yield();
        }
    }
}

impl Drop for SecondThread {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ = thread.join();
        }
        set_affinity(&self.cpus);
    }
}

/// Lets another thread of this CPU run.
#[inline(always)]
pub fn sched_yield() {
    // SAFETY: takes no arguments.
    unsafe { libc::sched_yield() };
}
