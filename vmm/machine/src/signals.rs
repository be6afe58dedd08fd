//! SIGTERM and SIGINT end the machine, not the process: what was counted is still
//! told. SIGPIPE is ignored: a console that nobody reads is an error like any other.

use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::OnceLock;
use trapline_interface::Kicker;

static RECALL: OnceLock<Kicker> = OnceLock::new();
static STOP: AtomicI32 = AtomicI32::new(0);

/// From now on SIGTERM and SIGINT recall the vCPU of this thread. Only the first
/// call has an effect.
pub fn recall(kicker: Kicker) {
    if RECALL.set(kicker).is_ok() {
        handle(libc::SIGTERM, stop as *const () as usize);
        handle(libc::SIGINT, stop as *const () as usize);
        handle(libc::SIGPIPE, libc::SIG_IGN);
    }
}

/// After so many seconds the kernel ends this process by SIGALRM, which nothing here
/// handles, blocks or, behind the seccomp filter, could still call off.
pub fn end_after(seconds: u32) {
    // SAFETY: takes a number; its signal ends this process.
    unsafe { libc::alarm(seconds) };
}

/// The signal that said stop, if one did.
pub fn stopped() -> Option<i32> {
    match STOP.load(Ordering::Relaxed) {
        0 => None,
        number => Some(number),
    }
}

/// Touches nothing but atomics.
extern "C" fn stop(number: libc::c_int) {
    STOP.store(number, Ordering::Relaxed);
    if let Some(kicker) = RECALL.get() {
        kicker.mark();
    }
}

fn handle(number: libc::c_int, action: libc::sighandler_t) {
    // SAFETY: an all-zero `sigaction` is a valid value of it: no flags, so that
    // system calls are interrupted.
    let mut setting: libc::sigaction = unsafe { std::mem::zeroed() };
    setting.sa_sigaction = action;
    // SAFETY: `stop` and SIG_IGN are safe at any moment.
    unsafe { libc::sigaction(number, &setting, ptr::null_mut()) };
}
