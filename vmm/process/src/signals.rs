//! Interrupt requests and kicks from any thread.
//!
//! Both stop the guest by a signal to its process. The tracer sees every signal before the process does, so a
//! signal between two stops is not lost.

use crate::spaces::running;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use trapline_emulation::apic::{Apic, RequestBits, SharedRequests};
use trapline_interface::timer::{timespec, Expire};
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
    requested: RequestBits,
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
        self.requested.request(vector);
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

/// The local APIC of the vCPU, whose interrupts any thread requests.
pub(crate) type LocalApic = Apic<SharedRequests<Arc<Lines>>>;

impl AsRef<RequestBits> for Lines {
    fn as_ref(&self) -> &RequestBits {
        &self.requested
    }
}

/// Sends [`SIGNAL`]. A process that has ended is not an error.
pub(crate) fn signal(process: libc::pid_t) {
    // SAFETY: takes numbers only. The process has one thread with the same number.
    unsafe { libc::syscall(libc::SYS_tgkill, process, process, SIGNAL) };
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

/// Signal of the timer to the VMM.
pub(crate) const EXPIRY: libc::c_int = SIGNAL + 1;

impl Expire for Lines {
    fn expired(&self) {
        self.signal_running();
    }
}
