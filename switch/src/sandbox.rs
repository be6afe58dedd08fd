//! The system calls of a switch that runs: those of its sockets, of the memory of guests, and of its threads.
//!
//! It can open no file, start no program, and reach no network. It can map files that it is given, and connect to the sockets
//! of its ports. Other calls fail: what a port makes the switch do ends that port alone.

use seccompiler::{
    apply_filter_all_threads, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;

/// Calls with any arguments.
const ALLOWED: [libc::c_long; 44] = [
    // Frames, and notifications.
    libc::SYS_io_submit,
    libc::SYS_io_getevents,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_write,
    // Frames of taps, which are written by `writev`.
    libc::SYS_read,
    // Messages of vhost-user, and counters.
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_writev,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_setsockopt,
    libc::SYS_fcntl,
    libc::SYS_close,
    // Memory of guests, and of this process.
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    // Threads, which may be just about to start.
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_sched_yield,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getaffinity,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Calls whose arguments are restricted.
fn restricted() -> Result<Vec<(libc::c_long, Vec<SeccompRule>)>, seccompiler::BackendError> {
    let masked = |argument, mask: u64, value| {
        let condition = SeccompCmpOp::MaskedEq(mask);
        SeccompCondition::new(argument, SeccompCmpArgLen::Qword, condition, value)
    };
    let executable = libc::PROT_EXEC as u64;
    let all = u64::MAX;
    let rule = |conditions| SeccompRule::new(vec![conditions]);
    Ok(vec![
        (libc::SYS_mmap, vec![rule(masked(2, executable, 0)?)?]),
        (libc::SYS_mprotect, vec![rule(masked(2, executable, 0)?)?]),
        (
            libc::SYS_socket,
            vec![rule(masked(0, all, libc::AF_UNIX as u64)?)?],
        ),
    ])
}

/// Prepares the sandbox, before the first thread is started: a thread that allocates memory would ask for the number of CPUs, in
/// a file, to limit the number of arenas (mallopt(3), `M_ARENA_MAX`).
pub fn prepare() {
    // SAFETY: sets a parameter of the allocator.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Confines all threads of this process, for good.
///
/// # Errors
/// The kernel has no seccomp.
pub fn enter() -> Result<(), seccompiler::Error> {
    let mut rules: BTreeMap<libc::c_long, Vec<SeccompRule>> =
        ALLOWED.into_iter().map(|call| (call, Vec::new())).collect();
    rules.extend(restricted()?);
    let fail = SeccompAction::Errno(libc::EPERM as u32);
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, fail, SeccompAction::Allow, architecture)?;
    let program: BpfProgram = filter.try_into()?;
    apply_filter_all_threads(&program)
}
