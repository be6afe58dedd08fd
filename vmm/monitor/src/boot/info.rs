//! PVH start info, memory map and command line, in one block below 1 MiB.

use alloc::vec::Vec;
use core::ops::Range;
use trapline_abi::platform::{
    MemoryMapEntry, StartInfo, MEMORY_RAM, MEMORY_RESERVED, START_INFO_MAGIC,
};

/// Largest memory of an image in bytes, and of any guest below 4 GiB; device addresses follow.
pub const MAX_MEMORY: u64 = 0xd000_0000;

/// Address of the memory of a Linux guest that exceeds [`MAX_MEMORY`].
pub const HIGH_MEMORY: u64 = 1 << 32;

/// Largest memory of a Linux guest in bytes.
pub const MAX_LINUX_MEMORY: u64 = 1 << 40;

/// Address of the block: the lowest that every process may map (`vm.mmap_min_addr`). Images must not overlap it.
pub const BOOT_INFO: u64 = 0x1_0000;

const MEMORY_MAP: u64 = BOOT_INFO + 0x40;
const MODULE: u64 = BOOT_INFO + 0xc0;
const COMMAND_LINE: u64 = BOOT_INFO + 0x100;

/// End of the block.
pub const BOOT_INFO_END: u64 = 0x1_2000;

/// Longest command line in bytes, without the terminating zero.
pub const MAX_COMMAND_LINE: usize = 4095;

/// VGA memory and firmware of a PC, without RAM.
const HOLE: u64 = 0xa_0000;
const HOLE_END: u64 = 0x10_0000;

const ENTRY_BYTES: usize = 24;

/// Contents of the block.
#[derive(Default)]
pub(crate) struct GuestInfo<'a> {
    /// Memory in bytes, at least 1 MiB.
    pub memory: u64,
    /// Command line without zero bytes, at most [`MAX_COMMAND_LINE`] bytes.
    pub command_line: &'a str,
    /// Address range of the initramfs, if any.
    pub module: Option<Range<u64>>,
    /// Address of the RSDP, or 0.
    pub rsdp: u64,
}

/// Returns the bytes of the block at [`BOOT_INFO`].
pub(crate) fn boot_info(guest: &GuestInfo<'_>) -> Vec<u8> {
    let map = || memory_map(guest.memory);
    let mut info = StartInfo {
        magic: START_INFO_MAGIC,
        version: 1,
        command_line: COMMAND_LINE,
        rsdp: guest.rsdp,
        memory_map: MEMORY_MAP,
        memory_map_entries: map().count() as u32,
        ..StartInfo::default()
    };
    if guest.module.is_some() {
        (info.modules, info.module_count) = (MODULE, 1);
    }
    let mut bytes = Vec::with_capacity(0x101 + guest.command_line.len());
    put_info(&info, &mut bytes);
    pad(&mut bytes, MEMORY_MAP);
    map().for_each(|entry| put_entry(&entry, &mut bytes));
    if let Some(module) = &guest.module {
        pad(&mut bytes, MODULE);
        put_module(module, &mut bytes);
    }
    pad(&mut bytes, COMMAND_LINE);
    bytes.extend_from_slice(guest.command_line.as_bytes());
    bytes.push(0);
    bytes
}

/// Returns the memory map in ascending order.
pub(crate) fn memory_map(memory: u64) -> impl Iterator<Item = MemoryMapEntry> {
    let entry = |address, end, kind| MemoryMapEntry {
        address,
        size: end - address,
        kind,
        reserved: 0,
    };
    let high = memory.saturating_sub(MAX_MEMORY);
    let all = [
        entry(0, HOLE, MEMORY_RAM),
        entry(HOLE, HOLE_END, MEMORY_RESERVED),
        entry(HOLE_END, memory - high, MEMORY_RAM),
        entry(HIGH_MEMORY, HIGH_MEMORY + high, MEMORY_RAM),
    ];
    all.into_iter().filter(|entry| entry.size > 0)
}

