//! SIGTERM and SIGINT stop the VM, so that counts are still reported. SIGPIPE is ignored: a closed console is an
//! ordinary write error, and so is SIGXFSZ: a file has reached its limit.

use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::OnceLock;
use trapline_interface::Kicker;

static RECALL: OnceLock<Kicker> = OnceLock::new();
static STOP: AtomicI32 = AtomicI32::new(0);

/// Makes a limit of file sizes, which concerns the guest's memory, too, an error of the call that exceeds it.
pub fn ignore_file_limit() {
    handle(libc::SIGXFSZ, libc::SIG_IGN);
}

/// Lets SIGTERM and SIGINT kick the vCPU of this thread. Only the first call has an effect.
pub fn kick_on_stop(kicker: Kicker) {
    if RECALL.set(kicker).is_ok() {
        handle(libc::SIGTERM, stop as *const () as usize);
        handle(libc::SIGINT, stop as *const () as usize);
        handle(libc::SIGPIPE, libc::SIG_IGN);
    }
}

/// Lets SIGALRM end the process after `seconds`. It is neither handled nor blocked, and the seccomp filter
/// forbids `alarm`.
pub fn set_time_limit(seconds: u32) {
    // SAFETY: takes a number.
    unsafe { libc::alarm(seconds) };
}

/// Returns the signal received, if any.
pub fn stop_signal() -> Option<i32> {
    match STOP.load(Ordering::Relaxed) {
        0 => None,
        number => Some(number),
    }
}

/// Signal handler; uses atomics only.
extern "C" fn stop(number: libc::c_int) {
    STOP.store(number, Ordering::Relaxed);
    if let Some(kicker) = RECALL.get() {
        kicker.mark();
    }
}

fn handle(number: libc::c_int, action: libc::sighandler_t) {
    // SAFETY: an all-zero `sigaction` is valid: no flags, so that system calls are interrupted.
    let mut setting: libc::sigaction = unsafe { std::mem::zeroed() };
    setting.sa_sigaction = action;
    // SAFETY: `stop` and SIG_IGN are async-signal-safe.
    unsafe { libc::sigaction(number, &setting, ptr::null_mut()) };
}
