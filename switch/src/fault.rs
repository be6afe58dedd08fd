//! Accesses to memory that its owner has truncated: SIGBUS is answered by a private page in place of the lost one.
//!
//! A VMM can shrink the file of a guest's memory after it was mapped. The access continues with zeros or is lost, which
//! harms this guest alone.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Maximum number of mappings at a time.
const MOST: usize = 1024;

/// A mapping: first address and length; 0 if unused.
struct Slot {
    start: AtomicUsize,
    length: AtomicUsize,
}

static SLOTS: [Slot; MOST] = [const {
    Slot {
        start: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
    }
}; MOST];

static REPLACED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of pages that were replaced.
pub fn replaced_pages() -> u64 {
    REPLACED.load(Ordering::Relaxed)
}

/// Protects accesses to a mapping while it exists.
pub struct Guard(Option<usize>);

impl Guard {
    /// Protects a mapping. With too many of them, a fault ends the process as it would without.
    pub fn new(start: usize, length: usize) -> Self {
        let claimed = SLOTS.iter().position(|slot| {
            let order = Ordering::AcqRel;
            slot.start
                .compare_exchange(0, start, order, Ordering::Relaxed)
                .is_ok()
        });
        if let Some(index) = claimed {
            SLOTS[index].length.store(length, Ordering::Release);
        }
        Self(claimed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(index) = self.0 {
            SLOTS[index].length.store(0, Ordering::Release);
            SLOTS[index].start.store(0, Ordering::Release);
        }
    }
}

/// Returns whether a mapping has this address.
fn is_guarded(address: usize) -> bool {
    SLOTS.iter().any(|slot| {
        let start = slot.start.load(Ordering::Acquire);
        start != 0 && address.wrapping_sub(start) < slot.length.load(Ordering::Acquire)
    })
}

extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    const PAGE: usize = 4096;
    // SAFETY: the kernel gives a valid structure, which for SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    if is_guarded(address) {
        let page = (address & !(PAGE - 1)) as *mut libc::c_void;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: mmap may be called in a handler. The page is one of a guarded mapping, and is lost.
        if unsafe { libc::mmap(page, PAGE, access, flags, -1, 0) } == page {
            REPLACED.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
    // SAFETY: with the default action the access, which is repeated, ends the process.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

/// Installs the handler of SIGBUS.
///
/// # Errors
/// The kernel refuses.
pub fn install() -> io::Result<()> {
    // SAFETY: all bytes zero are a valid value of this C structure; the handler calls only what a handler may call.
    let status = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut())
    };
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::memory_file;
    use crate::memory::{Cache, Memory, Spec};

    #[test]
    fn truncated_memory_reads_as_zero() {
        install().unwrap();
        let file = memory_file(0x4000).unwrap();
        let spec = Spec {
            guest: 0,
            size: 0x4000,
            user: 0,
            offset: 0,
        };
        let memory = Memory::new(&[(spec, file.try_clone().unwrap())]).unwrap();
        let at = memory.guest(&mut Cache::default(), 0x3000, 8).unwrap();
        // SAFETY: the address is in the mapping, which lives.
        unsafe { at.as_ptr().write_volatile(7) };
        file.set_len(0x1000).unwrap();
        let before = replaced_pages();
        // SAFETY: the same; the page is replaced at the access.
        assert_eq!(unsafe { at.as_ptr().read_volatile() }, 0);
        assert_eq!(replaced_pages(), before + 1);
    }
}
