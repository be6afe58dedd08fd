//! Ports. Access is requested only while a port is used: otherwise Linux checks the I/O bitmap at each return to the
//! process and its children, which adds 54 instructions to each exit of a VMM.

use std::arch::asm;
use std::io;

/// Access to a range of ports, until it is dropped.
pub struct PortAccess {
    first: u16,
    count: u8,
}

impl PortAccess {
    /// Requests access to `count` ports from `first` on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn request(first: u16, count: u8) -> io::Result<Self> {
        // SAFETY: numbers only. The ports belong to devices that the lab has added for this.
        match unsafe { libc::ioperm(first.into(), count.into(), 1) } {
            0 => Ok(Self { first, count }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for PortAccess {
    fn drop(&mut self) {
        // SAFETY: as in `request`.
        unsafe { libc::ioperm(self.first.into(), self.count.into(), 0) };
    }
}

/// Writes a byte to a port that the process may use.
#[inline(always)]
pub fn out8(port: u16, value: u8) {
    // SAFETY: without access the process ends; the workloads use a scratch register only.
    unsafe {
        asm!("out dx, al", in("dx") port, in("al") value, options(nostack, nomem, preserves_flags));
    }
}

/// Reads a byte from a port that the process may use.
#[inline(always)]
pub fn in8(port: u16) -> u8 {
    let value;
    // SAFETY: as in `out8`.
    unsafe {
        asm!("in al, dx", in("dx") port, out("al") value, options(nostack, nomem, preserves_flags));
    }
    value
}
