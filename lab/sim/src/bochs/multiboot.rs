//! Loads a hypervisor by multiboot with its modules (Multiboot Specification 0.6.96): Xen with kernel and initramfs of
//! dom0, NOVA with its root task and an image. Xen has a PVH entry, too, but runs as a guest then.
//!
//! The firmware enters a stub that does what both need of a BIOS: data about the end of low memory and the serial port,
//! and VMX enabled.

use super::acpi;
use super::machine::Platform;
use super::memory::{map, Memory, INFO, START};
use trapline_abi::platform::{MemoryMapEntry, COM1, MEMORY_RESERVED};

/// Addresses of the multiboot information. A command line may take a page.
const MODULES: u32 = INFO + 0x80;
const MAP: u32 = INFO + 0x100;
const LOADER: u32 = INFO + 0x200;
const HOME: u32 = INFO + 0x400;
const WORDS: u32 = START + 0x2000;
const WORDS_ROOM: u32 = 0x1000;

/// Command lines begin with a file name, as of boot loaders.
const FILE: &str = "trapline";

/// Value of EAX at the entry of a multiboot kernel.
const LOADED: u32 = 0x2bad_b002;

/// BIOS data: first serial port, segment of the extended BIOS data area, and the memory below it in KiB.
const SERIAL_PORT: u32 = 0x400;
const EBDA_SEGMENT: u32 = 0x40e;
const EBDA: u16 = 0x9fc0;
const BASE_MEMORY: u32 = 0x413;
const BASE_KIB: u16 = 639;

/// MSR that firmware sets: locked, and VMX outside of SMX is enabled (Intel SDM volume 3, 24.7).
const FEATURE_CONTROL: u32 = 0x3a;
const VMX_AND_LOCK: u32 = 1 << 0 | 1 << 2;

/// Offsets in the stub, see multiboot.s.
const ENTRY: usize = 0x70;
const HAS_PCI: usize = 0x74;
const CODE: usize = 0x75;

/// Power management of the PCI chipset (Intel 82371AB data sheet, 7.1): configuration registers of its ports and of
/// their use, the ports, and that of its timer.
const PORTS_REGISTER: u32 = 0x8000_0b40;
const ENABLE_REGISTER: u32 = 0x8000_0b80;
const PORTS: u16 = 0xb000;
const TIMER: u16 = PORTS + 8;

core::arch::global_asm!(
    include_str!("multiboot.s"),
    SERIAL_PORT = const SERIAL_PORT,
    COM1 = const COM1,
    FEATURE_CONTROL = const FEATURE_CONTROL,
    VMX_AND_LOCK = const VMX_AND_LOCK,
    EBDA_SEGMENT = const EBDA_SEGMENT,
    EBDA = const EBDA,
    BASE_MEMORY = const BASE_MEMORY,
    BASE_KIB = const BASE_KIB,
    PORTS_REGISTER = const PORTS_REGISTER,
    ENABLE_REGISTER = const ENABLE_REGISTER,
    PORTS = const PORTS,
    HAS_PCI = const HAS_PCI,
    LOADED = const LOADED,
    HOME = const HOME,
    ENTRY = const ENTRY,
    CODE = const CODE,
);

extern "C" {
    /// See multiboot.s.
    #[link_name = "trapline_multiboot"]
    static ENTERING: [u8; CODE];
}

/// Flags: memory sizes, command line, modules, memory map, and name of the boot loader.
const FLAGS: u32 = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 9;

/// Offsets of these fields.
const MEMORY_SIZES: usize = 4;
const COMMAND_LINE: usize = 16;
const MODULE_COUNT: usize = 20;
const MAP_LENGTH: usize = 44;
const LOADER_NAME: usize = 64;
const INFO_BYTES: usize = 72;

/// Adds the multiboot information for a platform, with command lines and `mib` of memory, and the seal.
pub fn with_info(
    memory: &Memory,
    platform: Platform,
    words: &str,
    of_modules: &[&str],
    mib: u32,
) -> Memory {
    let mut loaded = memory.clone();
    let rooms = (WORDS..).step_by(WORDS_ROOM as usize);
    let all = [words].into_iter().chain(of_modules.iter().copied());
    for (words, room) in all.zip(rooms.clone()) {
        loaded.put(room, format!("{FILE} {words}\0").as_bytes());
    }
    let modules = memory.modules.iter().zip(rooms.skip(1));
    let modules = modules.flat_map(|(file, words)| [file.at, file.at + file.length, words, 0]);
    loaded.put(MODULES, &bytes(modules));
    let mut ranges: Vec<_> = map(mib).into_iter().chain(beside_memory()).collect();
    ranges.sort_by_key(|range| range.address);
    loaded.put(MAP, &ranges.iter().flat_map(range).collect::<Vec<_>>());
    loaded.put(LOADER, b"trapline\0");
    loaded.put(INFO, &info(memory.modules.len(), ranges.len(), mib));
    // SAFETY: multiboot.s defines exactly this many bytes, and nothing writes them.
    let mut code = unsafe { ENTERING };
    code[ENTRY..HAS_PCI].copy_from_slice(&memory.entry.to_le_bytes());
    code[HAS_PCI] = platform.has_pci.into();
    loaded.put(HOME, &code);
    loaded.entry = HOME;
    loaded.tables = acpi::tables(platform.has_pci.then_some(TIMER));
    loaded.seal();
    loaded
}

