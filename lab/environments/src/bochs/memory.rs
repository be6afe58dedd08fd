//! What the machine's memory holds when it starts, and what its firmware knows
//! about that.
//!
//! Nothing is loaded from a disk and there is no BIOS: Bochs reads a file into
//! memory, and a few instructions of ours enter what is there by its PVH entry. So
//! it is the same image, byte for byte, and it takes no time to get there.

use crate::bzimage::{self, NotWrapped};
use crate::error::EnvError;
use elf::abi::PT_LOAD;
use elf::endian::LittleEndian;
use elf::ElfBytes;
use std::path::Path;
use trapline_abi::platform::{
    MemoryMapEntry, StartInfo, MEMORY_RAM, MEMORY_RESERVED, START_INFO_MAGIC,
};

/// Where what is given begins: the first address above all devices of old.
pub const START: u32 = 0x10_0000;

/// Where the machine is told what it is: behind the page that the image leaves
/// free, at the far end of its boot stack.
pub const INFO: u32 = START + 0x1000;
const MODULES: u32 = INFO + 0x80;
const MAP: u32 = INFO + 0x100;
const COMMAND_LINE: u32 = INFO + 0x400;

const PAGE: usize = 4096;

/// Where it must end: the smallest machine with a Linux has more.
const HIGHEST: u64 = 512 << 20;

/// The last word of what is given: it is not in its place if Bochs did not read
/// all of it, or put it elsewhere.
pub const SEAL: u32 = 0x7261_6e61;

/// What the machine's memory holds from [`START`] on.
#[derive(Clone)]
pub struct Memory {
    bytes: Vec<u8>,
    /// Where what is there is entered.
    pub entry: u32,
    /// What is there besides in the firmware, at [`super::acpi::TABLES`].
    pub tables: Vec<u8>,
    /// Where what is there ends when it runs.
    used: u32,
    /// Files beside it.
    pub modules: Vec<Module>,
}

/// A file in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its address.
    pub at: u32,
    /// In bytes.
    pub length: u32,
}

/// A module begins at a multiple of this.
const MODULE_PLACE: u32 = 2 << 20;

impl Memory {
    /// The image at `path` where it belongs.
    ///
    /// # Errors
    /// It cannot be read, or is no image.
    pub fn of_image(path: &Path) -> Result<Self, EnvError> {
        let elf = std::fs::read(path).map_err(EnvError::file(path))?;
        Self::of_kernel(path, &elf)
    }

    /// The same of a kernel that was packed in the file at `path`.
    ///
    /// # Errors
    /// It has no PVH entry, or belongs where no memory is.
    pub fn of_kernel(path: &Path, elf: &[u8]) -> Result<Self, EnvError> {
        Self::of_elf(elf, bzimage::entry).map_err(not_wrapped(path))
    }

    /// The hypervisor at `path` where it belongs, with the entry that boot loaders
    /// take.
    ///
    /// # Errors
    /// It cannot be read, is no ELF file, or belongs where no memory is.
    pub fn of_hypervisor(path: &Path) -> Result<Self, EnvError> {
        let elf = std::fs::read(path).map_err(EnvError::file(path))?;
        let entry = |file: &File<'_>| u32::try_from(file.ehdr.e_entry).ok();
        Self::of_elf(&elf, entry).map_err(not_wrapped(path))
    }

