//! The image as a multiboot kernel (Multiboot Specification 0.6.96): a 32-bit ELF file with the multiboot header and a
//! second entry in a segment of its own.

use super::{Image, INFO, INFO_WORDS};
use crate::elf32::{self, Segment};
use trapline_abi::platform::START_INFO_MAGIC;

/// Address and size of the segment with the header; the image's boot stack follows.
const ADDRESS: u32 = 0x10_0000;
const SIZE: usize = 0x100;

/// Offset of the word with the PVH entry, and of the entry of a multiboot kernel.
const PVH: usize = 12;
const ENTRY: usize = 16;

/// Magic number of the header, and its flag "information on memory" (3.1.2).
const HEADER_MAGIC: u32 = 0x1bad_b002;
const HEADER_FLAGS: u32 = 1 << 1;

/// Maximum number of entries of a memory map, as in an E820 map.
const MAX_ENTRIES: u32 = 128;

core::arch::global_asm!(
    include_str!("multiboot.s"),
    HEADER_MAGIC = const HEADER_MAGIC,
    HEADER_FLAGS = const HEADER_FLAGS,
    ADDRESS = const ADDRESS,
    SIZE = const SIZE,
    PVH = const PVH,
    ENTRY = const ENTRY,
    INFO = const INFO,
    INFO_WORDS = const INFO_WORDS,
    MAGIC = const START_INFO_MAGIC,
    MAX_ENTRIES = const MAX_ENTRIES,
);

extern "C" {
    /// See multiboot.s.
    #[link_name = "trapline_multiboot_image"]
    static CODE: [u8; SIZE];
}

/// Returns the multiboot kernel of an image.
pub fn file(image: &Image) -> Vec<u8> {
    // SAFETY: multiboot.s defines exactly this many bytes, and nothing writes them.
    let mut code = unsafe { CODE };
    code[PVH..PVH + 4].copy_from_slice(&image.entry.to_le_bytes());
    let segments = [(ADDRESS, &code[..]), (image.start, &image.memory)];
    let segments = segments.map(|(address, data)| Segment::writable(address, data));
    elf32::file(ADDRESS + ENTRY as u32, &segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_valid_and_at_the_start_of_the_first_segment() {
        let image = Image {
            start: 0x11_0000,
            memory: vec![7; 8],
            entry: 0x11_0004,
        };
        let file = file(&image);
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        let aligned = (0..8192).step_by(4);
        let header = aligned
            .clone()
            .find(|at| word(*at) == HEADER_MAGIC)
            .unwrap();
        let sum = [0, 4, 8].map(|at| word(header + at)).into_iter();
        assert_eq!(sum.fold(0_u32, u32::wrapping_add), 0);
        assert_eq!(word(header + PVH), image.entry);
        assert_eq!(word(24), ADDRESS + ENTRY as u32);
        assert!(file.ends_with(&image.memory));
    }
}
