//! The system call that creates a process.

/// Forks. Returns 0 in the child.
///
/// # Safety
/// The child has only this thread, so it must not lock or allocate.
#[inline(always)]
pub unsafe fn fork() -> Option<libc::pid_t> {
    // SAFETY: no arguments; the child behaves by contract. Not libc's fork, which runs handlers.
    let child = unsafe { libc::syscall(libc::SYS_fork) };
    (child >= 0).then_some(child as libc::pid_t)
}
