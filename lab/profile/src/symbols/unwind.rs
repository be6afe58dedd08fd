//! Extents of functions from the unwind table (`.eh_frame_hdr` and `.eh_frame`, Linux Standard Base
//! core 10.6), which stripped files keep.

use super::elf_file::ElfFile;
use std::ops::Range;

/// Encodings of the table: version 1, then pointers of 4 bytes: relative to themselves, absolute,
/// relative to the header.
const ENCODINGS: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

/// Bytes of the header and of an entry of its table.
const HEADER: usize = 12;
const ENTRY: usize = 8;

/// Offset of a description's first address; its length in bytes follows.
const FIRST: usize = 8;

/// Returns the address ranges of all functions in the file; none without a table of the usual form.
pub fn functions(file: &ElfFile<'_>) -> Vec<Range<u64>> {
    read(file).unwrap_or_default()
}

fn read(file: &ElfFile<'_>) -> Option<Vec<Range<u64>>> {
    let (header_at, header) = file.section_named(".eh_frame_hdr")?;
    let (frames_at, frames) = file.section_named(".eh_frame")?;
    if header.get(..ENCODINGS.len())? != ENCODINGS {
        return None;
    }
    let number = u32::from_le_bytes(word(header, 8)?) as usize;
    let table = header.get(HEADER..)?.chunks_exact(ENTRY).take(number);
    let functions = table.filter_map(|entry| {
        let start = header_at.wrapping_add(signed(entry, 0)?);
        let description = header_at.wrapping_add(signed(entry, 4)?);
        let offset = usize::try_from(description.checked_sub(frames_at)?).ok()?;
        let first = description + FIRST as u64;
        let is_of_start = first.wrapping_add(signed(frames, offset + FIRST)?) == start;
        let length = u32::from_le_bytes(word(frames, offset + FIRST + 4)?);
        is_of_start.then(|| start..start + u64::from(length))
    });
    Some(functions.collect())
}

fn word(bytes: &[u8], at: usize) -> Option<[u8; 4]> {
    bytes.get(at..at + 4)?.try_into().ok()
}

/// Returns a signed number, extended to an offset of an address.
fn signed(bytes: &[u8], at: usize) -> Option<u64> {
    Some(i64::from(i32::from_le_bytes(word(bytes, at)?)) as u64)
}
