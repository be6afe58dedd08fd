//! Threads beside the one that runs the vCPU.

use crate::sandbox::{self, Role};
use crate::Failure;
use std::ptr;

/// Starts a thread that takes no signals - those are for who runs the first vCPU - and,
/// with `sandbox`, confines itself to its role before it works.
///
/// # Errors
/// There can be no further thread.
pub fn spawn(
    name: &str,
    role: Role,
    sandbox: bool,
    work: impl FnOnce() + Send + 'static,
) -> Result<(), Failure> {
    unconfined(name, move || {
        punctual();
        // Where there are no filters the thread that runs the vCPU says so.
        if !sandbox || sandbox::enter(role).is_ok() {
            work();
        }
    })
}

/// The same for one that confines itself when it has all that it needs.
///
/// # Errors
/// There can be no further thread.
pub fn unconfined(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    // SAFETY: all zero is a valid set.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
    // SAFETY: both sets are ours. The new thread inherits what is blocked now.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work);
    // SAFETY: what was there before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    thread
        .map(drop)
        .map_err(Failure::system("start a thread beside the vCPU's"))
}

/// Has the kernel wake this thread when its timers are due: by default it may be 50 us
/// late, so that several can be woken at once.
fn punctual() {
    // SAFETY: sets a number of this thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
}
