//! What a kernel is told that is entered by the 64-bit boot protocol: `boot_params`, the
//! "zero page" (Linux, arch/x86/include/uapi/asm/bootparam.h).

use super::bzimage::{BzImage, HEADER};
use crate::boot::info::memory_map;
use std::ops::Range;

/// Its length in bytes.
pub const LENGTH: usize = 4096;

// Fields.
const RSDP: usize = 0x070;
const MAP_ENTRIES: usize = 0x1e8;
const LOADER: usize = 0x210;
const INITRD: usize = 0x218;
const INITRD_SIZE: usize = 0x21c;
const COMMAND_LINE: usize = 0x228;
const MAP: usize = 0x2d0;
const MAP_ENTRY: usize = 20;

/// A loader without a number of its own.
const UNKNOWN_LOADER: u8 = 0xff;

/// What a kernel is told. Addresses are below 4 GiB.
pub struct Told<'a> {
    /// Its own header, which it gets back.
    pub kernel: &'a BzImage<'a>,
    /// In bytes, from address 0.
    pub memory: u64,
    /// Where the command line is.
    pub command_line: u64,
    /// Where the initramfs is; empty if there is none.
    pub initrd: Range<u64>,
    /// Where the pointer to the ACPI tables is.
    pub rsdp: u64,
}

/// The page.
pub fn page(told: &Told<'_>) -> Vec<u8> {
    let mut page = vec![0; LENGTH];
    let header = told.kernel.header;
    page[HEADER..HEADER + header.len()].copy_from_slice(header);
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    let word = |value: u64| (value as u32).to_le_bytes();
    let Range { start, end } = told.initrd;
    put(LOADER, &[UNKNOWN_LOADER]);
    put(RSDP, &told.rsdp.to_le_bytes());
    put(COMMAND_LINE, &word(told.command_line));
    put(INITRD, &word(start));
    put(INITRD_SIZE, &word(end - start));
    let map = memory_map(told.memory);
    put(MAP_ENTRIES, &[map.len() as u8]);
    for (number, entry) in map.iter().enumerate() {
        let at = MAP + number * MAP_ENTRY;
        put(at, &entry.address.to_le_bytes());
        put(at + 8, &entry.size.to_le_bytes());
        put(at + 16, &entry.kind.to_le_bytes());
    }
    page
}
