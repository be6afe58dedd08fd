//! Small ELF images for tests, valid and invalid.

use crate::boot::image::Image;
use alloc::vec;
use alloc::vec::Vec;
use trapline_abi::platform::{DirectBoot, DIRECT_BOOT_FIELDS, NOTE_DIRECT, NOTE_OWNER};

/// Start address of the code.
pub const BASE: u64 = 0x10_0000;

/// An ELF file under construction.
#[derive(Clone, Debug)]
pub struct TestImage {
    /// ELF machine; 62 is x86-64.
    pub machine: u16,
    /// Physical address, file contents, length in memory.
    pub segments: Vec<(u64, Vec<u8>, u64)>,
    /// Owner, type, descriptor.
    pub notes: Vec<(&'static str, u32, Vec<u8>)>,
}

const X86_64: u16 = 62;
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const LOAD: u32 = 1;
const NOTE: u32 = 4;

impl TestImage {
    /// Creates an image that starts `code` in 32-bit mode at [`BASE`].
    pub fn pvh(code: &[u8]) -> Self {
        Self {
            machine: X86_64,
            segments: vec![(BASE, code.to_vec(), 0x2000)],
            notes: vec![("Xen", 18, BASE.to_le_bytes().to_vec())],
        }
    }

    /// Creates an image that starts `code` in 64-bit mode at [`BASE`], at either ring, with an empty IDT.
    pub fn direct(code: &[u8]) -> Self {
        let note = direct_note();
        Self {
            machine: X86_64,
            segments: vec![(BASE, direct_memory(code, &note), DIRECT_END)],
            notes: vec![(NOTE_OWNER, NOTE_DIRECT, note_bytes(&note))],
        }
    }

    /// Returns the file.
    pub fn bytes(&self) -> Vec<u8> {
        let headers = self.segments.len() + 1;
        let mut body = vec![0; HEADER + headers * PROGRAM_HEADER];
        let mut table = Vec::new();
        for (address, bytes, size) in &self.segments {
            let offset = body.len() as u64;
            table.push((LOAD, offset, *address, bytes.len() as u64, *size));
            body.extend_from_slice(bytes);
        }
        body.resize(body.len().next_multiple_of(4), 0);
        let notes = self.note_bytes();
        let (offset, length) = (body.len() as u64, notes.len() as u64);
        table.push((NOTE, offset, 0, length, length));
        body.extend_from_slice(&notes);
        body[..HEADER].copy_from_slice(&self.header(headers as u16));
        for (index, entry) in table.into_iter().enumerate() {
            let at = HEADER + index * PROGRAM_HEADER;
            body[at..at + PROGRAM_HEADER].copy_from_slice(&program_header(entry));
        }
        body
    }

    fn header(&self, count: u16) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        put(&mut header, 16, 2u16.to_le_bytes()); // an executable
        put(&mut header, 18, self.machine.to_le_bytes());
        put(&mut header, 20, 1u32.to_le_bytes());
        put(&mut header, 24, BASE.to_le_bytes());
        put(&mut header, 32, (HEADER as u64).to_le_bytes());
        put(&mut header, 52, (HEADER as u16).to_le_bytes());
        put(&mut header, 54, (PROGRAM_HEADER as u16).to_le_bytes());
        put(&mut header, 56, count.to_le_bytes());
        put(&mut header, 58, 64u16.to_le_bytes());
        header
    }

