//! Interrupt requests and kicks from any thread.
//!
//! Both stop the guest by a signal to its process. The tracer sees every signal before the process does, so a
//! signal between two stops is not lost.

use crate::spaces::running;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use trapline_emulation::apic::{Requests, VECTORS};
use trapline_interface::{Kick, Region};

/// The signal: the first real-time signal that the C library leaves to programs.
pub(crate) const SIGNAL: libc::c_int = 34;

/// Processes of a guest, of which one runs.
pub(crate) struct Targets {
    pub processes: Vec<libc::pid_t>,
    /// Region with the control page.
    pub control: Arc<Region>,
}

/// Requested interrupts, kicks, and the process to notify.
#[derive(Default)]
pub(crate) struct Lines {
    requested: [AtomicU32; VECTORS / 32],
    is_kicked: AtomicBool,
    /// A signal is on its way.
    is_signalled: AtomicBool,
    targets: OnceLock<Targets>,
    /// Number of notifications, on which a halted vCPU waits.
    count: AtomicU32,
}

impl Lines {
    /// Sets the processes to be notified, once.
    pub fn set_targets(&self, targets: Targets) {
        let _first = self.targets.set(targets);
    }

    /// Stops the running process, if there is one. Async-signal-safe.
    fn signal_running(&self) {
        if let Some(Targets { processes, control }) = self.targets.get() {
            signal(processes[running(control, processes.len())]);
        }
    }

    /// Requests an interrupt. The caller is the vCPU, or calls [`Self::notify`] afterwards.
    pub fn request(&self, vector: u8) {
        let bit = 1 << (vector % 32);
        self.requested[usize::from(vector) / 32].fetch_or(bit, Ordering::SeqCst);
    }

    /// Stops the running guest, or wakes the halted vCPU. Async-signal-safe.
    pub fn notify(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.targets.get().is_some() && !self.is_signalled.swap(true, Ordering::SeqCst) {
            self.signal_running();
        }
        // SAFETY: the word lives as long as `self`; the kernel only compares addresses.
        unsafe {
            let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
            libc::syscall(libc::SYS_futex, self.count.as_ptr(), wake, 1);
        }
    }

    /// Notes that the signal has arrived: the next notification sends another one.
    pub fn signal_arrived(&self) {
        self.is_signalled.store(false, Ordering::SeqCst);
    }

    /// Returns whether a signal is on its way.
    pub fn is_signalled(&self) -> bool {
        self.is_signalled.load(Ordering::SeqCst)
    }

    /// Returns and clears the kick.
    pub fn take_kick(&self) -> bool {
        self.is_kicked.load(Ordering::SeqCst) && self.is_kicked.swap(false, Ordering::SeqCst)
    }

    /// Returns the number of notifications so far.
    pub fn notifications(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits until the number of notifications differs from `seen`, until `deadline` in nanoseconds of
    /// `CLOCK_MONOTONIC`, or until a signal.
    pub fn wait(&self, seen: u32, deadline: Option<u64>) {
        let until = deadline.map(timespec);
        let until = until
            .as_ref()
            .map_or(std::ptr::null(), |until| until as *const _);
        // SAFETY: the word lives as long as `self`, and the time as long as this call. The time is absolute.
        unsafe {
            let wait = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
            let any = u32::MAX;
            let none = std::ptr::null::<u32>();
            libc::syscall(
                libc::SYS_futex,
                self.count.as_ptr(),
                wait,
                seen,
                until,
                none,
                any,
            );
        }
    }
}

/// Requests from any thread.
pub(crate) struct SharedRequests(pub Arc<Lines>);

impl Requests for SharedRequests {
    fn request(&mut self, vector: u8) {
        self.0.request(vector);
    }

    fn clear(&mut self, vector: u8) {
        let bit = 1 << (vector % 32);
        self.0.requested[usize::from(vector) / 32].fetch_and(!bit, Ordering::SeqCst);
    }

    fn word(&self, index: usize) -> u32 {
        self.0.requested[index].load(Ordering::SeqCst)
    }
}

/// Sends [`SIGNAL`]. A process that has ended is not an error.
pub(crate) fn signal(process: libc::pid_t) {
    // SAFETY: takes numbers only. The process has one thread with the same number.
    unsafe { libc::syscall(libc::SYS_tgkill, process, process, SIGNAL) };
}

/// Returns `CLOCK_MONOTONIC`, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = timespec(0);
    // SAFETY: the kernel writes one timespec; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * NS_PER_S + now.tv_nsec as u64
}

const NS_PER_S: u64 = 1_000_000_000;

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / NS_PER_S) as libc::time_t,
        tv_nsec: (ns % NS_PER_S) as libc::c_long,
    }
}

/// A kicker of one vCPU.
pub(crate) struct ProcessKick(pub Arc<Lines>);

impl Kick for ProcessKick {
    fn mark(&self) {
        self.0.is_kicked.store(true, Ordering::SeqCst);
        self.0.notify();
    }

    /// [`Self::mark`] does it all.
    fn interrupt(&self) {}
}

/// A timer that stops the running guest.
pub(crate) struct Timer {
    id: libc::timer_t,
    armed: Option<u64>,
}

/// Signal of the timer to the VMM.
const EXPIRY: libc::c_int = SIGNAL + 1;

// SAFETY: the timer is a number of the process, not of a thread.
unsafe impl Send for Timer {}

impl Timer {
    /// Creates a timer that stops the running process of `lines`. They are never freed, because a signal may be pending
    /// when the timer is deleted.
    pub fn new(lines: &Arc<Lines>) -> std::io::Result<Self> {
        extern "C" fn expired(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
            // SAFETY: the kernel passes the value of the timer that has expired: lines that are never freed.
            unsafe { (*(*info).si_value().sival_ptr.cast::<Lines>()).signal_running() };
        }
        // SAFETY: zero is a value of these structures.
        let (mut action, mut event): (libc::sigaction, libc::sigevent) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        action.sa_sigaction = expired as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = EXPIRY;
        event.sigev_value.sival_ptr = Arc::into_raw(Arc::clone(lines)).cast_mut().cast();
        let mut id = std::ptr::null_mut();
        // SAFETY: the handler makes one system call, which is safe at any moment; all structures are valid.
        let status = unsafe {
            libc::sigaction(EXPIRY, &raw const action, std::ptr::null_mut());
            libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut id)
        };
        match status {
            0 => Ok(Self { id, armed: None }),
            _ => Err(std::io::Error::last_os_error()),
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
