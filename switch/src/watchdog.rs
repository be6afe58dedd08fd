//! Interruption of a notification that blocks.
//!
//! The event that interrupts a guest is a file of its VMM, which can be full. Only the engine's thread would wait for
//! it, and with it all ports. Another thread sees that the engine makes no progress within a notification, and sends it a
//! signal, which ends the system call.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Signal that interrupts a system call and has no other effect.
const SIGNAL: libc::c_int = libc::SIGUSR1;

/// Progress of the engine.
#[derive(Debug, Default)]
pub struct Progress {
    /// Number of the notification, odd while it is written.
    notification: AtomicU64,
    /// The engine's thread, once it runs.
    thread: AtomicU64,
}

extern "C" fn ignore(_: libc::c_int) {}

/// Returns the number of the calling thread.
fn thread() -> libc::pid_t {
    // The standard library declares `gettid` of the C library weakly, which a static link would leave out.
    // SAFETY: returns a number.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

impl Progress {
    /// Makes the calling thread the one to be interrupted.
    ///
    /// # Errors
    /// The kernel refuses the handler of the signal.
    pub fn watch_this_thread(&self) -> io::Result<()> {
        // SAFETY: all bytes zero are a valid value of this C structure, without `SA_RESTART`; the handler does nothing.
        let status = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ignore as *const () as usize;
            libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut())
        };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        self.thread
            .store(thread().unsigned_abs().into(), Ordering::Release);
        Ok(())
    }

    /// Performs a notification, which the watchdog may interrupt.
    #[inline]
    pub fn notification<T>(&self, notify: impl FnOnce() -> T) -> T {
        let count = self.notification.load(Ordering::Relaxed);
        self.notification
            .store(count.wrapping_add(1), Ordering::Release);
        let result = notify();
        self.notification
            .store(count.wrapping_add(2), Ordering::Release);
        result
    }

    /// Interrupts the notification that is written now if it was already at the last check. Returns what the next check
    /// needs.
    pub fn check(&self, last: u64) -> u64 {
        let now = self.notification.load(Ordering::Acquire);
        let thread = self.thread.load(Ordering::Acquire);
        if now % 2 == 1 && now == last && thread != 0 {
            // SAFETY: a signal to a thread of this process, or to none if it has ended.
            unsafe {
                libc::syscall(
                    libc::SYS_tgkill,
                    libc::getpid(),
                    thread as libc::pid_t,
                    SIGNAL,
                );
            }
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::FromRawFd;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn notification_of_a_full_event_is_interrupted() {
        // SAFETY: returns a descriptor without another owner.
        let mut event = unsafe { std::fs::File::from_raw_fd(libc::eventfd(0, 0)) };
        event.write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
        let progress = Arc::new(Progress::default());
        let engine = {
            let progress = Arc::clone(&progress);
            std::thread::spawn(move || {
                progress.watch_this_thread().unwrap();
                progress.notification(|| event.write(&1_u64.to_ne_bytes()))
            })
        };
        let mut last = 0;
        while !engine.is_finished() {
            last = progress.check(last);
            std::thread::sleep(Duration::from_millis(5));
        }
        let error = engine.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }
}
