//! Privileges and files that the switch may have inherited, and does not need.

use rustix::thread::{set_capabilities, set_no_new_privs, CapabilitySet, CapabilitySets};
use std::io;

/// Closes all descriptors but the standard ones. Called before the first file is opened. Kernels before Linux 5.9 leave them open.
pub fn close_inherited() {
    let (first, last) = (libc::STDERR_FILENO + 1, libc::c_int::MAX);
    // SAFETY: no object of this process owns a descriptor above the standard ones yet.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

/// Drops all capabilities for good. Called before other threads exist, which inherit the result.
///
/// # Errors
/// The kernel refuses.
pub fn drop_all() -> io::Result<()> {
    set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?;
    Ok(())
}
