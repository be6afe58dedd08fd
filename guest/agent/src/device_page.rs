//! Registers of devices, mapped into this process.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use trapline_abi::platform::PAGE;

/// Physical memory as a file: major and minor number (Linux,
/// Documentation/admin-guide/devices.txt).
const MEMORY: (u32, u32) = (1, 1);
const PATH: &CStr = c"/dev/mem";

/// Maps the page of a device at a physical address.
///
/// # Errors
/// The kernel refuses.
pub fn device_page(address: u64) -> io::Result<NonNull<u8>> {
    let (major, minor) = MEMORY;
    // SAFETY: creates a device node; an existing one is fine.
    unsafe {
        libc::mknod(
            PATH.as_ptr(),
            libc::S_IFCHR | 0o600,
            libc::makedev(major, minor),
        )
    };
    let memory = File::options().read(true).write(true).open("/dev/mem")?;
    page_of(&memory, address)
}

/// Maps a page of a file that is the memory of devices.
///
/// # Errors
/// The kernel refuses.
pub fn page_of(file: &File, offset: u64) -> io::Result<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice; what it shows are
    // registers of a device that no driver uses, otherwise the kernel refuses.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            PAGE as usize,
            access,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            offset as libc::off_t,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(page.cast()).ok_or(io::ErrorKind::AddrNotAvailable.into())
}
