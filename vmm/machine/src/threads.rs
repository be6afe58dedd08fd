//! Helper threads.

use crate::placement;
use crate::sandbox::{self, Role};
use crate::stop::{leave, print_error};
use crate::Failure;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Registered threads and their CPU clocks.
static CLOCKS: Mutex<Vec<(String, libc::clockid_t)>> = Mutex::new(Vec::new());

/// Registers this thread: sets its affinity and records its CPU clock.
pub fn register(name: &str) {
    placement::apply_affinity(name);
    let mut clock = 0;
    // SAFETY: the thread exists, and the clock ID is written to a local.
    if unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) } == 0 {
        clocks().push((name.to_owned(), clock));
    }
}

/// Returns the CPU time of each registered thread, in nanoseconds. Threads that have ended are omitted.
pub fn times() -> Vec<(String, u64)> {
    let time = |(name, clock): &(String, _)| Some((name.clone(), time_of(*clock)?));
    clocks().iter().filter_map(time).collect()
}

fn clocks() -> MutexGuard<'static, Vec<(String, libc::clockid_t)>> {
    CLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn time_of(clock: libc::clockid_t) -> Option<u64> {
    // SAFETY: an all-zero timespec is valid.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one timespec.
    let status = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (status == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Unblocks the kick signal on this thread.
pub fn unblock_kicks() {
    // SAFETY: an all-zero set is valid, and the kernel reads one set.
    unsafe {
        let mut kick_on_stop: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut kick_on_stop, libc::SIGRTMIN());
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const kick_on_stop, ptr::null_mut());
    }
}

/// Body of a helper thread. If it returns, the VM ends with this error. It is called by reference, so that nothing it owns is
/// dropped before: the thread's filter may not allow that.
pub type Work = Box<dyn FnMut() -> Failure + Send>;

/// A thread to be started.
pub struct Worker {
    /// Thread name.
    pub name: String,
    /// Seccomp role.
    pub role: Role,
    /// Body.
    pub work: Work,
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn start(self, sandbox: bool) -> Result<(), Failure> {
        spawn(&self.name, self.role, sandbox, self.work)
    }
}

/// Starts a thread with all signals blocked, which are for the thread of vCPU 0. With `sandbox` it enters the
/// seccomp filter of its role before `work`. If `work` returns, the VM ends with its error (see [`Work`]).
///
/// # Errors
/// The thread cannot be created.
pub fn spawn(
    name: &str,
    role: Role,
    sandbox: bool,
    mut work: impl FnMut() -> Failure + Send + 'static,
) -> Result<(), Failure> {
    spawn_unfiltered(name, move || {
        set_timer_slack();
        let failure = match sandbox::enter(role, sandbox) {
            Ok(()) => work(),
            Err(failure) => failure,
        };
        print_error(&failure);
        leave(failure.status())
    })
}

/// Starts a thread that enters its seccomp filter itself.
///
/// # Errors
/// The thread cannot be created.
pub fn spawn_unfiltered(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    // SAFETY: an all-zero set is valid.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
    // SAFETY: both sets are locals. The new thread inherits the blocked signals.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let own = name.to_owned();
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            register(&own);
            work();
        });
    // SAFETY: restores the previous set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    thread
        .map(drop)
        .map_err(Failure::system("start a thread beside the vCPU's"))
}

/// Sets the timer slack to 1 ns; the default delays timers by up to 50 us.
fn set_timer_slack() {
    // SAFETY: sets a parameter of this thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
}
