//! The image as a bzImage, for VMMs that boot nothing else: a setup header, a shim that implements the
//! Linux boot protocol (Linux `Documentation/arch/x86/boot.rst`), and the image's memory. The shim copies
//! the image to its address and enters it as a PVH VMM does. Real mode, 32-bit and 64-bit entries exist.
//!
//! Crates for bzImages parse them; none builds one.

use elf::abi::PT_LOAD;
use elf::endian::LittleEndian;
use elf::ElfBytes;
use std::path::Path;
use trapline_abi::platform::START_INFO_MAGIC;
use trapline_host::Error;

/// Size of the shim in bytes; the image follows.
const SHIM: usize = 0x400;

/// Offset at which the shim finds its own address.
const HERE: usize = 44;

/// Address of the PVH start info, and its size in words before the memory map.
const INFO: u32 = 0x10_1000;
const INFO_WORDS: u32 = 16;

/// Real-mode code: its offset behind the page that becomes boot_params, its size, and the offset of its
/// descriptor table.
const SETUP: usize = 0x1000;
const SETUP_ROOM: usize = 0x200;
const TABLE: usize = 0x100;
const LIMIT: usize = 0x120;

core::arch::global_asm!(
    include_str!("bzimage/setup.s"),
    SETUP = const SETUP,
    SETUP_ROOM = const SETUP_ROOM,
    TABLE = const TABLE,
    LIMIT = const LIMIT,
);

