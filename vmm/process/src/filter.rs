//! The seccomp filter of the guest's process.
//!
//! The tracer skips every system call of the guest before the kernel looks at it. The filter is a second lock: it
//! kills the process unless the call changes mappings of its own memory, which the tracer makes it do. None of
//! these calls can create memory, open anything, or reach another process.

use std::mem::size_of;
use trapline_interface::PAGE;

// BPF opcodes (linux/bpf_common.h) and offsets (linux/seccomp.h).
const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const X86_64: u32 = 0xc000_003e;

/// Calls that change mappings.
const ALLOWED: [libc::c_long; 3] = [libc::SYS_mprotect, libc::SYS_munmap, libc::SYS_mremap];

const fn step(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

const FILTER: [libc::sock_filter; 8] = [
    step(LOAD, 0, 0, ARCHITECTURE),
    step(IF_EQUAL, 0, 4, X86_64),
    step(LOAD, 0, 0, NUMBER),
    step(IF_EQUAL, 3, 0, ALLOWED[0] as u32),
    step(IF_EQUAL, 2, 0, ALLOWED[1] as u32),
    step(IF_EQUAL, 1, 0, ALLOWED[2] as u32),
    step(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
    step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
];

/// Returns a `struct sock_fprog` that will lie at `address`, followed by its program.
pub(crate) fn program(address: u64) -> Vec<u8> {
    let start = size_of::<libc::sock_fprog>();
    let mut bytes = vec![0; start];
    bytes[..2].copy_from_slice(&(FILTER.len() as u16).to_ne_bytes());
    bytes[8..16].copy_from_slice(&(address + start as u64).to_ne_bytes());
    for step in FILTER {
        bytes.extend(step.code.to_ne_bytes());
        bytes.extend([step.jt, step.jf]);
        bytes.extend(step.k.to_ne_bytes());
    }
    debug_assert!(bytes.len() <= PAGE);
    bytes
}
