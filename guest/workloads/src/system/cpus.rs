//! CPUs of a system.

use super::Reason;
use crate::semaphore::Cpu;
use core::sync::atomic::AtomicU64;

const ONLY_THE_IMAGE: Reason =
    "a Linux process cannot interrupt or start CPUs: choose an environment of the image";

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

    /// Interrupts the last CPU, which has nothing to do, and returns when its handler has run. Called only if
    /// [`Self::interrupts`] returns a number.
    fn interrupt(&self) {}

    /// Returns how many such interrupts have been handled so far.
    ///
    /// # Errors
    /// This system cannot send any.
    fn interrupts(&self) -> Result<u64, Reason> {
        Err(ONLY_THE_IMAGE)
    }

    /// Resets the last CPU, which has nothing to do.
    ///
    /// # Errors
    /// This system cannot.
    fn reset(&self) -> Result<(), Reason> {
        Err(ONLY_THE_IMAGE)
    }

    /// Starts the last CPU after [`Self::reset`]. Returns when it can take interrupts.
    ///
    /// # Errors
    /// It does not start.
    fn restart(&self) -> Result<(), Reason> {
        Err(ONLY_THE_IMAGE)
    }
}
