//! Conversion of an ELF file of 64 bits to one of 32 bits with the same segments, because boot loaders of the Multiboot
//! Specification 0.6.96, QEMU's among them, load no other.

use object::elf::{FileHeader64, Ident, PF_R, PF_W, PF_X, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::Endianness;

/// Bytes of the headers of a 32-bit ELF file (System V ABI, figures 4-3 and 5-1).
const HEADER: usize = 52;
const PROGRAM_HEADER: usize = 32;

/// The multiboot header is in the first 8 KiB of a file: the data of its segment comes first.
const ALIGNMENT: usize = 4;

/// Machine number of 32-bit x86.
const EM_386: u16 = 3;

/// Returns the file as it is if it is a 32-bit ELF file, otherwise converted.
///
/// # Errors
/// It is no ELF file of either kind, or does not fit 32 bits.
pub fn converted(file: &[u8]) -> Result<Vec<u8>, String> {
    match file.get(4) {
        Some(1) if file.starts_with(b"\x7fELF") => Ok(file.to_vec()),
        Some(2) => convert(file),
        _ => Err("it is not an ELF file".to_owned()),
    }
}

/// A segment to load.
pub(crate) struct Segment<'a> {
    physical: u32,
    data: &'a [u8],
    size: u32,
    flags: u32,
}

impl<'a> Segment<'a> {
    /// Returns a segment that can be executed and written.
    pub(crate) fn writable(physical: u32, data: &'a [u8]) -> Self {
        Self {
            physical,
            data,
            size: data.len() as u32,
            flags: PF_R | PF_W | PF_X,
        }
    }
}

fn convert(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let malformed = |error: object::read::Error| error.to_string();
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(malformed)?;
    let endian = header.endian().map_err(malformed)?;
    let mut segments = Vec::new();
    let headers = header.program_headers(endian, bytes).map_err(malformed)?;
    for program in headers.iter().filter(|it| it.p_type(endian) == PT_LOAD) {
        let data = program.data(endian, bytes);
        segments.push(Segment {
            physical: short(program.p_paddr(endian))?,
            data: data.map_err(|()| "a segment exceeds the file".to_owned())?,
            size: short(program.p_memsz(endian))?,
            flags: program.p_flags(endian),
        });
    }
    Ok(file(short(header.e_entry(endian))?, &segments))
}

fn short(value: u64) -> Result<u32, String> {
    u32::try_from(value).map_err(|_| format!("{value:#x} does not fit 32 bits"))
}

/// Returns a 32-bit ELF file with these segments.
pub(crate) fn file(entry: u32, segments: &[Segment<'_>]) -> Vec<u8> {
    let mut output = Vec::new();
    output.extend(b"\x7fELF\x01\x01\x01");
    output.resize(size_of::<Ident>(), 0);
    for half in [2, EM_386] {
        output.extend(half.to_le_bytes());
    }
    for word in [1, entry, HEADER as u32, 0, 0] {
        output.extend(word.to_le_bytes());
    }
    let count = segments.len() as u16;
    for half in [HEADER as u16, PROGRAM_HEADER as u16, count, 40, 0, 0] {
        output.extend(half.to_le_bytes());
    }
    let mut offset = HEADER + segments.len() * PROGRAM_HEADER;
    for segment in segments {
        let length = segment.data.len();
        let words = [
            PT_LOAD,
            offset as u32,
            segment.physical,
            segment.physical,
            length as u32,
            segment.size,
            segment.flags,
            ALIGNMENT as u32,
        ];
        output.extend(words.into_iter().flat_map(u32::to_le_bytes));
        offset += length.next_multiple_of(ALIGNMENT);
    }
    for segment in segments {
        output.extend(segment.data);
        output.resize(output.len().next_multiple_of(ALIGNMENT), 0);
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::elf::FileHeader32;

    #[test]
    fn segments_are_those_of_the_original() {
        let segment = |physical, data: &'static [u8], size| Segment {
            physical,
            data,
            size,
            flags: 5,
        };
        let segments = [
            segment(0x20_0000, b"first", 5),
            segment(0x100_0000, b"second", 0x8000),
        ];
        let file = file(0x20_0050, &segments);
        let header = FileHeader32::<Endianness>::parse(file.as_slice()).unwrap();
        let endian = header.endian().unwrap();
        assert_eq!(header.e_entry(endian), 0x20_0050);
        let headers = header.program_headers(endian, file.as_slice()).unwrap();
        let read: Vec<_> = headers
            .iter()
            .map(|it| {
                (
                    it.p_paddr(endian),
                    it.data(endian, file.as_slice()).unwrap(),
                    it.p_memsz(endian),
                )
            })
            .collect();
        assert_eq!(
            read,
            [
                (0x20_0000, &b"first"[..], 5),
                (0x100_0000, b"second", 0x8000)
            ]
        );
        assert_eq!(converted(&file).unwrap(), file);
    }

    #[test]
    fn other_files_are_rejected() {
        assert!(converted(b"").is_err());
        assert!(converted(b"\x7fELF\x02").is_err());
        assert!(converted(b"MZ\x00\x00\x00\x00").is_err());
    }
}
