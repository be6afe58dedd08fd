//! System calls that std lacks.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

/// Mounts a file system without a device.
///
/// # Errors
/// The kernel refuses.
pub fn mount(kind: &str, at: &str) -> io::Result<()> {
    mount_from(kind, kind, at)
}

/// Mounts `source`, and creates the directory `at` if it is missing.
///
/// # Errors
/// The kernel refuses.
pub fn mount_from(source: &str, kind: &str, at: &str) -> io::Result<()> {
    mount_with(source, kind, at, 0)
}

/// Mounts `source` without write access, not even for times of access, and creates the directory `at` if it is missing.
///
/// # Errors
/// The kernel refuses.
pub fn mount_read_only(source: &str, kind: &str, at: &str) -> io::Result<()> {
    mount_with(source, kind, at, libc::MS_RDONLY | libc::MS_NOATIME)
}

/// Allows writes to the file system that [`mount_read_only`] mounted at `at`.
///
/// # Errors
/// The kernel refuses.
pub fn allow_writes(at: &str) -> io::Result<()> {
    mount_with("none", "none", at, libc::MS_REMOUNT | libc::MS_NOATIME)
}

fn mount_with(source: &str, kind: &str, at: &str, flags: libc::c_ulong) -> io::Result<()> {
    if !Path::new(at).exists() {
        fs::create_dir(at)?;
    }
    let source = CString::new(source)?;
    let (kind, at) = (CString::new(kind)?, CString::new(at)?);
    // SAFETY: strings that outlive the call, and no data.
    let result = unsafe {
        libc::mount(
            source.as_ptr(),
            at.as_ptr(),
            kind.as_ptr(),
            flags,
            std::ptr::null(),
        )
    };
    zero_or_error(result.into())
}

/// Loads a kernel module.
///
/// # Errors
/// The file cannot be read, or the kernel refuses.
pub fn insert_module(path: &str, options: &str) -> io::Result<()> {
    let file = File::open(path)?;
    let options = CString::new(options)?;
    // SAFETY: an open descriptor, a string that outlives the call, and no flags.
    let result = unsafe {
        libc::syscall(
            libc::SYS_finit_module,
            file.as_raw_fd(),
            options.as_ptr(),
            0,
        )
    };
    zero_or_error(result)
}

/// Converts the result of a system call that returns 0 or sets `errno`.
///
/// # Errors
/// The last error of the operating system.
pub fn zero_or_error(result: libc::c_long) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits until one of `descriptors` is readable, for at most `milliseconds`. Returns false on timeout.
///
/// # Errors
/// The kernel refuses.
pub fn wait_readable(descriptors: &[BorrowedFd<'_>], milliseconds: u64) -> io::Result<bool> {
    Ok(readable(descriptors, milliseconds)?.contains(&true))
}

/// Waits until one of `descriptors` is readable, for at most `milliseconds`. Returns for each whether it is.
///
/// # Errors
/// The kernel refuses.
pub fn readable(descriptors: &[BorrowedFd<'_>], milliseconds: u64) -> io::Result<Vec<bool>> {
    wait_for(libc::POLLIN, descriptors, milliseconds)
}

/// Waits until a descriptor is writable, for at most `milliseconds`. Returns false on timeout.
///
/// # Errors
/// The kernel refuses.
pub fn wait_writable(descriptor: BorrowedFd<'_>, milliseconds: u64) -> io::Result<bool> {
    Ok(wait_for(libc::POLLOUT, &[descriptor], milliseconds)?.contains(&true))
}

fn wait_for(
    events: libc::c_short,
    descriptors: &[BorrowedFd<'_>],
    milliseconds: u64,
) -> io::Result<Vec<bool>> {
    let wanted = |descriptor: &BorrowedFd<'_>| libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events,
        revents: 0,
    };
    let mut wanted: Vec<_> = descriptors.iter().map(wanted).collect();
    let timeout = i32::try_from(milliseconds).unwrap_or(i32::MAX);
    // SAFETY: an array of the given length, of open descriptors.
    match unsafe { libc::poll(wanted.as_mut_ptr(), wanted.len() as u64, timeout) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(wanted.iter().map(|request| request.revents != 0).collect()),
    }
}
