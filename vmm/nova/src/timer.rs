//! The timer of the vCPU: a thread of higher priority that waits for a deadline and makes the vCPU exit.

use crate::hypercall::{recall, up, wait, Selector};
use core::sync::atomic::{AtomicU64, Ordering};

/// Semaphore for a new deadline, and the vCPU.
pub const SEMAPHORE: Selector = 87;
pub const VCPU: Selector = 84;
/// Semaphore of the halted vCPU, which nothing increments.
pub const HALT_SEMAPHORE: Selector = 88;

/// Deadline in ticks of the TSC, or 0.
static DEADLINE: AtomicU64 = AtomicU64::new(0);

/// Sets the deadline.
pub fn set(deadline: Option<u64>) {
    let deadline = deadline.unwrap_or(0);
    if DEADLINE.swap(deadline, Ordering::SeqCst) != deadline {
        up(SEMAPHORE);
    }
}

/// Waits until `deadline`.
pub fn sleep(deadline: u64) {
    while !wait(HALT_SEMAPHORE, deadline) {}
}

/// The thread.
pub extern "C" fn run() -> ! {
    loop {
        let is_expired = wait(SEMAPHORE, DEADLINE.load(Ordering::SeqCst));
        if is_expired {
            DEADLINE.store(0, Ordering::SeqCst);
            recall(VCPU);
        }
    }
}
