//! Kicks: `immediate_exit` in `kvm_run`, and a signal to leave KVM_RUN.

use kvm_ioctls::VcpuFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Once};
use trapline_interface::Kick;

/// Kicks one vCPU and the thread that runs it.
pub(crate) struct KvmKick {
    immediate_exit: NonNull<AtomicU8>,
    thread: libc::pid_t,
    /// Keeps the page of the flag mapped.
    _page: Arc<VcpuFd>,
}

// SAFETY: the flag lives as long as the vCPU's descriptor, which is kept, and is
// accessed only as an atomic.
unsafe impl Send for KvmKick {}
// SAFETY: as above.
unsafe impl Sync for KvmKick {}

impl KvmKick {
    /// Creates a kick for the calling thread and the vCPU whose page holds `immediate_exit`.
    pub(crate) fn new(page: Arc<VcpuFd>, immediate_exit: NonNull<AtomicU8>) -> Self {
        Self {
            immediate_exit,
            thread: thread_id(),
            _page: page,
        }
    }
}

impl Kick for KvmKick {
    fn mark(&self) {
        // SAFETY: the byte is within the page that `_page` keeps mapped; the
        // kernel and the vCPU's thread access it in single bytes, too.
        let flag = unsafe { self.immediate_exit.as_ref() };
        flag.store(1, Ordering::SeqCst);
    }

    fn interrupt(&self) {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(install_handler);
        // SAFETY: a signal with a handler that does nothing, to a thread of this
        // process; if that has ended, the kernel says so and nothing happens.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.thread, signal()) };
    }
}

/// Returns the thread ID by number: std refers only weakly to the C library's `gettid`, which an optimised
/// static link may drop.
fn thread_id() -> libc::pid_t {
    // SAFETY: this request takes nothing and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

fn signal() -> libc::c_int {
    libc::SIGRTMIN()
}

/// Installs a handler without SA_RESTART, so that the signal interrupts KVM_RUN.
fn install_handler() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: an all-zero `sigaction` is a valid value of it.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as *const () as usize;
    // SAFETY: the handler touches nothing, so it is safe at any moment; the signal
    // number is one of those that programs may use.
    unsafe { libc::sigaction(signal(), &action, std::ptr::null_mut()) };
}
