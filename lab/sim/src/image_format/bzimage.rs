//! The image as a bzImage: a setup header, a shim that implements the Linux boot protocol (Linux
//! `Documentation/arch/x86/boot.rst`), and the image's memory. The shim copies
//! the image to its address and enters it as a PVH VMM does. Real mode, 32-bit and 64-bit entries exist.
//!
//! Crates for bzImages parse them; none builds one.

use super::{Image, HIGHEST, INFO, INFO_WORDS};
use trapline_abi::platform::START_INFO_MAGIC;

/// Size of the shim in bytes; the image follows.
pub const SHIM: usize = 0x400;
/// Offset of its 64-bit entry.
pub const LONG_MODE: usize = 0x200;

/// Offset at which the shim finds its own address.
const HERE: usize = 44;

/// Real-mode code: its offset behind the page that becomes boot_params, its size, and the offset of its
/// descriptor table.
const SETUP: usize = 0x1000;
const SETUP_ROOM: usize = 0x200;
const TABLE: usize = 0x100;
const LIMIT: usize = 0x120;

core::arch::global_asm!(
    include_str!("setup.s"),
    SETUP = const SETUP,
    SETUP_ROOM = const SETUP_ROOM,
    TABLE = const TABLE,
    LIMIT = const LIMIT,
);

core::arch::global_asm!(
    include_str!("shim.s"),
    SHIM = const SHIM,
    LONG_MODE = const LONG_MODE,
    HERE = const HERE,
    INFO = const INFO,
    INFO_WORDS = const INFO_WORDS,
    MAGIC = const START_INFO_MAGIC,
);

extern "C" {
    /// See shim.s.
    #[link_name = "trapline_shim"]
    static CODE: [u8; SHIM];
    /// See setup.s.
    #[link_name = "trapline_setup"]
    static REAL_MODE: [u8; SETUP_ROOM];
}

/// Sectors of 512 bytes before the protected-mode code, without the first.
const SETUP_SECTORS: u8 = ((SETUP + SETUP_ROOM) / 512 - 1) as u8;

/// Unit of `syssize`, in bytes.
const UNIT: usize = 16;

/// Returns the bzImage of an image.
pub fn file(image: &Image) -> Vec<u8> {
    let mut bytes = setup(SHIM + image.memory.len());
    bytes.extend(shim(image));
    bytes.extend(&image.memory);
    // The header has the size of what follows in such units, and crosvm refuses a shorter file.
    bytes.resize(bytes.len().next_multiple_of(UNIT), 0);
    bytes
}

/// Returns boot sector, setup header (protocol 2.12) and real-mode code.
fn setup(protected: usize) -> Vec<u8> {
    let mut bytes = vec![0; SETUP + SETUP_ROOM];
    // SAFETY: setup.s defines exactly this many bytes, and nothing writes them.
    bytes[SETUP..].copy_from_slice(unsafe { &REAL_MODE });
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0x1f1, &[SETUP_SECTORS]);
    put(0x1f4, &(protected.div_ceil(UNIT) as u32).to_le_bytes()); // syssize
    put(0x1fe, &[0x55, 0xaa]);
    put(0x200, &[0xeb, 0x66]); // to the end of the header
    put(0x202, b"HdrS");
    put(0x206, &0x020c_u16.to_le_bytes()); // version
    put(0x211, &[1]); // loadflags: LOADED_HIGH
    put(0x214, &0x10_0000_u32.to_le_bytes()); // code32_start
    put(0x22c, &0x7fff_ffff_u32.to_le_bytes()); // initrd_addr_max
    put(0x230, &0x10_0000_u32.to_le_bytes()); // kernel_alignment
    put(0x234, &[1, 20]); // relocatable, least alignment as a power of two
    put(0x236, &1_u16.to_le_bytes()); // xloadflags: XLF_KERNEL_64
    put(0x238, &4095_u32.to_le_bytes()); // cmdline_size
    put(0x258, &0x10_0000_u64.to_le_bytes()); // pref_address
    put(0x260, &((HIGHEST - 0x10_0000) as u32).to_le_bytes()); // init_size
    put(0x268, &[0xe9]); // behind it: jmp, relative to the next instruction
    put(0x269, &((SETUP - 0x26b) as u16).to_le_bytes());
    bytes
}

/// Returns the shim of an image, whose memory follows it.
pub fn shim(image: &Image) -> [u8; SHIM] {
    // SAFETY: shim.s defines exactly this many bytes, and nothing writes them.
    let mut shim = unsafe { CODE };
    let words = (image.memory.len() / 4) as u32;
    for (at, value) in [(8, image.start), (12, words), (16, image.entry)] {
        shim[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    shim
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_has_the_fields_that_loaders_check() {
        let bytes = setup(1000);
        assert_eq!(bytes.len(), (usize::from(bytes[0x1f1]) + 1) * 512);
        assert_eq!(bytes[0x1fe..0x200], [0x55, 0xaa]);
        assert_eq!(&bytes[0x202..0x206], b"HdrS");
        assert_eq!(bytes[0x1f4..0x1f8], 63_u32.to_le_bytes());
    }

    #[test]
    fn file_is_as_long_as_its_header_says() {
        let bytes = file(&Image {
            start: 1,
            memory: vec![1; 20],
            entry: 3,
        });
        let size = u32::from_le_bytes(bytes[0x1f4..0x1f8].try_into().unwrap());
        assert_eq!(bytes.len(), SETUP + SETUP_ROOM + UNIT * size as usize);
    }

    #[test]
    fn shim_has_both_entries_and_its_parameters() {
        let shim = shim(&Image {
            start: 1,
            memory: vec![0; 8],
            entry: 3,
        });
        // jmp short; cli, cld.
        assert_eq!(shim[0], 0xeb);
        assert_eq!(shim[LONG_MODE..LONG_MODE + 2], [0xfa, 0xfc]);
        assert_eq!(shim[8..20], [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
    }
}
