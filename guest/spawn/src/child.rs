//! Child between clone and exec. It runs on its own stack in the memory of its parent, whose thread is
//! suspended, so it only makes system calls and writes to [`Shared`].

use crate::Started;
use std::ffi::CStr;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr;
use trapline_abi::stamp;

/// Data shared by parent and child.
struct Shared<'a> {
    path: &'a CStr,
    arguments: &'a [*const libc::c_char],
    environment: &'a [*const libc::c_char],
    descriptors: &'a [RawFd],
    parent: libc::pid_t,
    signals: libc::sigset_t,
    exec: u64,
    error: i32,
}

/// Size of the stack of the child, in bytes.
const STACK: usize = 64 << 10;

/// Creates the child and waits until it has executed `path` or failed.
///
/// # Safety
/// `arguments` and `environment` end with a null pointer, after pointers to valid strings. No descriptor is below `descriptors.len()`.
pub unsafe fn start(
    path: &CStr,
    arguments: &[*const libc::c_char],
    environment: &[*const libc::c_char],
    descriptors: &[RawFd],
) -> io::Result<Started> {
    let signals = block_signals();
    let mut shared = Shared {
        path,
        arguments,
        environment,
        descriptors,
        // SAFETY: takes no arguments.
        parent: unsafe { libc::getpid() },
        signals,
        exec: 0,
        error: 0,
    };
    let started = clone(&mut shared);
    restore_signals(&signals);
    let (pid, pidfd) = started?;
    let started = Started {
        pid,
        pidfd,
        exec: shared.exec,
    };
    if shared.error == 0 {
        return Ok(started);
    }
    // The child failed before exec; its error is reported.
    let _ = started.reap();
    Err(io::Error::from_raw_os_error(shared.error))
}

fn clone(shared: &mut Shared<'_>) -> io::Result<(libc::pid_t, OwnedFd)> {
    let mut stack = vec![0u128; STACK / size_of::<u128>()];
    let mut pidfd: RawFd = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: the top of the stack is aligned to 16 bytes and one past the end of an allocation. It is
    // valid while the child uses it, because CLONE_VFORK suspends this thread. So are `shared` and
    // `pidfd`.
    let pid = unsafe {
        libc::clone(
            child,
            stack.as_mut_ptr_range().end.cast(),
            flags,
            ptr::from_mut(shared).cast(),
            &raw mut pidfd,
        )
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor.
    Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

extern "C" fn child(shared: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `clone` passed a pointer to a Shared that it does not use until this function returns.
    let shared = unsafe { &mut *shared.cast::<Shared<'_>>() };
    shared.error = match set_up(shared) {
        Ok(()) => execute(shared),
        Err(error) => error,
    };
    // The parent reads `error`; this status is not used.
    127
}

/// Sets up the death signal, the process group and the descriptors.
fn set_up(shared: &Shared<'_>) -> Result<(), i32> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
    // SAFETY: takes no arguments.
    if unsafe { libc::getppid() } != shared.parent {
        // The parent died before the death signal was set.
        return Err(libc::ESRCH);
    }
    // SAFETY: takes numbers only.
    check(unsafe { libc::setpgid(0, 0) })?;
    for (number, descriptor) in (0..).zip(shared.descriptors) {
        // SAFETY: `number` is not one of the descriptors still to be copied, by the contract of `start`;
        // the child has a copy of the descriptor table.
        check(unsafe { libc::dup2(*descriptor, number) })?;
    }
    // SAFETY: closes all other descriptors, in the table of the child only.
    check(unsafe { libc::close_range(shared.descriptors.len() as u32, u32::MAX, CLOSE_LATER) })?;
    reset_signals(&shared.signals);
    Ok(())
}

/// Closes at exec, which is cheaper.
const CLOSE_LATER: libc::c_int = libc::CLOSE_RANGE_CLOEXEC as libc::c_int;

/// Executes the program. Returns the error number on failure.
fn execute(shared: &mut Shared<'_>) -> i32 {
    let (arguments, environment) = (shared.arguments.as_ptr(), shared.environment.as_ptr());
    shared.exec = stamp!(Exec);
    // SAFETY: valid strings and arrays, by the contract of `start`.
    unsafe { libc::execve(shared.path.as_ptr(), arguments, environment) };
    last_error()
}

fn check(result: libc::c_int) -> Result<(), i32> {
    if result < 0 {
        Err(last_error())
    } else {
        Ok(())
    }
}

fn last_error() -> i32 {
    // SAFETY: the location belongs to the suspended parent.
    unsafe { *libc::__errno_location() }
}

/// Blocks all signals of this thread, because a handler in the child would run in the memory of the
/// parent. Returns the previous mask.
fn block_signals() -> libc::sigset_t {
    // SAFETY: all-zero sets are valid, and the calls only fill them.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        before
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: a set that `block_signals` returned.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}

/// Resets what exec does not: Rust programs ignore SIGPIPE, and signals are blocked.
fn reset_signals(before: &libc::sigset_t) {
    // SAFETY: without CLONE_SIGHAND the child has its own table of handlers.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    restore_signals(before);
}
