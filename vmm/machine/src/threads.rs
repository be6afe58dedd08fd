//! Threads beside the one that runs the vCPU.

use crate::placement;
use crate::sandbox::{self, Role};
use crate::Failure;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The threads that have introduced themselves, and the clocks that count their time.
static CLOCKS: Mutex<Vec<(String, libc::clockid_t)>> = Mutex::new(Vec::new());

/// This thread's name from now on: where it runs, and under which name its time is told.
pub fn introduce(name: &str) {
    placement::settle(name);
    let mut clock = 0;
    // SAFETY: the thread lives, and there is place for the number of its clock.
    if unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) } == 0 {
        clocks().push((name.to_owned(), clock));
    }
}

/// CPU time of each thread in nanoseconds, by their names. One that has ended is not told.
pub fn times() -> Vec<(String, u64)> {
    let time = |(name, clock): &(String, _)| Some((name.clone(), time_of(*clock)?));
    clocks().iter().filter_map(time).collect()
}

fn clocks() -> MutexGuard<'static, Vec<(String, libc::clockid_t)>> {
    CLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn time_of(clock: libc::clockid_t) -> Option<u64> {
    // SAFETY: all zero is a valid time.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one time, and there is one.
    let status = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (status == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Lets this thread be interrupted by those that recall vCPUs.
pub fn hear_recalls() {
    // SAFETY: all zero is a valid set, and the kernel reads one.
    unsafe {
        let mut recall: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut recall, libc::SIGRTMIN());
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const recall, ptr::null_mut());
    }
}

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
    let own = name.to_owned();
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            introduce(&own);
            work();
        });
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
