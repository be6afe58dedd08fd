//! Requests to the kernel's devices of Xen.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use trapline_interface::{Errno, Missing};

/// Returns the number of the request `number` of a device, whose argument has `size` bytes: `_IOC(_IOC_NONE, ...)` (Linux
/// `include/uapi/asm-generic/ioctl.h`).
pub(crate) const fn request_number(device: u8, number: u8, size: usize) -> libc::c_ulong {
    (size as libc::c_ulong) << 16 | (device as libc::c_ulong) << 8 | number as libc::c_ulong
}

/// Opens a device for reading and writing.
pub(crate) fn open(device: &'static str) -> Result<File, Missing> {
    let file = File::options().read(true).write(true).open(device);
    file.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Missing::NotXen { device },
        _ => Missing::Unusable {
            device,
            source: Errno::from(error),
        },
    })
}

/// Makes a request. Returns its result, which is not negative.
///
/// # Safety
/// `argument` must be what the request `number` of this device reads and writes.
pub(crate) unsafe fn request<T>(
    device: &File,
    number: libc::c_ulong,
    argument: &mut T,
) -> io::Result<libc::c_int> {
    // SAFETY: by contract.
    match unsafe { libc::ioctl(device.as_raw_fd(), number, &raw mut *argument) } {
        ..0 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}
