//! `boot_params`, the "zero page" (Linux, arch/x86/include/uapi/asm/bootparam.h).

use super::bzimage::{BzImage, HEADER};
use crate::boot::info::memory_map;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Length in bytes.
pub const LENGTH: usize = 4096;

// Offsets of fields.
const RSDP: usize = 0x070;
const MAP_ENTRIES: usize = 0x1e8;
const LOADER: usize = 0x210;
const INITRD: usize = 0x218;
const INITRD_SIZE: usize = 0x21c;
const COMMAND_LINE: usize = 0x228;
const MAP: usize = 0x2d0;
const MAP_ENTRY: usize = 20;

/// `type_of_loader` of an unregistered boot loader.
const UNKNOWN_LOADER: u8 = 0xff;

/// Values of the fields. Addresses are below 4 GiB.
pub struct GuestInfo<'a> {
    /// The kernel, whose setup header is copied.
    pub kernel: &'a BzImage<'a>,
    /// Memory in bytes, from address 0, and from [`HIGH_MEMORY`](crate::boot::HIGH_MEMORY) what exceeds
    /// [`MAX_MEMORY`](crate::boot::MAX_MEMORY).
    pub memory: u64,
    /// Address of the command line.
    pub command_line: u64,
    /// Address range of the initramfs; may be empty.
    pub initrd: Range<u64>,
    /// Address of the RSDP.
    pub rsdp: u64,
}

/// Returns the page.
pub fn page(info: &GuestInfo<'_>) -> Vec<u8> {
    let mut page = vec![0; LENGTH];
    let header = info.kernel.header;
    page[HEADER..HEADER + header.len()].copy_from_slice(header);
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    let word = |value: u64| (value as u32).to_le_bytes();
    let Range { start, end } = info.initrd;
    put(LOADER, &[UNKNOWN_LOADER]);
    put(RSDP, &info.rsdp.to_le_bytes());
    put(COMMAND_LINE, &word(info.command_line));
    put(INITRD, &word(start));
    put(INITRD_SIZE, &word(end - start));
    let map = || memory_map(info.memory);
    put(MAP_ENTRIES, &[map().count() as u8]);
    for (number, entry) in map().enumerate() {
        let at = MAP + number * MAP_ENTRY;
        put(at, &entry.address.to_le_bytes());
        put(at + 8, &entry.size.to_le_bytes());
        put(at + 16, &entry.kind.to_le_bytes());
    }
    page
}
