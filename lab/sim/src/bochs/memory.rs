//! Initial memory of the machine, and what its firmware needs to enter it.
//!
//! There is no disk and no BIOS: Bochs reads a file into memory, and the firmware enters the image by its PVH
//! entry.

use crate::image_format::{self, not_converted, InvalidImage};
use elf::abi::PT_LOAD;
use elf::endian::LittleEndian;
use elf::ElfBytes;
use std::path::Path;
use trapline_abi::platform::{
    MemoryMapEntry, StartInfo, MEMORY_RAM, MEMORY_RESERVED, START_INFO_MAGIC,
};
use trapline_host::Error;

/// First address of the initial memory, above all legacy devices.
pub const START: u32 = 0x10_0000;

/// Address of the start info: behind the page that the image keeps free, at the end of its boot stack.
pub const INFO: u32 = START + 0x1000;
const MODULES: u32 = INFO + 0x80;
const MAP: u32 = INFO + 0x100;
const COMMAND_LINE: u32 = INFO + 0x400;

const PAGE: usize = 4096;

/// Limit of the initial memory: less than that of the smallest machine with Linux.
const HIGHEST: u64 = 512 << 20;

/// Last word of the initial memory: proves that Bochs read all of it to the right address.
pub const SEAL: u32 = 0x7261_6e61;

/// The initial memory from [`START`] on.
#[derive(Clone)]
pub struct Memory {
    bytes: Vec<u8>,
    /// Entry point.
    pub entry: u32,
    /// ACPI tables in the firmware, at [`super::acpi::TABLES`].
    pub tables: Vec<u8>,
    /// End of the memory used at run time.
    used: u32,
    /// Modules.
    pub modules: Vec<Module>,
}

/// A module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its address.
    pub at: u32,
    /// Its size in bytes.
    pub length: u32,
}

/// Alignment of modules.
const MODULE_PLACE: u32 = 2 << 20;

impl Memory {
    /// Loads the image at `path`.
    ///
    /// # Errors
    /// It cannot be read, or is no image.
    pub fn of_image(path: &Path) -> Result<Self, Error> {
        let elf = std::fs::read(path).map_err(Error::file(path))?;
        Self::of_kernel(path, &elf)
    }

    /// Loads a kernel unpacked from the file at `path`.
    ///
    /// # Errors
    /// It has no PVH entry, or its address is outside of memory.
    pub fn of_kernel(path: &Path, elf: &[u8]) -> Result<Self, Error> {
        Self::of_elf(elf, image_format::entry).map_err(not_converted(path))
    }

    /// Loads the hypervisor at `path` with its multiboot entry.
    ///
    /// # Errors
    /// It cannot be read, is no ELF file, or its address is outside of memory.
    pub fn of_hypervisor(path: &Path) -> Result<Self, Error> {
        let elf = std::fs::read(path).map_err(Error::file(path))?;
        let entry = |file: &File<'_>| u32::try_from(file.ehdr.e_entry).ok();
        Self::of_elf(&elf, entry).map_err(not_converted(path))
    }

    fn of_elf(elf: &[u8], entry: impl Fn(&File<'_>) -> Option<u32>) -> Result<Self, InvalidImage> {
        let not_elf = |error: elf::ParseError| InvalidImage::NotElf(error.to_string());
        let unfit = |reason| move || InvalidImage::Unsupported(reason);
        let file = File::minimal_parse(elf).map_err(not_elf)?;
        let entry = entry(&file).ok_or_else(unfit("no PVH entry"))?;
        let mut memory = Self::entered_at(entry);
        let segments = file.segments().ok_or_else(unfit("no segments"))?;
        for segment in segments.iter().filter(|segment| segment.p_type == PT_LOAD) {
            let end = segment.p_paddr.saturating_add(segment.p_memsz);
            let fits = segment.p_paddr >= START.into() && end <= HIGHEST;
            fits.then_some(())
                .ok_or_else(unfit("segments are not between 1 and 512 MiB"))?;
            memory.used = memory.used.max(end as u32);
            let bytes = file.segment_data(&segment);
            let bytes = bytes.map_err(|_| unfit("a segment lies outside the file")())?;
            memory.put(segment.p_paddr as u32, bytes);
        }
        Ok(memory)
    }

    /// Returns empty memory with an entry point.
    pub fn entered_at(entry: u32) -> Self {
        Self {
            bytes: Vec::new(),
            entry,
            tables: Vec::new(),
            used: START,
            modules: Vec::new(),
        }
    }

    /// Appends a module, such as an initramfs.
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

    /// Adds the start info with a command line for `mib` of memory, and the seal.
    pub fn with_command_line(&self, command_line: &str, mib: u32) -> Self {
        let mut memory = self.clone();
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
        memory.put(INFO, &info_bytes(&info));
        for (entry, at) in map.iter().zip((MAP..).step_by(24)) {
            memory.put(at, &entry_bytes(entry));
        }
        for (module, at) in self.modules.iter().zip((MODULES..).step_by(32)) {
            let entry = [u64::from(module.at), u64::from(module.length), 0, 0];
            memory.put(at, &entry.map(u64::to_le_bytes).concat());
        }
        memory.put(COMMAND_LINE, &[command_line.as_bytes(), &[0]].concat());
        memory.seal();
        memory
    }

    /// Appends the seal at the end of a page.
    pub fn seal(&mut self) {
        let end = (self.bytes.len() + 4).next_multiple_of(PAGE);
        self.bytes.resize(end - 4, 0);
        self.bytes.extend(SEAL.to_le_bytes());
    }

    /// Returns its contents.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the address after its last byte.
    pub fn end(&self) -> u32 {
        START + self.bytes.len() as u32
    }
}

/// An ELF file to load.
type File<'a> = ElfBytes<'a, LittleEndian>;

/// Returns the memory map of a PC with `mib` of memory.
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

/// Returns the fields of a start info, in order.
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
    fn start_info_and_modules_have_their_addresses_and_the_seal_is_last() {
        let mut memory = Memory::entered_at(0x11_0000);
        memory.add_module(b"file");
        memory.put(0x11_0000, b"code");
        let entered = memory.with_command_line("trapline.run=basic", 64);
        let at = |address: u32, length: usize| {
            let start = (address - START) as usize;
            &entered.bytes()[start..start + length]
        };
        assert_eq!(at(INFO, 4), START_INFO_MAGIC.to_le_bytes());
        assert_eq!(at(INFO + 24, 8), u64::from(COMMAND_LINE).to_le_bytes());
        assert_eq!(at(INFO + 48, 4), 3_u32.to_le_bytes());
        assert_eq!(at(MAP + 48 + 8, 8), (63_u64 << 20).to_le_bytes());
        assert_eq!(at(COMMAND_LINE, 19), b"trapline.run=basic\0");
        assert_eq!(at(0x11_0000, 4), b"code");
        assert_eq!(at(MODULES, 8), 0x20_0000_u64.to_le_bytes());
        assert_eq!(at(0x20_0000, 4), b"file");
        assert_eq!(entered.end() % 4096, 0);
        assert_eq!(at(entered.end() - 4, 4), SEAL.to_le_bytes());
    }
}
