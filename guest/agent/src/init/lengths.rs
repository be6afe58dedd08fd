//! Announces to the instrumentation of a simulated machine where this system finds the length of intercepted
//! instructions ([`trapline_abi::marker::announcement`]). Without instrumentation that has no effect.

use super::script::LengthCalls;
use std::arch::x86_64::__cpuid;
use std::fs;
use std::io;
use std::ptr;
use trapline_abi::marker::announcement;

/// Symbols of Xen, as `/proc/kallsyms` has those of Linux.
const XEN_SYMBOLS: &str = "/proc/xen/xensyms";

/// Returns the addresses of calls, or of functions. Systems without files that list them have none.
pub fn addresses(calls: &LengthCalls<'_>) -> Vec<u64> {
    match calls {
        LengthCalls::Module {
            name,
            section,
            offsets,
        } => {
            let start = fs::read_to_string(format!("/sys/module/{name}/sections/{section}"));
            let start = start.ok().and_then(|text| hexadecimal(text.trim()));
            let Some(start) = start.filter(|start| *start != 0) else {
                return Vec::new();
            };
            offsets.iter().map(|offset| start + offset).collect()
        }
        // Processors of others report lengths, and the list takes a second on their simulated machines.
        LengthCalls::Xen { function } if is_amd() => {
            let symbols = fs::read_to_string(XEN_SYMBOLS).unwrap_or_default();
            symbols
                .lines()
                .filter_map(|line| address_of(line, function))
                .collect()
        }
        LengthCalls::Xen { .. } => Vec::new(),
    }
}

fn is_amd() -> bool {
    // "AuthenticAMD" (AMD APM volume 3, CPUID Fn0000_0000).
    let vendor = __cpuid(0);
    [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes) == [*b"Auth", *b"enti", *b"cAMD"]
}

/// Returns the address of a line `ADDRESS TYPE NAME` of this name.
fn address_of(line: &str, name: &str) -> Option<u64> {
    let mut words = line.split_ascii_whitespace();
    let (address, _, symbol) = (words.next()?, words.next()?, words.next()?);
    (symbol == name).then(|| hexadecimal(address))?
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
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

    #[test]
    fn functions_are_found_by_their_whole_name() {
        let line = "ffff82d040293460 T svm_get_insn_len";
        let found = address_of(line, "svm_get_insn_len");
        assert_eq!(found, Some(0xffff_82d0_4029_3460));
        assert_eq!(address_of(line, "svm_get_insn"), None);
        assert_eq!(address_of("ffff82d040293460", "svm_get_insn_len"), None);
    }

    #[test]
    fn systems_that_tell_nothing_have_no_addresses() {
        let missing = LengthCalls::Module {
            name: "no_such_module",
            section: ".text",
            offsets: vec![1],
        };
        assert_eq!(addresses(&missing), []);
    }
}
