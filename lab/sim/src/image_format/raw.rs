//! The image as a flat binary, for VMMs that load a file at an address and enter it at its first byte: in real mode (with
//! a code segment base of 16 times its selector), in protected mode with flat segments, or in long mode with memory
//! mapped to itself. The binary contains its memory map and its command line. Its lowest address is at most 1 MiB, or at
//! least 16 MiB, and it is in one piece. Bytes below 0x600 are overwritten.

use super::bzimage::{self, LONG_MODE};
use super::Image;
use core::ops::Range;

/// Offset of the command line, which ends with a zero before the shim. It is written before each start.
pub const COMMAND_LINE: u64 = 0x440;

/// Size of the entry code, and the offsets of its parts.
const SIZE: usize = 0x100;
const PROTECTED: usize = 0x40;
const REAL: usize = 0x70;
const FLAT: usize = 0xc0;
const TABLE: usize = 0xd0;
const LIMIT: usize = 0xe8;

/// End of the stack, in memory that is free on a PC.
const STACK: usize = 0x600;

/// Offset of boot_params (Linux Documentation/arch/x86/zero-page.rst), of which the shim reads the command line's address
/// and the E820 map.
const PARAMETERS: usize = SIZE;
const E820_ENTRIES: usize = PARAMETERS + 0x1e8;
const E820_TABLE: usize = PARAMETERS + 0x2d0;

/// Offset of the shim. It and all before are below the image's memory if the binary is loaded at 1 MiB.
const SHIM: usize = 0xc00;

/// Type of usable memory in an E820 map.
const USABLE: u32 = 1;

core::arch::global_asm!(
    include_str!("raw.s"),
    COMMAND_LINE = const COMMAND_LINE,
    PARAMETERS = const PARAMETERS,
    SHIM = const SHIM,
    LONG_MODE = const LONG_MODE,
    PROTECTED = const PROTECTED,
    REAL = const REAL,
    FLAT = const FLAT,
    TABLE = const TABLE,
    LIMIT = const LIMIT,
    STACK = const STACK,
    SIZE = const SIZE,
);

extern "C" {
    /// See raw.s.
    #[link_name = "trapline_raw"]
    static CODE: [u8; SIZE];
}

/// Returns the flat binary of an image, for a machine with `memory_mib` of memory from address 0 on. It has no command line.
pub fn file(image: &Image, memory_mib: u32) -> Vec<u8> {
    let mut bytes = vec![0; SHIM];
    // SAFETY: raw.s defines exactly this many bytes, and nothing writes them.
    bytes[..SIZE].copy_from_slice(unsafe { &CODE });
    let map = memory_map(memory_mib);
    bytes[E820_ENTRIES] = map.len() as u8;
    let entries = map.into_iter().flat_map(|range| {
        let size = range.end.saturating_sub(range.start);
        let entry = range.start.to_le_bytes().into_iter();
        entry.chain(size.to_le_bytes()).chain(USABLE.to_le_bytes())
    });
    for (byte, value) in bytes[E820_TABLE..].iter_mut().zip(entries) {
        *byte = value;
    }
    bytes.extend(bzimage::shim(image));
    bytes.extend(&image.memory);
    bytes
}

/// Returns the usable memory of a PC: up to 640 KiB, and from 1 MiB up to addresses of devices.
fn memory_map(memory_mib: u32) -> [Range<u64>; 2] {
    let end = (u64::from(memory_mib) << 20).min(0xc000_0000);
    [0..0xa_0000, 0x10_0000..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_map_and_shim_are_behind_the_entry() {
        let image = Image {
            start: 0x11_0000,
            memory: vec![7; 8],
            entry: 0x11_0004,
        };
        let file = file(&image, 128);
        // cli, cld, in each mode.
        assert_eq!(file[..2], [0xfa, 0xfc]);
        assert_eq!(file[E820_ENTRIES], 2);
        let second = &file[E820_TABLE + 20..][..20];
        assert_eq!(second[..8], 0x10_0000_u64.to_le_bytes());
        assert_eq!(second[8..16], (127_u64 << 20).to_le_bytes());
        assert_eq!(second[16..], USABLE.to_le_bytes());
        assert_eq!(
            file[SHIM..],
            [&bzimage::shim(&image)[..], &image.memory].concat()
        );
        assert!(file[COMMAND_LINE as usize..SHIM]
            .iter()
            .all(|byte| *byte == 0));
        assert_eq!(memory_map(8192)[1].end, 0xc000_0000);
    }
}
