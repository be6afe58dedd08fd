//! Validation of ELF images.

use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::ops::Range;
use elf::abi::{EM_X86_64, ET_EXEC, PT_LOAD, PT_NOTE};
use elf::endian::LittleEndian;
use elf::file::Class;
use elf::note::Note;
use elf::segment::{Elf64_Phdr, ProgramHeader};
use elf::{ElfBytes, ParseError};
use thiserror::Error;
use trapline_abi::platform::{DirectBoot, NOTE_DIRECT, NOTE_OWNER};
use trapline_interface::{Gpa, PAGE};

/// Reason why an image cannot boot.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum ImageError {
    #[error("it is not an ELF file: give the unikernel image that was built, not a disk, a script or a compressed kernel")]
    NotElf,
    #[error("it is truncated: its headers refer to bytes beyond its end at {length}; build or copy it again")]
    Truncated { length: usize },
    #[error("its headers are malformed ({what}); build or copy it again")]
    Malformed { what: String },
    #[error("it is for machine {machine} ({bits}-bit), not for x86-64: build it for x86_64")]
    WrongMachine { machine: u16, bits: u8 },
    #[error("it is of ELF type {kind}, not an executable for a fixed address: link it with -static -no-pie")]
    NotExecutable { kind: u16 },
    #[error("its {count} program headers are more than the {max} that are supported; link it with fewer")]
    TooManyHeaders { count: usize, max: usize },
    #[error("its notes are longer than the {max} bytes that are supported; link it with fewer")]
    NotesTooLong { max: u64 },
    #[error("its {count} segments are more than the {max} that are supported; link it with fewer")]
    TooManySegments { count: usize, max: usize },
    #[error("its segment at {at} holds {in_file} bytes in the file but {in_memory} in memory; build it again")]
    SegmentShrinks {
        at: Gpa,
        in_file: u64,
        in_memory: u64,
    },
    #[error(
        "its segment at {at} of {size:#x} bytes ends beyond {limit:#x}; link it at a lower address"
    )]
    SegmentOutOfRange { at: Gpa, size: u64, limit: u64 },
    #[error("its segments at {first} and {second} overlap; correct its linker script")]
    Overlap { first: Gpa, second: Gpa },
    #[error("it has no segment to load; build it again")]
    Empty,
    #[error("it has no entry note: it needs an ELF note 'Xen' type 18 (PVH entry) or '{NOTE_OWNER}' type {NOTE_DIRECT}; a Linux kernel has the former with CONFIG_PVH=y")]
    NoEntry,
    #[error("its {what} at {at:#x} is not within what it loads; build it again")]
    OutsideImage { what: &'static str, at: u64 },
    #[error("its note for a direct start has version {found}, this VMM supports {known}: build both from the same source, or use --entry pvh")]
    DirectVersion { found: u64, known: u16 },
}

/// A loadable segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Address.
    pub at: Gpa,
    /// File contents.
    pub bytes: &'a [u8],
    /// Length in memory; the rest is zero.
    pub size: u64,
}

impl Segment<'_> {
    /// Address range.
    pub fn range(&self) -> Range<u64> {
        self.at.0..self.at.0 + self.size
    }
}

/// A validated image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    segments: Vec<Segment<'a>>,
    pvh: Option<u32>,
    direct: Option<DirectBoot>,
}

/// Limit of segments.
const MAX_SEGMENTS: usize = 32;

/// Limit of program headers: the 64 KiB that Linux accepts (`load_elf_phdrs` in fs/binfmt_elf.c).
const MAX_HEADERS: usize = 0x1_0000 / size_of::<Elf64_Phdr>();

/// Limit of all notes together, in bytes. Kernels have less than 1 KiB.
const MAX_NOTES: u64 = 0x1_0000;

/// End of the addresses for images; device addresses follow.
const ADDRESS_LIMIT: u64 = 0xd000_0000;

/// Type and owner of the PVH entry note (Xen `public/elfnote.h`).
const NOTE_PVH: u64 = 18;
const PVH_OWNER: &[u8] = b"Xen\0";