core::arch::global_asm!(
    include_str!("bzimage/shim.s"),
    SHIM = const SHIM,
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

/// The image cannot be wrapped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotWrapped {
    /// Not an ELF file.
    #[error("not an ELF file: {0}")]
    NotElf(String),
    /// A note or segment is missing or misplaced.
    #[error("{0}")]
    UnsupportedSetting(&'static str),
}

/// Sectors of 512 bytes before the protected-mode code, without the first.
const SETUP_SECTORS: u8 = ((SETUP + SETUP_ROOM) / 512 - 1) as u8;

/// Lowest supported address of an image.
const LOWEST: u64 = 0x10_2000;

/// Highest supported end of an image.
const HIGHEST: u64 = 0x100_0000;

/// Type of the note with the PVH entry (Xen `public/elfnote.h`).
const XEN_ELFNOTE_PHYS32_ENTRY: u64 = 18;

/// Returns the bzImage of the image at `path`.
///
/// # Errors
/// The file cannot be read, or is no image.
pub fn of(path: &Path) -> Result<Vec<u8>, Error> {
    let elf = std::fs::read(path).map_err(Error::file(path))?;
    wrap(&elf).map_err(|source| Error::BzImage {
        path: path.to_owned(),
        reason: source.to_string(),
    })
}

/// Returns the bzImage of the image in the ELF file `elf`.
///
/// # Errors
/// It is no image.
pub fn wrap(elf: &[u8]) -> Result<Vec<u8>, NotWrapped> {
    let not_elf = |error: elf::ParseError| NotWrapped::NotElf(error.to_string());
    let file = ElfBytes::<LittleEndian>::minimal_parse(elf).map_err(not_elf)?;
    let (home, memory) = memory(&file)?;
    let entry = entry(&file).ok_or(NotWrapped::UnsupportedSetting("no PVH entry"))?;
    let mut bytes = setup(SHIM + memory.len());
    bytes.extend(shim(home, (memory.len() / 4) as u32, entry));
    bytes.extend(memory);
    Ok(bytes)
}

/// Returns the image's lowest address and its memory from there.
fn memory(file: &ElfBytes<'_, LittleEndian>) -> Result<(u32, Vec<u8>), NotWrapped> {
    let unfit = |reason| move || NotWrapped::UnsupportedSetting(reason);
    let segments = file.segments().ok_or_else(unfit("no segments"))?;
    // Segments without file contents are stacks.
    let loaded: Vec<_> = segments
        .iter()
        .filter(|segment| segment.p_type == PT_LOAD && segment.p_filesz != 0)
        .collect();
    let start = loaded.iter().map(|segment| segment.p_paddr).min();
    let end = loaded
        .iter()
        .map(|segment| segment.p_paddr.saturating_add(segment.p_memsz))
        .max();
    let (start, end) = start
        .zip(end)
        .filter(|(start, end)| (LOWEST..HIGHEST).contains(start) && *end <= HIGHEST)
        .ok_or_else(unfit("segments are not between 1 and 16 MiB"))?;
    let length = (end - start).next_multiple_of(4) as usize;
    let mut memory = vec![0; length];
    for segment in loaded {
        let outside = unfit("a segment lies outside the file");
        let bytes = file.segment_data(&segment).map_err(|_| outside())?;
        let at = (segment.p_paddr - start) as usize;
        let room = memory.get_mut(at..at + bytes.len());
        room.ok_or_else(unfit("a segment is longer in the file than in memory"))?
            .copy_from_slice(bytes);
    }
    Ok((start as u32, memory))
}

pub fn entry(file: &ElfBytes<'_, LittleEndian>) -> Option<u32> {
    let segments = file.segments()?;
    let notes = segments
        .iter()
        .filter(|segment| segment.p_type == elf::abi::PT_NOTE);
    let mut notes = notes
        .filter_map(|segment| file.segment_data_as_notes(&segment).ok())
        .flatten();
    let desc = notes.find_map(|note| match note {
        elf::note::Note::Unknown(note)
            if note.n_type == XEN_ELFNOTE_PHYS32_ENTRY && note.name == b"Xen\0" =>
        {
            Some(note.desc)
        }
        _ => None,
    })?;
    Some(u32::from_le_bytes(desc.get(..4)?.try_into().ok()?))
}

/// Returns boot sector, setup header (protocol 2.12) and real-mode code.
fn setup(protected: usize) -> Vec<u8> {
    let mut bytes = vec![0; SETUP + SETUP_ROOM];
    // SAFETY: setup.s defines exactly this many bytes, and nothing writes them.
    bytes[SETUP..].copy_from_slice(unsafe { &REAL_MODE });
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0x1f1, &[SETUP_SECTORS]);
    put(0x1f4, &(protected.div_ceil(16) as u32).to_le_bytes()); // syssize
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

fn shim(home: u32, words: u32, entry: u32) -> [u8; SHIM] {
    // SAFETY: shim.s defines exactly this many bytes, and nothing writes them.
    let mut shim = unsafe { CODE };
    for (at, value) in [(8, home), (12, words), (16, entry)] {
        shim[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    shim
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn other_files_are_not_wrapped() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        let files = [&b""[..], b"\x7fELF", b"this is no image", &program];
        let errors = files.map(|bytes| wrap(bytes).unwrap_err().to_string());
        expect![[r#"
            not an ELF file: Could not read bytes in range [0x0, 0x10)
            not an ELF file: Could not read bytes in range [0x0, 0x10)
            not an ELF file: Invalid Magic Bytes: [74, 68, 69, 73]
            segments are not between 1 and 16 MiB"#]]
        .assert_eq(&errors.join("\n"));
    }

    #[test]
    fn header_has_the_fields_that_loaders_check() {
        let bytes = setup(1000);
        assert_eq!(bytes.len(), (usize::from(bytes[0x1f1]) + 1) * 512);
        assert_eq!(bytes[0x1fe..0x200], [0x55, 0xaa]);
        assert_eq!(&bytes[0x202..0x206], b"HdrS");
        assert_eq!(bytes[0x1f4..0x1f8], 63_u32.to_le_bytes());
    }

    #[test]
    fn shim_has_both_entries_and_its_parameters() {
        let shim = shim(1, 2, 3);
        // jmp short; cli, cld.
        assert_eq!(shim[0], 0xeb);
        assert_eq!(shim[0x200..0x202], [0xfa, 0xfc]);
        assert_eq!(shim[8..20], [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
    }
}
