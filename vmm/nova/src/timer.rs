//! The timer: a thread of higher priority that waits for the deadline of the vCPU's timer, and makes the vCPU exit, or
//! for the time of an action.

use crate::hypercall::{recall, up, wait, Selector};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Semaphore for a new deadline, and the vCPU.
pub const SEMAPHORE: Selector = 87;
pub const VCPU: Selector = 84;
/// Semaphore of the halted vCPU.
pub const HALT_SEMAPHORE: Selector = 88;

/// Deadlines in ticks of the TSC, or 0: of the vCPU and of the action.
static DEADLINE: AtomicU64 = AtomicU64::new(0);
static ACTION_TIME: AtomicU64 = AtomicU64::new(0);

type Action = Box<dyn FnOnce() + Send>;
static ACTION: AtomicPtr<Action> = AtomicPtr::new(core::ptr::null_mut());

/// Sets the deadline of the vCPU.
pub fn set(deadline: Option<u64>) {
    let deadline = deadline.unwrap_or(0);
    if DEADLINE.swap(deadline, Ordering::SeqCst) != deadline {
        up(SEMAPHORE);
    }
}

/// Calls `action` at `time`, in place of an action that has not been called yet.
pub fn call_at(time: u64, action: Action) {
    let action = Box::into_raw(Box::new(action));
    take(ACTION.swap(action, Ordering::SeqCst));
    ACTION_TIME.store(time, Ordering::SeqCst);
    up(SEMAPHORE);
}

fn take(action: *mut Action) -> Option<Box<Action>> {
    // SAFETY: made by `call_at` from a box, and taken out of the static by an exchange.
    (!action.is_null()).then(|| unsafe { Box::from_raw(action) })
}

/// Makes the vCPU exit, or ends its halt.
pub fn wake() {
    recall(VCPU);
    up(HALT_SEMAPHORE);
}

/// Waits until `deadline`, if there is one, or for [`wake`].
pub fn sleep(deadline: Option<u64>) {
    wait(HALT_SEMAPHORE, deadline.unwrap_or(0));
}

/// The thread.
pub extern "C" fn run() -> ! {
    loop {
        let deadline = DEADLINE.load(Ordering::SeqCst);
        let next = match ACTION_TIME.load(Ordering::SeqCst) {
            0 => deadline,
            time if deadline == 0 => time,
            time => time.min(deadline),
        };
        if !wait(SEMAPHORE, next) {
            continue;
        }
        if next == deadline {
            DEADLINE.store(0, Ordering::SeqCst);
            recall(VCPU);
        } else {
            act();
        }
    }
}

#[cold]
#[inline(never)]
fn act() {
    ACTION_TIME.store(0, Ordering::SeqCst);
    if let Some(action) = take(ACTION.swap(core::ptr::null_mut(), Ordering::SeqCst)) {
        action();
    }
}