impl<'a> Image<'a> {
    /// Parses an ELF file. The segments do not overlap, lie below device addresses, and contain all addresses of the notes.
    ///
    /// # Errors
    /// The file is invalid.
    pub fn parse(bytes: &'a [u8]) -> Result<Image<'a>, ImageError> {
        let file = open(bytes)?;
        let mut image = Image {
            segments: Vec::new(),
            pvh: None,
            direct: None,
        };
        let headers = file.segments().ok_or(ImageError::Empty)?;
        let (count, max) = (headers.len(), MAX_HEADERS);
        if count > max {
            return Err(ImageError::TooManyHeaders { count, max });
        }
        let mut notes = 0u64;
        for header in headers.iter() {
            match header.p_type {
                PT_LOAD => image.load(bytes, &header)?,
                PT_NOTE => {
                    notes = notes.saturating_add(header.p_filesz);
                    if notes > MAX_NOTES {
                        return Err(ImageError::NotesTooLong { max: MAX_NOTES });
                    }
                    image.read_notes(&file, &header, bytes.len())?;
                }
                _ => {}
            }
        }
        image.check()?;
        Ok(image)
    }

    /// Segments.
    pub fn segments(&self) -> &[Segment<'a>] {
        &self.segments
    }

    /// PVH entry address.
    pub fn pvh(&self) -> Option<u32> {
        self.pvh
    }

    /// Direct entry.
    pub fn direct(&self) -> Option<&DirectBoot> {
        self.direct.as_ref()
    }

    /// End of the last segment.
    pub fn end(&self) -> u64 {
        let ends = self.segments.iter().map(|segment| segment.range().end);
        ends.max().unwrap_or(0)
    }

    fn load(&mut self, bytes: &'a [u8], header: &ProgramHeader) -> Result<(), ImageError> {
        let (at, size) = (Gpa(header.p_paddr), header.p_memsz);
        if size == 0 {
            return Ok(());
        }
        if self.segments.len() == MAX_SEGMENTS {
            let (count, max) = (MAX_SEGMENTS + 1, MAX_SEGMENTS);
            return Err(ImageError::TooManySegments { count, max });
        }
        if header.p_filesz > size {
            return Err(ImageError::SegmentShrinks {
                at,
                in_file: header.p_filesz,
                in_memory: size,
            });
        }
        let limit = ADDRESS_LIMIT;
        if at.0.checked_add(size).is_none_or(|end| end > limit) {
            return Err(ImageError::SegmentOutOfRange { at, size, limit });
        }
        let bytes = part(bytes, header.p_offset, header.p_filesz)?;
        self.segments.push(Segment { at, bytes, size });
        Ok(())
    }

    fn read_notes(
        &mut self,
        file: &File<'a>,
        header: &ProgramHeader,
        length: usize,
    ) -> Result<(), ImageError> {
        let notes = file.segment_data_as_notes(header);
        for note in notes.map_err(|error| explain(error, length))? {
            let Note::Unknown(note) = note else { continue };
            if note.n_type == NOTE_PVH && note.name == PVH_OWNER {
                self.pvh = Some(entry_address(note.desc)?);
            } else if note.n_type == u64::from(NOTE_DIRECT) && is_ours(note.name) {
                self.direct = Some(DirectBoot::from_bytes(note.desc).ok_or_else(malformed_note)?);
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), ImageError> {
        if self.segments.is_empty() {
            return Err(ImageError::Empty);
        }
        if self.pvh.is_none() && self.direct.is_none() {
            return Err(ImageError::NoEntry);
        }
        self.check_overlap()?;
        if let Some(entry) = self.pvh {
            self.check_within("PVH entry", entry.into(), 1)?;
        }
        self.direct
            .map_or(Ok(()), |direct| self.check_direct(&direct))
    }

    fn check_overlap(&self) -> Result<(), ImageError> {
        for (index, one) in self.segments.iter().enumerate() {
            for other in &self.segments[..index] {
                let (a, b) = (one.range(), other.range());
                if a.start < b.end && b.start < a.end {
                    return Err(ImageError::Overlap {
                        first: one.at.min(other.at),
                        second: one.at.max(other.at),
                    });
                }
            }
        }
        Ok(())
    }

    fn check_direct(&self, direct: &DirectBoot) -> Result<(), ImageError> {
        if direct.version != u64::from(trapline_abi::VERSION) {
            return Err(ImageError::DirectVersion {
                found: direct.version,
                known: trapline_abi::VERSION,
            });
        }
        if !direct.page_table.is_multiple_of(PAGE as u64) || !direct.interrupts.is_multiple_of(4) {
            return Err(malformed_note());
        }
        let limits = [direct.gdt_limit, direct.idt_limit];
        if limits.iter().any(|&limit| limit > 0xffff) || direct.tss_limit > 0xf_ffff {
            return Err(malformed_note());
        }
        self.check_within("entry", direct.entry, 1)?;
        self.check_within("stack", direct.stack.wrapping_sub(1), 1)?;
        self.check_within("page table", direct.page_table, PAGE as u64)?;
        self.check_within("segment table", direct.gdt, direct.gdt_limit + 1)?;
        self.check_within("interrupt table", direct.idt0, direct.idt_limit + 1)?;
        self.check_within("interrupt table", direct.idt3, direct.idt_limit + 1)?;
        self.check_within("task state", direct.tss, direct.tss_limit + 1)?;
        self.check_within("interrupt count", direct.interrupts, 4)
    }

    fn check_within(&self, what: &'static str, at: u64, size: u64) -> Result<(), ImageError> {
        let end = at.checked_add(size);
        let mut ranges = self.segments.iter().map(Segment::range);
        if ranges.any(|range| range.start <= at && end.is_some_and(|end| end <= range.end)) {
            Ok(())
        } else {
            Err(ImageError::OutsideImage { what, at })
        }
    }
}

type File<'a> = ElfBytes<'a, LittleEndian>;

fn open(bytes: &[u8]) -> Result<File<'_>, ImageError> {
    if !bytes.starts_with(b"\x7fELF") {
        return Err(ImageError::NotElf);
    }
    let file = File::minimal_parse(bytes).map_err(|error| explain(error, bytes.len()))?;
    let header = &file.ehdr;
    if header.e_machine != EM_X86_64 || header.class != Class::ELF64 {
        return Err(ImageError::WrongMachine {
            machine: header.e_machine,
            bits: if header.class == Class::ELF64 { 64 } else { 32 },
        });
    }
    if header.e_type != ET_EXEC {
        return Err(ImageError::NotExecutable {
            kind: header.e_type,
        });
    }
    Ok(file)
}

fn explain(error: ParseError, length: usize) -> ImageError {
    match error {
        ParseError::SliceReadError(_) => ImageError::Truncated { length },
        // Big-endian.
        ParseError::UnsupportedElfEndianness(_) => ImageError::WrongMachine {
            machine: 0,
            bits: 0,
        },
        other => malformed(other),
    }
}

fn malformed(error: ParseError) -> ImageError {
    ImageError::Malformed {
        what: error.to_string(),
    }
}

fn malformed_note() -> ImageError {
    ImageError::Malformed {
        what: "its note for a direct start is malformed".into(),
    }
}

fn part(bytes: &[u8], offset: u64, length: u64) -> Result<&[u8], ImageError> {
    let start = usize::try_from(offset).ok();
    let end = offset
        .checked_add(length)
        .and_then(|end| end.try_into().ok());
    start
        .zip(end)
        .and_then(|(start, end): (usize, usize)| bytes.get(start..end))
        .ok_or(ImageError::Truncated {
            length: bytes.len(),
        })
}

/// Parses the note's descriptor, 4 or 8 bytes; the address is below 4 GiB.
fn entry_address(bytes: &[u8]) -> Result<u32, ImageError> {
    let address = match *bytes {
        [a, b, c, d] => Some(u32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, 0, 0, 0, 0] => Some(u32::from_le_bytes([a, b, c, d])),
        _ => None,
    };
    address.ok_or_else(malformed_note)
}

fn is_ours(name: &[u8]) -> bool {
    name.strip_suffix(b"\0") == Some(NOTE_OWNER.as_bytes())
}
