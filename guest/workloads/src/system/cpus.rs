//! CPUs of a system.

use super::Reason;
use crate::semaphore::Cpu;
use core::sync::atomic::AtomicU64;

/// CPUs, or threads that each run on one.
pub trait Cpus {
    /// Returns their number, at most [`trapline_abi::job::MOST_CPUS`].
    fn count(&self) -> u32;

    /// Runs `others` in `count - 1` other threads, with their number from 1, while `first` runs in this one, whose number is 0.
    /// Returns when all have returned. Thread `n` runs on CPU `n`, counted from 0 again after the last one; at most two share a CPU.
    ///
    /// # Errors
    /// The other CPUs cannot run; neither was called.
    fn run_beside(
        &self,
        count: u32,
        others: &(dyn Fn(u32, &dyn Cpu) + Sync),
        first: &mut dyn FnMut(&dyn Cpu),
    ) -> Result<(), Reason>;

    /// Returns how many interrupts between CPUs, or system calls, have woken a CPU so far.
    fn wakes(&self) -> u64;

    /// Returns the first word of a page that [`Self::remap`] changes.
    ///
    /// # Errors
    /// There is no memory for it.
    fn page(&self) -> Result<&'static AtomicU64, Reason>;

    /// Maps another frame at the address of [`Self::page`], whose first word is `value`. Returns when neither this CPU nor
    /// those of [`Self::run_beside`] can use the old translation.
    ///
    /// # Errors
    /// The page cannot be mapped.
    fn remap(&self, value: u64) -> Result<(), Reason>;
}
