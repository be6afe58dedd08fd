//! Memory of the domain. The start info of the first domain has no memory map, so Xen is queried.

use super::hypercall::{Xen, MEMORY_OP, SELF};
use trapline_abi::platform::{MemoryMapEntry, PAGE};

/// Operations of [`MEMORY_OP`] (Xen `public/memory.h`).
const ADD_TO_PHYSMAP: u64 = 7;
const MEMORY_MAP: u64 = 9;

/// `XENMAPSPACE_shared_info`: the page that Xen shares.
const SHARED_INFO: u32 = 0;

/// Maximum number of entries of a memory map, as in an E820 map.
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

/// Returns the memory map of this domain, empty if Xen refuses.
pub fn memory_map() -> impl Iterator<Item = MemoryMapEntry> {
    let empty = Entry {
        address: 0,
        size: 0,
        kind: 0,
    };
    let mut map = [empty; MOST_ENTRIES];
    let mut request = MemoryMap {
        entries: MOST_ENTRIES as u32,
        reserved: 0,
        buffer: &raw mut map as u64,
    };
    // SAFETY: the structure that the operation reads and writes, with a buffer and its size.
    let answer = unsafe { Xen::here().call(MEMORY_OP, MEMORY_MAP, &raw mut request as u64) };
    let count = if answer == 0 { request.entries } else { 0 };
    map.into_iter()
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
struct AddToPhysmap {
    domain: u16,
    size: u16,
    space: u32,
    index: u64,
    frame: u64,
}

/// Maps the shared page at `address`. Returns true on success.
///
/// # Safety
/// The page at `address` is used for nothing else, now or later: its memory is replaced.
pub unsafe fn share_page(xen: Xen, address: u64) -> bool {
    let request = AddToPhysmap {
        domain: SELF,
        size: 0,
        space: SHARED_INFO,
        index: 0,
        frame: address / PAGE,
    };
    // SAFETY: the structure that the operation reads; the page is unused by contract.
    unsafe { xen.call(MEMORY_OP, ADD_TO_PHYSMAP, &raw const request as u64) == 0 }
}