    fn note_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (owner, kind, contents) in &self.notes {
            bytes.extend((owner.len() as u32 + 1).to_le_bytes());
            bytes.extend((contents.len() as u32).to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend(owner.as_bytes());
            bytes.push(0);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes.extend(contents);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }
}

fn program_header(
    (kind, offset, address, in_file, in_memory): (u32, u64, u64, u64, u64),
) -> [u8; PROGRAM_HEADER] {
    let mut header = [0; PROGRAM_HEADER];
    put(&mut header, 0, kind.to_le_bytes());
    put(&mut header, 4, 7u32.to_le_bytes());
    put(&mut header, 8, offset.to_le_bytes());
    put(&mut header, 16, address.to_le_bytes());
    put(&mut header, 24, address.to_le_bytes());
    put(&mut header, 32, in_file.to_le_bytes());
    put(&mut header, 40, in_memory.to_le_bytes());
    put(&mut header, 48, 4u64.to_le_bytes());
    header
}

fn put<const N: usize>(into: &mut [u8], at: usize, bytes: [u8; N]) {
    into[at..at + N].copy_from_slice(&bytes);
}

// Layout of a direct image, from BASE.
const TABLES: u64 = 0x1000;
const SEGMENTS: u64 = 0x7000;
const COUNT: u64 = 0x7800;
const INTERRUPTS: u64 = 0x8000;
const TASK: u64 = 0x9000;
const TASK_BYTES: u64 = 104;
const PORTS: u64 = 8192;
const DIRECT_END: u64 = 0xd000;

/// Returns the note of [`TestImage::direct`].
pub fn direct_note() -> DirectBoot {
    DirectBoot {
        version: trapline_abi::VERSION.into(),
        entry: BASE,
        stack: BASE + DIRECT_END - 8,
        page_table: BASE + TABLES,
        gdt: BASE + SEGMENTS,
        gdt_limit: 0x4f,
        idt0: BASE + INTERRUPTS,
        idt3: BASE + INTERRUPTS,
        idt_limit: 0xfff,
        tss: BASE + TASK,
        tss_limit: TASK_BYTES + PORTS,
        interrupts: BASE + COUNT,
    }
}

/// Encodes a note.
pub fn note_bytes(note: &DirectBoot) -> Vec<u8> {
    let fields: [u64; DIRECT_BOOT_FIELDS] = [
        note.version,
        note.entry,
        note.stack,
        note.page_table,
        note.gdt,
        note.gdt_limit,
        note.idt0,
        note.idt3,
        note.idt_limit,
        note.tss,
        note.tss_limit,
        note.interrupts,
    ];
    fields
        .iter()
        .flat_map(|field| field.to_le_bytes())
        .collect()
}

fn direct_memory(code: &[u8], note: &DirectBoot) -> Vec<u8> {
    let mut memory = vec![0; DIRECT_END as usize];
    memory[..code.len()].copy_from_slice(code);
    for (at, value) in page_tables().chain(descriptors(note.tss)) {
        put(&mut memory, at as usize, value.to_le_bytes());
    }
    put(
        &mut memory,
        (TASK + 102) as usize,
        (TASK_BYTES as u16).to_le_bytes(),
    );
    memory
}

/// Identity map of the first 4 GiB, for all rings.
fn page_tables() -> impl Iterator<Item = (u64, u64)> {
    const TABLE: u64 = 7; // present, writable, user
    const LARGE_PAGE: u64 = 0x87;
    let directory = |index: u64| TABLES + 0x2000 + index * 0x1000;
    let top = (TABLES, (BASE + TABLES + 0x1000) | TABLE);
    let gigabytes = (0..4).map(move |i| (TABLES + 0x1000 + i * 8, (BASE + directory(i)) | TABLE));
    let pages = (0..2048).map(move |i| (directory(0) + i * 8, i << 21 | LARGE_PAGE));
    core::iter::once(top).chain(gigabytes).chain(pages)
}

fn descriptors(task: u64) -> impl Iterator<Item = (u64, u64)> {
    let limit = TASK_BYTES + PORTS;
    let low = limit & 0xffff | (task & 0xff_ffff) << 16 | 0x8b << 40 | (task >> 24 & 0xff) << 56;
    [
        (0x08, 0x00af_9b00_0000_ffff),
        (0x10, 0x00cf_9300_0000_ffff),
        (0x28, 0x00cf_f300_0000_ffff),
        (0x30, 0x00af_fb00_0000_ffff),
        (0x40, low),
        (0x48, task >> 32),
    ]
    .into_iter()
    .map(|(at, value)| (SEGMENTS + at, value))
}

/// Checks the guarantees of a parsed image: no overlap, and the end as in [`Image::end`].
pub fn is_valid(image: &Image<'_>) -> bool {
    let mut ranges: Vec<_> = image.segments().iter().map(|part| part.range()).collect();
    ranges.sort_by_key(|range| range.start);
    let apart = ranges.windows(2).all(|pair| pair[0].end <= pair[1].start);
    let within = ranges.iter().all(|range| range.end <= image.end());
    let short = image.segments().iter();
    apart
        && within
        && short
            .clone()
            .all(|part| part.bytes.len() as u64 <= part.size)
}