    fn of_elf(elf: &[u8], entry: impl Fn(&File<'_>) -> Option<u32>) -> Result<Self, NotWrapped> {
        let not_elf = |error: elf::ParseError| NotWrapped::NotElf(error.to_string());
        let unfit = |reason| move || NotWrapped::Unfit(reason);
        let file = File::minimal_parse(elf).map_err(not_elf)?;
        let entry = entry(&file).ok_or_else(unfit("it has no PVH entry"))?;
        let mut memory = Self::entered_at(entry);
        let segments = file.segments().ok_or_else(unfit("it has no segments"))?;
        for segment in segments.iter().filter(|segment| segment.p_type == PT_LOAD) {
            let end = segment.p_paddr.saturating_add(segment.p_memsz);
            let fits = segment.p_paddr >= START.into() && end <= HIGHEST;
            fits.then_some(())
                .ok_or_else(unfit("it does not lie between 1 and 512 MiB"))?;
            memory.used = memory.used.max(end as u32);
            let bytes = file.segment_data(&segment);
            let bytes = bytes.map_err(|_| unfit("a segment lies outside the file")())?;
            memory.put(segment.p_paddr as u32, bytes);
        }
        Ok(memory)
    }

    /// Nothing, which is entered there.
    pub fn entered_at(entry: u32) -> Self {
        Self {
            bytes: Vec::new(),
            entry,
            tables: Vec::new(),
            used: START,
            modules: Vec::new(),
        }
    }

    /// Puts a file behind it, such as a Linux's initramfs.
    pub fn add_module(&mut self, file: &[u8]) {
        let at = self.used.next_multiple_of(MODULE_PLACE);
        let length = file.len() as u32;
        self.put(at, file);
        self.used = at + length;
        self.modules.push(Module { at, length });
    }

    /// Writes `bytes` at the address `at`.
    pub fn put(&mut self, at: u32, bytes: &[u8]) {
        let at = (at - START) as usize;
        let end = at + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[at..end].copy_from_slice(bytes);
    }

    /// The same, told its command line and that it has `mib` of memory; sealed.
    pub fn told(&self, command_line: &str, mib: u32) -> Self {
        let mut told = self.clone();
        let map = map(mib);
        let info = StartInfo {
            magic: START_INFO_MAGIC,
            version: 1,
            command_line: COMMAND_LINE.into(),
            memory_map: MAP.into(),
            memory_map_entries: map.len() as u32,
            module_count: self.modules.len() as u32,
            modules: MODULES.into(),
            ..StartInfo::default()
        };
        told.put(INFO, &info_bytes(&info));
        for (entry, at) in map.iter().zip((MAP..).step_by(24)) {
            told.put(at, &entry_bytes(entry));
        }
        for (module, at) in self.modules.iter().zip((MODULES..).step_by(32)) {
            let entry = [u64::from(module.at), u64::from(module.length), 0, 0];
            told.put(at, &entry.map(u64::to_le_bytes).concat());
        }
        told.put(COMMAND_LINE, &[command_line.as_bytes(), &[0]].concat());
        told.seal();
        told
    }

    /// The seal ends a page of its own.
    pub fn seal(&mut self) {
        let end = (self.bytes.len() + 4).next_multiple_of(PAGE);
        self.bytes.resize(end - 4, 0);
        self.bytes.extend(SEAL.to_le_bytes());
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The address behind its last byte.
    pub fn end(&self) -> u32 {
        START + self.bytes.len() as u32
    }
}

/// The ELF files that are put into memory.
type File<'a> = ElfBytes<'a, LittleEndian>;

fn not_wrapped(path: &Path) -> impl FnOnce(NotWrapped) -> EnvError {
    let path = path.to_owned();
    move |source| EnvError::NotWrapped { path, source }
}

/// The memory of a PC with `mib` of it.
pub fn map(mib: u32) -> [MemoryMapEntry; 3] {
    let high = u64::from(START);
    let ranges = [
        (0, 0x9_fc00, MEMORY_RAM),
        (0xf_0000, 0x1_0000, MEMORY_RESERVED),
        (high, (u64::from(mib) << 20) - high, MEMORY_RAM),
    ];
    ranges.map(|(address, size, kind)| MemoryMapEntry {
        address,
        size,
        kind,
        reserved: 0,
    })
}

/// The words of a start info, in their order.
fn info_bytes(info: &StartInfo) -> Vec<u8> {
    let halves = [info.magic, info.version, info.flags, info.module_count];
    let words = [info.modules, info.command_line, info.rsdp, info.memory_map];
    let last = [info.memory_map_entries, info.reserved];
    let bytes = halves.iter().flat_map(|half| half.to_le_bytes());
    bytes
        .chain(words.iter().flat_map(|word| word.to_le_bytes()))
        .chain(last.iter().flat_map(|half| half.to_le_bytes()))
        .collect()
}

fn entry_bytes(entry: &MemoryMapEntry) -> Vec<u8> {
    let words = [entry.address, entry.size];
    let halves = [entry.kind, entry.reserved];
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    bytes
        .chain(halves.iter().flat_map(|half| half.to_le_bytes()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_lies_where_it_is_looked_for_and_the_seal_is_last() {
        let mut memory = Memory::entered_at(0x11_0000);
        memory.add_module(b"file");
        memory.put(0x11_0000, b"code");
        let told = memory.told("trapline.run=basic", 64);
        let at = |address: u32, length: usize| {
            let start = (address - START) as usize;
            &told.bytes()[start..start + length]
        };
        assert_eq!(at(INFO, 4), START_INFO_MAGIC.to_le_bytes());
        assert_eq!(at(INFO + 24, 8), u64::from(COMMAND_LINE).to_le_bytes());
        assert_eq!(at(INFO + 48, 4), 3_u32.to_le_bytes());
        assert_eq!(at(MAP + 48 + 8, 8), (63_u64 << 20).to_le_bytes());
        assert_eq!(at(COMMAND_LINE, 19), b"trapline.run=basic\0");
        assert_eq!(at(0x11_0000, 4), b"code");
        assert_eq!(at(MODULES, 8), 0x20_0000_u64.to_le_bytes());
        assert_eq!(at(0x20_0000, 4), b"file");
        assert_eq!(told.end() % 4096, 0);
        assert_eq!(at(told.end() - 4, 4), SEAL.to_le_bytes());
    }
}