fn info(modules: usize, ranges: usize, mib: u32) -> Vec<u8> {
    let mut info = [0; INFO_BYTES];
    let mut put = |at: usize, values: &[u32]| {
        let bytes = bytes(values.iter().copied());
        info[at..at + bytes.len()].copy_from_slice(&bytes);
    };
    put(0, &[FLAGS]);
    put(MEMORY_SIZES, &[BASE_KIB.into(), (mib - 1) << 10]);
    put(COMMAND_LINE, &[WORDS]);
    put(MODULE_COUNT, &[modules as u32, MODULES]);
    put(MAP_LENGTH, &[(ranges * RANGE) as u32, MAP]);
    put(LOADER_NAME, &[LOADER]);
    info.to_vec()
}

/// Returns the ranges of APICs and firmware.
fn beside_memory() -> impl Iterator<Item = MemoryMapEntry> {
    let last = MemoryMapEntry {
        address: 0x9_fc00,
        size: 0x400,
        kind: MEMORY_RESERVED,
        reserved: 0,
    };
    let others = [
        (0xfec0_0000, 0x1000),
        (0xfee0_0000, 0x1000),
        (0xffff_0000, 0x1_0000),
    ];
    let others = others.map(|(address, size)| MemoryMapEntry {
        address,
        size,
        ..last
    });
    [last].into_iter().chain(others)
}

/// Size of a range in the map.
const RANGE: usize = 24;

/// Returns a range after its size.
fn range(entry: &MemoryMapEntry) -> Vec<u8> {
    let length = RANGE as u32 - 4;
    let (at, size) = (entry.address.to_le_bytes(), entry.size.to_le_bytes());
    let (length, kind) = (length.to_le_bytes(), entry.kind.to_le_bytes());
    [&length[..], &at, &size, &kind].concat()
}

fn bytes(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiboot_information_refers_to_modules_and_command_lines() {
        let mut memory = Memory::entered_at(0x20_0000);
        memory.put(0x20_0000, b"xen");
        memory.add_module(b"kernel");
        memory.add_module(b"files");
        let loaded = with_info(
            &memory,
            Platform::COMMON,
            "sched=credit",
            &["quiet", ""],
            64,
        );
        let at = |address: u32| &loaded.bytes()[(address - START) as usize..];
        let word = |address: u32| u32::from_le_bytes(at(address)[..4].try_into().unwrap());
        assert_eq!(word(INFO), 0x24d);
        assert_eq!((word(INFO + 4), word(INFO + 8)), (639, 63 << 10));
        assert!(at(word(INFO + 16)).starts_with(b"trapline sched=credit\0"));
        assert_eq!(word(INFO + 20), 2);
        let first = word(INFO + 24);
        assert!(at(word(first)).starts_with(b"kernel"));
        assert!(at(word(first + 8)).starts_with(b"trapline quiet\0"));
        assert!(at(word(first + 16)).starts_with(b"files"));
        assert_eq!(word(first + 20) - word(first + 16), 5);
        assert!(
            word(first + 16) > word(first + 4),
            "one file over the other"
        );
        // Seven ranges, from the bottom of memory to its firmware.
        let (length, map) = (word(INFO + 44), word(INFO + 48));
        assert_eq!((length, word(map), word(map + 4)), (7 * 24, 20, 0));
        assert_eq!(word(map + 6 * 24 + 4), 0xffff_0000);
    }

    #[test]
    fn stub_enters_the_hypervisor() {
        let loaded = with_info(&Memory::entered_at(0x20_0000), Platform::NOVA, "", &[], 64);
        assert_eq!(loaded.entry, HOME);
        let code = &loaded.bytes()[(HOME - START) as usize..][..CODE];
        assert_eq!(code[ENTRY..HAS_PCI], 0x20_0000_u32.to_le_bytes());
        assert_eq!(code[HAS_PCI], 1);
        // mov word ptr [0x400], 0x3f8
        assert_eq!(code[..9], [0x66, 0xc7, 0x05, 0, 0x04, 0, 0, 0xf8, 0x03]);
        assert_eq!(loaded.tables, acpi::tables(Some(0xb008)));
    }
}
