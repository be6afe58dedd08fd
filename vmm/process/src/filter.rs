//! The seccomp filter of the guest's process.
//!
//! The tracer skips every system call of the guest before the kernel looks at it. The filter is a second lock: it
//! kills the process unless the call changes mappings of its own memory, which the tracer makes it do. None of
//! these calls can create memory, open anything, or reach another process.
//!
//! A process that reports signals itself ([`crate::signalled`]) has no tracer, and the filter is the only lock. It also
//! allows to return from a signal, to leave the CPU to another process, and to wait for and wake up waiters at a word of the
//! process's memory.

use crate::crossing::SignalSource;
use crate::layout::SWITCHER;
use crate::listener::REPORT;
use std::mem::size_of;
use trapline_abi::platform::HYPERCALL_UNKNOWN;
use trapline_interface::PAGE;

// BPF opcodes (linux/bpf_common.h) and offsets (linux/seccomp.h).
const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const POINTER_LOW: u32 = 8;
const POINTER_HIGH: u32 = 12;
const SECOND_ARGUMENT: u32 = 24;
/// `FUTEX_WAKE`, behind `FUTEX_WAIT`.
const LAST_FUTEX_OPERATION: u32 = 1;
const X86_64: u32 = 0xc000_003e;

/// Calls that change mappings.
const ALLOWED: [libc::c_long; 3] = [libc::SYS_mprotect, libc::SYS_munmap, libc::SYS_mremap];

const fn step(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Filter of a traced process.
const TRACED: [libc::sock_filter; 8] = [
    step(LOAD, 0, 0, ARCHITECTURE),
    step(IF_EQUAL, 0, 4, X86_64),
    step(LOAD, 0, 0, NUMBER),
    step(IF_EQUAL, 3, 0, ALLOWED[0] as u32),
    step(IF_EQUAL, 2, 0, ALLOWED[1] as u32),
    step(IF_EQUAL, 1, 0, ALLOWED[2] as u32),
    step(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
    step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
];

/// Filter of a process that reports signals itself: outside of the switcher's first page no call is allowed. The last
/// step is what such a call does.
const WITH_HANDLER: [libc::sock_filter; 18] = [
    step(LOAD, 0, 0, ARCHITECTURE),
    step(IF_EQUAL, 0, 13, X86_64),
    step(LOAD, 0, 0, POINTER_HIGH),
    step(IF_EQUAL, 0, 13, (SWITCHER >> 32) as u32),
    step(LOAD, 0, 0, POINTER_LOW),
    step(IF_AT_LEAST, 11, 0, SWITCHER as u32 + PAGE as u32),
    step(LOAD, 0, 0, NUMBER),
    step(IF_EQUAL, 8, 0, ALLOWED[0] as u32),
    step(IF_EQUAL, 7, 0, ALLOWED[1] as u32),
    step(IF_EQUAL, 6, 0, ALLOWED[2] as u32),
    step(IF_EQUAL, 5, 0, libc::SYS_rt_sigreturn as u32),
    step(IF_EQUAL, 4, 0, libc::SYS_sched_yield as u32),
    step(IF_EQUAL, 0, 2, libc::SYS_futex as u32),
    step(LOAD, 0, 0, SECOND_ARGUMENT),
    step(IF_AT_LEAST, 0, 1, LAST_FUTEX_OPERATION + 1),
    step(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
    step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    step(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
];

/// Filter that notifies its listener of an image's hypercalls, and of the handler's reports.
const NOTIFYING: [libc::sock_filter; 19] = [
    step(LOAD, 0, 0, ARCHITECTURE),
    step(IF_EQUAL, 0, 11, X86_64),
    step(LOAD, 0, 0, POINTER_HIGH),
    step(IF_EQUAL, 0, 11, (SWITCHER >> 32) as u32),
    step(LOAD, 0, 0, POINTER_LOW),
    step(IF_AT_LEAST, 9, 0, SWITCHER as u32 + PAGE as u32),
    step(LOAD, 0, 0, NUMBER),
    step(IF_EQUAL, 6, 0, ALLOWED[0] as u32),
    step(IF_EQUAL, 5, 0, ALLOWED[1] as u32),
    step(IF_EQUAL, 4, 0, ALLOWED[2] as u32),
    step(IF_EQUAL, 3, 0, libc::SYS_rt_sigreturn as u32),
    step(IF_EQUAL, 2, 0, libc::SYS_close as u32), // of the listener, which the VMM takes
    step(IF_EQUAL, 5, 0, REPORT),
    step(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
    step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    step(LOAD, 0, 0, NUMBER),
    step(IF_EQUAL, 1, 0, HYPERCALL_UNKNOWN as u32),
    step(RETURN, 0, 0, libc::SECCOMP_RET_TRAP),
    step(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
];

fn steps(source: Option<SignalSource>) -> Vec<libc::sock_filter> {
    let mut steps = match source {
        None => return TRACED.to_vec(),
        Some(SignalSource::NotifyingFilter) => return NOTIFYING.to_vec(),
        Some(_) => WITH_HANDLER.to_vec(),
    };
    if let (Some(SignalSource::Filter), Some(last)) = (source, steps.last_mut()) {
        last.k = libc::SECCOMP_RET_TRAP;
    }
    steps
}

/// Returns a `struct sock_fprog` that will lie at `address`, followed by its program.
pub(crate) fn program(address: u64, source: Option<SignalSource>) -> Vec<u8> {
    let steps = steps(source);
    let start = size_of::<libc::sock_fprog>();
    let mut bytes = vec![0; start];
    bytes[..2].copy_from_slice(&(steps.len() as u16).to_ne_bytes());
    bytes[8..16].copy_from_slice(&(address + start as u64).to_ne_bytes());
    for step in steps {
        bytes.extend(step.code.to_ne_bytes());
        bytes.extend([step.jt, step.jf]);
        bytes.extend(step.k.to_ne_bytes());
    }
    debug_assert!(bytes.len() <= PAGE);
    bytes
}
