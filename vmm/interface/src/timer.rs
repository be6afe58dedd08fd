//! A timer of the host, for backends that emulate that of a vCPU.

use std::io;
use std::sync::Arc;

/// Receiver of the expiry of a timer.
pub trait Expire: Send + Sync {
    /// Called at the expiry in a signal handler of the timer's thread. Async-signal-safe.
    fn expired(&self);
}

/// A timer of `CLOCK_MONOTONIC`.
pub struct Timer {
    id: libc::timer_t,
    armed: Option<u64>,
}

// SAFETY: the timer is a number of the process, not of a thread.
unsafe impl Send for Timer {}

impl Timer {
    /// Creates a timer whose expiry interrupts the calling thread by `signal`, of which there is one kind of target in a
    /// process. The target is never freed, because a signal may be pending when the timer is deleted.
    ///
    /// # Errors
    /// The kernel has no timer left.
    pub fn new<T: Expire + 'static>(signal: libc::c_int, target: &Arc<T>) -> io::Result<Self> {
        extern "C" fn handler<T: Expire>(
            _: libc::c_int,
            info: *mut libc::siginfo_t,
            _: *mut libc::c_void,
        ) {
            // SAFETY: the kernel passes the value of the timer that has expired: a target that is never freed.
            unsafe { (*(*info).si_value().sival_ptr.cast::<T>()).expired() };
        }
        // SAFETY: zero is a value of these structures.
        let (mut action, mut event): (libc::sigaction, libc::sigevent) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        action.sa_sigaction = handler::<T> as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_value.sival_ptr = Arc::into_raw(Arc::clone(target)).cast_mut().cast();
        // SAFETY: takes nothing and cannot fail.
        event.sigev_notify_thread_id = unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t };
        let mut id = std::ptr::null_mut();
        // SAFETY: the handler does what is safe at any moment; all structures are valid.
        let status = unsafe {
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
            libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut id)
        };
        match status {
            0 => Ok(Self { id, armed: None }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sets the expiry, in nanoseconds of `CLOCK_MONOTONIC`. Without one the timer may expire in vain.
    pub fn set(&mut self, deadline: Option<u64>) {
        if deadline.is_none() || self.armed == deadline {
            return;
        }
        self.armed = deadline;
        let setting = libc::itimerspec {
            it_interval: timespec(0),
            it_value: timespec(deadline.unwrap_or(0).max(1)),
        };
        // SAFETY: the timer exists as long as `self`, and the setting is valid.
        unsafe {
            let absolute = libc::TIMER_ABSTIME;
            libc::timer_settime(self.id, absolute, &raw const setting, std::ptr::null_mut());
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: created by `new` and deleted once.
        unsafe { libc::timer_delete(self.id) };
    }
}

/// Returns `CLOCK_MONOTONIC`, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let mut now = timespec(0);
    // SAFETY: the kernel writes one timespec; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * NS_PER_S + now.tv_nsec as u64
}

const NS_PER_S: u64 = 1_000_000_000;

/// Returns a number of nanoseconds in the kernel's format.
pub fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / NS_PER_S) as libc::time_t,
        tv_nsec: (ns % NS_PER_S) as libc::c_long,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Expire for Count {
        fn expired(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn expiry_calls_the_target_at_its_time_and_once() {
        let count = Arc::new(Count::default());
        let mut timer = Timer::new(libc::SIGRTMIN() + 5, &count).unwrap();
        let due = monotonic_ns() + 5_000_000;
        timer.set(Some(due));
        timer.set(Some(due));
        timer.set(None);
        let limit = Instant::now() + Duration::from_secs(10);
        while count.0.load(Ordering::SeqCst) == 0 && Instant::now() < limit {
            std::hint::spin_loop();
        }
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(monotonic_ns() >= due);
    }
}
