//! Accesses to memory that its owner has truncated: SIGBUS is answered by empty memory in place of the whole lost mapping.
//!
//! A VMM can shrink the file of a guest's memory after it was mapped. The access continues with zeros or is lost, and the engine
//! stops the port of that guest.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Maximum number of mappings at a time.
const MOST: usize = 4096;

/// A mapping: first address and length, 0 if unused.
struct Slot {
    start: AtomicUsize,
    length: AtomicUsize,
    is_lost: AtomicBool,
}

static SLOTS: [Slot; MOST] = [const {
    Slot {
        start: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
        is_lost: AtomicBool::new(false),
    }
}; MOST];

static LOST: AtomicU64 = AtomicU64::new(0);

/// Returns how many mappings were lost.
#[inline]
pub fn lost_mappings() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Protects accesses to a mapping while it exists.
pub struct Guard(usize);

impl Guard {
    /// Protects a mapping; `None` if there are too many.
    pub fn new(start: usize, length: usize) -> Option<Self> {
        let index = SLOTS.iter().position(|slot| {
            let order = Ordering::AcqRel;
            slot.start
                .compare_exchange(0, start, order, Ordering::Relaxed)
                .is_ok()
        })?;
        SLOTS[index].is_lost.store(false, Ordering::Relaxed);
        SLOTS[index].length.store(length, Ordering::Release);
        Some(Self(index))
    }

    /// Returns whether memory was found lost.
    pub fn is_lost(&self) -> bool {
        SLOTS[self.0].is_lost.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        SLOTS[self.0].length.store(0, Ordering::Release);
        SLOTS[self.0].start.store(0, Ordering::Release);
    }
}

/// Replaces the mapping that has an address. Returns whether there is one.
fn replace(address: usize) -> bool {
    let found = SLOTS.iter().find_map(|slot| {
        let start = slot.start.load(Ordering::Acquire);
        let length = slot.length.load(Ordering::Acquire);
        let is_it = start != 0 && address.wrapping_sub(start) < length;
        is_it.then_some((slot, start as *mut libc::c_void, length))
    });
    let Some((slot, start, length)) = found else {
        return false;
    };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: mmap may be called in a handler. A guarded mapping is replaced whole: its number of mappings stays one, and huge
    // pages need no part of one.
    let replaced = unsafe { libc::mmap(start, length, access, flags, -1, 0) } == start;
    if replaced && !slot.is_lost.swap(true, Ordering::Relaxed) {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
    replaced
}

extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the error of the interrupted code is that of this thread. The kernel gives a valid structure, which for SIGBUS has
    // an address.
    unsafe {
        let error = *libc::__errno_location();
        if !replace((*info).si_addr() as usize) {
            // With the default action the access, which is repeated, ends the process.
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        }
        *libc::__errno_location() = error;
    }
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
        assert!(!memory.is_lost());
        let before = lost_mappings();
        // SAFETY: the same; all of it is replaced at the access.
        assert_eq!(unsafe { at.as_ptr().read_volatile() }, 0);
        assert!(memory.is_lost());
        assert!(lost_mappings() > before);
        let [first, last] = [0, 0x3fff].map(|it| memory.guest(&mut Cache::default(), it, 1));
        // SAFETY: the same.
        unsafe { first.unwrap().as_ptr().write_volatile(1) };
        file.set_len(0).unwrap();
        // SAFETY: the same; the second truncation does not matter any more.
        let bytes = [first, last].map(|it| unsafe { it.unwrap().as_ptr().read_volatile() });
        assert_eq!(bytes, [1, 0]);
    }
}
