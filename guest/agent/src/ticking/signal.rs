//! Signal in place of an interrupt: its handler records timestamps, which the waiting thread reads.

use std::io;
use std::ptr;
use std::sync::atomic::{compiler_fence, AtomicPtr, AtomicU64, Ordering};
use trapline_abi::job::WaitMode;
use trapline_abi::CpuState;
use trapline_workloads::irq::Arrival;
use trapline_workloads::ticks;

// Record of the handler. It runs on the interrupted thread, so relaxed accesses are ordered except
// by the compiler.
static COUNT: AtomicU64 = AtomicU64::new(0);
static ENTERED: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);
static RAISED: AtomicU64 = AtomicU64::new(0);

/// Address of the number of the last expiry, or null.
static RAISED_AT: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// Signal number. Pending instances of this signal are merged, as edges of an interrupt line are.
pub const NUMBER: libc::c_int = libc::SIGUSR1;

extern "C" fn handle(_: libc::c_int) {
    ENTERED.store(ticks(), Ordering::Relaxed);
    let at = RAISED_AT.load(Ordering::Relaxed);
    // SAFETY: null, or the argument of `Signal::open`, which is valid until the signal is dropped and
    // blocked.
    if let Some(raised) = unsafe { at.as_ref() } {
        RAISED.store(raised.load(Ordering::Acquire), Ordering::Relaxed);
    }
    COUNT.fetch_add(1, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    DONE.store(ticks(), Ordering::Relaxed);
}

/// Signal of this thread, unblocked only while the thread waits or polls.
pub struct Signal {
    /// Set with the signal.
    blocked: libc::sigset_t,
    /// Mask while the thread sleeps, without the signal, so that none is missed.
    asleep: libc::sigset_t,
    /// Number of handled signals.
    seen: u64,
}

/// Handled signal.
pub struct SignalArrival {
    /// Timestamps and interrupted activity.
    pub arrival: Arrival,
    /// Number of the expiry; 0 if expiries are not numbered.
    pub raised: u64,
}

impl Signal {
    /// Installs the handler. `raised_at` is the address of the number of the last expiry.
    ///
    /// # Safety
    /// `raised_at` is null or valid as long as the result.
    ///
    /// # Errors
    /// The kernel refuses.
    pub unsafe fn open(raised_at: *mut AtomicU64) -> io::Result<Self> {
        RAISED_AT.store(raised_at, Ordering::Relaxed);
        // SAFETY: all zero is a valid set and a valid action.
        let (mut blocked, mut asleep, mut action): (
            libc::sigset_t,
            libc::sigset_t,
            libc::sigaction,
        ) = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the sets and the action are local; the handler is async-signal-safe.
        let result = unsafe {
            libc::sigemptyset(&raw mut blocked);
            libc::sigaddset(&raw mut blocked, NUMBER);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut asleep);
            libc::sigdelset(&raw mut asleep, NUMBER);
            libc::sigaction(NUMBER, &raw const action, ptr::null_mut())
        };
        match result {
            0 => Ok(Self {
                blocked,
                asleep,
                seen: COUNT.load(Ordering::Relaxed),
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits for the next signal. Its record is read while the signal is blocked.
    pub fn wait(&mut self, wait_mode: WaitMode) -> SignalArrival {
        let (resumed, found) = match wait_mode {
            WaitMode::Halt => (self.sleep(), CpuState::Halt),
            WaitMode::Poll | WaitMode::Flood => (self.poll(), CpuState::Code),
        };
        self.seen = COUNT.load(Ordering::Relaxed);
        SignalArrival {
            arrival: Arrival {
                entered: ENTERED.load(Ordering::Relaxed),
                done: DONE.load(Ordering::Relaxed),
                resumed,
                found,
            },
            raised: RAISED.load(Ordering::Relaxed),
        }
    }

    fn is_handled(&self) -> bool {
        COUNT.load(Ordering::Relaxed) != self.seen
    }

    fn sleep(&self) -> u64 {
        while !self.is_handled() {
            // SAFETY: a valid set. The signal is unblocked during the call only.
            unsafe { libc::sigsuspend(&raw const self.asleep) };
        }
        ticks()
    }

    fn poll(&self) -> u64 {
        self.mask(libc::SIG_UNBLOCK);
        while !self.is_handled() {
            std::hint::spin_loop();
        }
        let resumed = ticks();
        let count = COUNT.load(Ordering::Relaxed);
        self.mask(libc::SIG_BLOCK);
        if COUNT.load(Ordering::Relaxed) == count {
            resumed
        } else {
            ticks()
        }
    }

    fn mask(&self, how: libc::c_int) {
        // SAFETY: a valid set.
        unsafe { libc::pthread_sigmask(how, &raw const self.blocked, ptr::null_mut()) };
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        // The signal stays blocked, so a pending one is not handled.
        RAISED_AT.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

/// Lock for tests, because there is one handler per process.
#[cfg(test)]
pub static TEST_LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
