//! What memory the domain has. Xen's own first domain finds no memory map in its start
//! info, and has to ask.

use super::hypercall::{Xen, MEMORY_OP, SELF};
use trapline_abi::platform::{MemoryMapEntry, PAGE};

/// Operations of [`MEMORY_OP`] (Xen `public/memory.h`).
const ADD_TO_PHYSMAP: u64 = 7;
const MEMORY_MAP: u64 = 9;

/// The space of addresses in which the page that Xen shares is the only one.
const SHARED_INFO: u32 = 0;

/// The most entries of a memory map: those of an E820 map.
const MOST_ENTRIES: usize = 128;

/// `xen_memory_map`.
#[repr(C)]
struct MemoryMap {
    entries: u32,
    reserved: u32,
    buffer: u64,
}

/// An entry of an E820 map (ACPI 6.5, table 15.5).
#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Entry {
    address: u64,
    size: u64,
    kind: u32,
}

/// The memory map of this domain; nothing if Xen does not tell.
pub fn memory_map() -> impl Iterator<Item = MemoryMapEntry> {
    let nothing = Entry {
        address: 0,
        size: 0,
        kind: 0,
    };
    let mut told = [nothing; MOST_ENTRIES];
    let mut asked = MemoryMap {
        entries: MOST_ENTRIES as u32,
        reserved: 0,
        buffer: &raw mut told as u64,
    };
    // SAFETY: the structure that the operation reads and writes, which names a buffer
    // and how much fits it.
    let answer = unsafe { Xen::here().call(MEMORY_OP, MEMORY_MAP, &raw mut asked as u64) };
    let count = if answer == 0 { asked.entries } else { 0 };
    told.into_iter()
        .take(count as usize)
        .map(|entry| MemoryMapEntry {
            address: entry.address,
            size: entry.size,
            kind: entry.kind,
            reserved: 0,
        })
}

/// `xen_add_to_physmap`.
#[repr(C)]
struct Placed {
    domain: u16,
    size: u16,
    space: u32,
    index: u64,
    frame: u64,
}

/// Puts the page that Xen shares with the domain at `address`; whether it is there.
///
/// # Safety
/// The page at `address` is used for nothing else, now or later: its memory is gone.
pub unsafe fn share_page(xen: Xen, address: u64) -> bool {
    let placed = Placed {
        domain: SELF,
        size: 0,
        space: SHARED_INFO,
        index: 0,
        frame: address / PAGE,
    };
    // SAFETY: the structure that the operation reads; the caller gives the page.
    unsafe { xen.call(MEMORY_OP, ADD_TO_PHYSMAP, &raw const placed as u64) == 0 }
}
