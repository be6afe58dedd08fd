//! A signal as an interrupt: its handler puts down when it came, the thread behind
//! it takes that.

use std::io;
use std::ptr;
use std::sync::atomic::{compiler_fence, AtomicPtr, AtomicU64, Ordering};
use trapline_abi::job::Wait;
use trapline_abi::Found;
use trapline_workloads::irq::Arrival;
use trapline_workloads::ticks;

// What the handler puts down. It and the thread that it interrupts are one thread,
// so relaxed accesses come in order, but for the compiler's.
static COUNT: AtomicU64 = AtomicU64::new(0);
static ENTERED: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);
static RAISED: AtomicU64 = AtomicU64::new(0);

/// Where the number of the last one raised stands, if somebody raises them.
static RAISED_AT: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// Which signal it is: one of those that come together if they are not taken in time,
/// as edges on a line do.
pub const NUMBER: libc::c_int = libc::SIGUSR1;

extern "C" fn take(_: libc::c_int) {
    ENTERED.store(ticks(), Ordering::Relaxed);
    let at = RAISED_AT.load(Ordering::Relaxed);
    // SAFETY: null, or what `Signal::open` was given, which lives until it is dropped
    // and the signal blocked with it.
    if let Some(raised) = unsafe { at.as_ref() } {
        RAISED.store(raised.load(Ordering::Acquire), Ordering::Relaxed);
    }
    COUNT.fetch_add(1, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    DONE.store(ticks(), Ordering::Relaxed);
}

/// The signal of this thread, let in only while it is waited for or polled.
pub struct Signal {
    /// Who sleeps sees the signal only while he sleeps, so that none is slept through.
    blocked: libc::sigset_t,
    asleep: libc::sigset_t,
    /// How many have been taken.
    seen: u64,
}

/// An interrupt, and the number of the expiry that it stands for if it was raised.
pub struct Taken {
    /// When it came, and what it found.
    pub arrival: Arrival,
    /// 0 if nobody raises.
    pub raised: u64,
}

impl Signal {
    /// Makes the signal interrupt this thread. `raised_at`: where to look for the
    /// number of the one raised.
    ///
    /// # Safety
    /// `raised_at` is null or lives as long as the result.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub unsafe fn open(raised_at: *mut AtomicU64) -> io::Result<Self> {
        RAISED_AT.store(raised_at, Ordering::Relaxed);
        // SAFETY: all zero is a valid set and a valid action.
        let (mut blocked, mut asleep, mut action): (
            libc::sigset_t,
            libc::sigset_t,
            libc::sigaction,
        ) = unsafe { std::mem::zeroed() };
        action.sa_sigaction = take as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the sets and the action are ours; the handler does only what a
        // handler may.
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

    /// Waits for one that has not been taken. What the handler has put down is taken
    /// before the next can come.
    pub fn wait(&mut self, between: Wait) -> Taken {
        let (resumed, found) = match between {
            Wait::Halt => (self.sleep(), Found::Halt),
            Wait::Poll | Wait::Flood => (self.poll(), Found::Code),
        };
        self.seen = COUNT.load(Ordering::Relaxed);
        Taken {
            arrival: Arrival {
                entered: ENTERED.load(Ordering::Relaxed),
                done: DONE.load(Ordering::Relaxed),
                resumed,
                found,
            },
            raised: RAISED.load(Ordering::Relaxed),
        }
    }

    fn has_come(&self) -> bool {
        COUNT.load(Ordering::Relaxed) != self.seen
    }

    fn sleep(&self) -> u64 {
        while !self.has_come() {
            // SAFETY: a valid set. The signal is let in for the call only.
            unsafe { libc::sigsuspend(&raw const self.asleep) };
        }
        ticks()
    }

    fn poll(&self) -> u64 {
        self.mask(libc::SIG_UNBLOCK);
        while !self.has_come() {
            std::hint::spin_loop();
        }
        let resumed = ticks();
        let count = COUNT.load(Ordering::Relaxed);
        self.mask(libc::SIG_BLOCK);
        match COUNT.load(Ordering::Relaxed) == count {
            true => resumed,
            // Another came behind the first, and what it put down is what is there.
            false => ticks(),
        }
    }

    fn mask(&self, how: libc::c_int) {
        // SAFETY: a valid set.
        unsafe { libc::pthread_sigmask(how, &raw const self.blocked, ptr::null_mut()) };
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        // The signal stays blocked: one that is pending still finds nobody.
        RAISED_AT.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

/// There is one handler: tests that use it take turns.
#[cfg(test)]
pub static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
