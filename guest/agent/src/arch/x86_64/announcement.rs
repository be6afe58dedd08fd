//! Announcement of an address to the instrumentation of a simulated machine.

use std::arch::x86_64::__cpuid;
use std::io;
use std::ptr;
use trapline_abi::marker::announcement;

/// Returns whether hypervisors find the length of an intercepted instruction themselves: those on processors of AMD.
pub fn finds_lengths() -> bool {
    // "AuthenticAMD" (AMD APM volume 3, CPUID Fn0000_0000).
    let vendor = __cpuid(0);
    [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes) == [*b"Auth", *b"enti", *b"cAMD"]
}

/// Bytes of a mapping for one announcement.
const PAGE: usize = 4096;

/// A return.
const RET: u8 = 0xc3;

/// Executes the announcement of an address.
///
/// # Errors
/// Memory for it cannot be mapped.
pub fn announce(address: u64) -> io::Result<()> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let page = unsafe { libc::mmap(ptr::null_mut(), PAGE, access, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mut code = announcement(address).to_vec();
    code.push(RET);
    // SAFETY: the mapping has space for the code, can be written, and nothing else uses it.
    unsafe {
        page.cast::<u8>()
            .copy_from_nonoverlapping(code.as_ptr(), code.len())
    };
    // SAFETY: the mapping of this function.
    if unsafe { libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_EXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the page has a function that sets the register of the result, and returns.
    let function: extern "C" fn() -> u64 = unsafe { std::mem::transmute(page) };
    assert_eq!(function(), address, "the announcement");
    // SAFETY: the mapping of this function, which nothing uses any more.
    unsafe { libc::munmap(page, PAGE) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_can_be_executed() {
        announce(0xffff_ffff_c040_1a7b).unwrap();
        announce(0).unwrap();
    }
}
