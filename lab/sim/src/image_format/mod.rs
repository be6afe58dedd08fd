//! The image in the formats that VMMs boot besides its own, an ELF file with a PVH note.

mod bzimage;
mod multiboot;
pub mod raw;

use elf::abi::PT_LOAD;
use elf::endian::LittleEndian;
use elf::ElfBytes;
use std::path::Path;
use trapline_host::Error;
use trapline_model::vmms::ImageFormat;

/// Address of the PVH start info, and its size in words before the memory map: the lowest page of the image's boot stack.
const INFO: u32 = 0x10_1000;
const INFO_WORDS: u32 = 16;

/// Lowest supported address of an image.
const LOWEST: u64 = 0x10_2000;

/// Highest supported end of an image.
const HIGHEST: u64 = 0x100_0000;

/// Type of the note with the PVH entry (Xen `public/elfnote.h`).
const XEN_ELFNOTE_PHYS32_ENTRY: u64 = 18;

/// A file cannot be loaded as an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidImage {
    /// Not an ELF file.
    #[error("not an ELF file: {0}")]
    NotElf(String),
    /// A note or segment is missing or misplaced.
    #[error("{0}")]
    Unsupported(&'static str),
}

/// The memory of an image.
pub struct Image {
    /// Its first address.
    pub start: u32,
    /// Bytes from there, a multiple of 4.
    pub memory: Vec<u8>,
    /// Address of its PVH entry.
    pub entry: u32,
}

/// Returns the image at `path` in a format, for a machine with `memory_mib` of memory; `None` for its own format.
///
/// # Errors
/// The file cannot be read, or is no image.
pub fn converted(
    path: &Path,
    format: ImageFormat,
    memory_mib: u32,
) -> Result<Option<Vec<u8>>, Error> {
    Ok(Some(match format {
        ImageFormat::Pvh => return Ok(None),
        ImageFormat::Bzimage => bzimage::file(&Image::read(path)?),
        ImageFormat::Multiboot => multiboot::file(&Image::read(path)?),
        ImageFormat::Raw => raw::file(&Image::read(path)?, memory_mib),
    }))
}

/// Returns the error of a file that is no image.
pub fn not_converted(path: &Path) -> impl FnOnce(InvalidImage) -> Error {
    let path = path.to_owned();
    move |source| Error::Image {
        path,
        reason: source.to_string(),
    }
}

impl Image {
    fn read(path: &Path) -> Result<Self, Error> {
        let elf = std::fs::read(path).map_err(Error::file(path))?;
        Self::parse(&elf).map_err(not_converted(path))
    }

    fn parse(elf: &[u8]) -> Result<Self, InvalidImage> {
        let not_elf = |error: elf::ParseError| InvalidImage::NotElf(error.to_string());
        let file = ElfBytes::<LittleEndian>::minimal_parse(elf).map_err(not_elf)?;
        let (start, memory) = memory(&file)?;
        let entry = entry(&file).ok_or(InvalidImage::Unsupported("no PVH entry"))?;
        Ok(Self {
            start,
            memory,
            entry,
        })
    }
}

/// Returns the image's lowest address and its memory from there.
fn memory(file: &ElfBytes<'_, LittleEndian>) -> Result<(u32, Vec<u8>), InvalidImage> {
    let unfit = |reason| move || InvalidImage::Unsupported(reason);
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

/// Returns the PVH entry of an ELF file, if it has one.
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

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn other_files_are_rejected() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        let files = [&b""[..], b"\x7fELF", b"this is no image", &program];
        let errors = files.map(|bytes| Image::parse(bytes).err().unwrap().to_string());
        expect![[r#"
            not an ELF file: Could not read bytes in range [0x0, 0x10)
            not an ELF file: Could not read bytes in range [0x0, 0x10)
            not an ELF file: Invalid Magic Bytes: [74, 68, 69, 73]
            segments are not between 1 and 16 MiB"#]]
        .assert_eq(&errors.join("\n"));
    }
}
