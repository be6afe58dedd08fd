//! The system call that creates a process.

/// Forks. Returns 0 in the child.
///
/// # Safety
/// The child has only this thread, so it must not lock or allocate.
#[inline(always)]
pub unsafe fn fork() -> Option<libc::pid_t> {
    const NOTHING: usize = 0;
    let flags = libc::SIGCHLD as usize;
    // SAFETY: flags, a stack that is the parent's, and nothing that the flags ask for; the child behaves by contract. Not
    // libc's fork, which runs handlers.
    let child =
        unsafe { libc::syscall(libc::SYS_clone, flags, NOTHING, NOTHING, NOTHING, NOTHING) };
    (child >= 0).then_some(child as libc::pid_t)
}
