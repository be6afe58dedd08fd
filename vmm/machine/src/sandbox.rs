//! What this process may still do while a guest runs.
//!
//! A seccomp filter, compiled by the build script, allows a dozen system calls by
//! number and kills the process for any other. It looks at no arguments, so that
//! the kernel can decide each call from its number alone: looking at those of
//! `ioctl` would cost 350 to 1,000 instructions at every exit. What this leaves to
//! a guest that has taken this process over: any request to the descriptors that
//! are open (its own machine, its console, its events), reading and writing them,
//! and burning CPU time. It can open no file or socket, map no memory, start no
//! process or thread, and signal nobody.

use std::io;

static FILTER: &[libc::sock_filter] = &include!(concat!(env!("OUT_DIR"), "/filter.rs"));

/// Puts the filter on, for good.
///
/// # Errors
/// The kernel's refusal: it was built without seccomp filters.
pub fn enter() -> io::Result<()> {
    let program = libc::sock_fprog {
        len: FILTER.len() as u16,
        // The kernel only reads it.
        filter: FILTER.as_ptr().cast_mut(),
    };
    // SAFETY: this request takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
    // SAFETY: the program points at as many instructions as it says, which live
    // for ever; the kernel checks and copies them.
    check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    })
}

fn check(status: libc::c_long) -> io::Result<()> {
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