fn pad(bytes: &mut Vec<u8>, until: u64) {
    bytes.resize((until - BOOT_INFO) as usize, 0);
}

fn put_info(info: &StartInfo, bytes: &mut Vec<u8>) {
    for word in [info.magic, info.version, info.flags, info.module_count] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for address in [info.modules, info.command_line, info.rsdp, info.memory_map] {
        bytes.extend_from_slice(&address.to_le_bytes());
    }
    bytes.extend_from_slice(&info.memory_map_entries.to_le_bytes());
    bytes.extend_from_slice(&info.reserved.to_le_bytes());
}

fn put_entry(entry: &MemoryMapEntry, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    bytes.extend_from_slice(&entry.address.to_le_bytes());
    bytes.extend_from_slice(&entry.size.to_le_bytes());
    bytes.extend_from_slice(&entry.kind.to_le_bytes());
    bytes.extend_from_slice(&entry.reserved.to_le_bytes());
    debug_assert_eq!(bytes.len() - start, ENTRY_BYTES);
}

/// Appends a `hvm_modlist_entry` (Xen `public/arch-x86/hvm/start_info.h`) without a command line.
fn put_module(module: &Range<u64>, bytes: &mut Vec<u8>) {
    for word in [module.start, module.end - module.start, 0, 0] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    #[test]
    fn layout_matches_the_protocol() {
        assert_eq!(size_of::<MemoryMapEntry>(), ENTRY_BYTES);
        assert_eq!(size_of::<StartInfo>(), 56);
        let bytes = boot_info(&GuestInfo {
            memory: 64 << 20,
            command_line: "trapline.run=none",
            module: Some(0x80_0000..0x90_1234),
            rsdp: 0xe_0000,
        });
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!((word(0), word(4)), (START_INFO_MAGIC, 1));
        let command_line = (long(24) - BOOT_INFO) as usize;
        assert_eq!(&bytes[command_line..], b"trapline.run=none\0");
        let map = (long(40) - BOOT_INFO) as usize;
        assert_eq!(word(48), 3);
        assert_eq!((word(12), long(32)), (1, 0xe_0000));
        let module = (long(16) - BOOT_INFO) as usize;
        assert_eq!((long(module), long(module + 8)), (0x80_0000, 0x10_1234));
        assert_eq!(long(map + 2 * ENTRY_BYTES), 0x10_0000);
        assert_eq!(long(map + 2 * ENTRY_BYTES + 8), 63 << 20);
        assert_eq!(word(map + 2 * ENTRY_BYTES + 16), MEMORY_RAM);
    }

    #[test]
    fn memory_continues_at_4_gib() {
        let ranges = |memory| -> Vec<_> {
            memory_map(memory)
                .map(|entry| (entry.address, entry.size))
                .collect()
        };
        assert_eq!(ranges(MAX_MEMORY).len(), 3);
        let above = ranges(MAX_MEMORY + 0x1000);
        assert_eq!(above[..3], ranges(MAX_MEMORY));
        assert_eq!(above[3..], [(1 << 32, 0x1000)]);
        let most = crate::boot::MAX_LINUX_MEMORY;
        let usable = memory_map(most).filter(|entry| entry.kind == MEMORY_RAM);
        let sum: u64 = usable.map(|entry| entry.size).sum();
        assert_eq!(sum, most - (HOLE_END - HOLE));
    }

    #[test]
    fn missing_module_is_omitted() {
        let bytes = boot_info(&GuestInfo {
            memory: 1 << 20,
            ..GuestInfo::default()
        });
        assert_eq!(
            (&bytes[12..24], &bytes[32..40]),
            (&[0; 12][..], &[0; 8][..])
        );
    }

    #[test]
    fn longest_command_line_fits() {
        let bytes = boot_info(&GuestInfo {
            memory: 1 << 20,
            command_line: &"x".repeat(MAX_COMMAND_LINE),
            ..GuestInfo::default()
        });
        assert!(BOOT_INFO + bytes.len() as u64 <= BOOT_INFO_END);
    }
}
