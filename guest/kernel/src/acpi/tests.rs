//! Power-off with tables as firmware and VMMs make them, and with damaged ones.

use super::*;
use std::vec::Vec;

/// 128 KiB of memory below 1 MiB, where firmware has its tables.
const START: u64 = 0xe_0000;

struct Memory(Vec<u8>);

impl Physical for Memory {
    fn byte(&self, address: u64) -> Option<u8> {
        match address {
            0x40e | 0x40f => Some(0),
            0..1024 => Some(0xff),
            _ => self.0.get(address.checked_sub(START)? as usize).copied(),
        }
    }
}

/// Registers of a FADT.
#[derive(Clone, Copy)]
struct Registers {
    flags: u32,
    pm1a: u32,
    extended: [u8; 12],
    sleep: [u8; 12],
}

const NONE: [u8; 12] = [0; 12];

fn generic(space: u8, address: u64) -> [u8; 12] {
    let mut register = [space, 8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    register[4..].copy_from_slice(&address.to_le_bytes());
    register
}

/// Registers of QEMU's pc.
const PC: Registers = Registers {
    flags: 0,
    pm1a: 0x604,
    extended: NONE,
    sleep: NONE,
};

/// `_S5_` as a package of four numbers.
const S5: &[u8] = b"\x08_S5_\x12\x08\x04\x0a\x05\x0a\x05\0\0";

const ROOT: u64 = START + 0x100;
const DSDT: u64 = START + 0x1000;
const FADT: u64 = START + 0x2000;
const LIST: u64 = START + 0x3000;

impl Memory {
    /// Returns memory with an RSDT, or with an XSDT.
    fn new(registers: Registers, aml: &[u8], is_extended: bool) -> Self {
        let mut memory = Self(vec![0; 128 << 10]);
        memory.table(DSDT, b"DSDT", &[b"\x10\x01", aml].concat());
        let mut fadt = vec![0; 276 - HEADER as usize];
        let mut put = |offset: u64, bytes: &[u8]| {
            let at = (offset - HEADER) as usize;
            fadt[at..at + bytes.len()].copy_from_slice(bytes);
        };
        put(FADT_DSDT, &(DSDT as u32).to_le_bytes());
        put(FADT_PM1A_CONTROL, &registers.pm1a.to_le_bytes());
        put(FADT_FLAGS, &registers.flags.to_le_bytes());
        put(FADT_X_PM1A_CONTROL, &registers.extended);
        put(FADT_SLEEP_CONTROL, &registers.sleep);
        memory.table(FADT, b"FACP", &fadt);
        // The first table does not exist.
        let list: Vec<u8> = if is_extended {
            [0xfff_ffff_ffff_u64, FADT].map(u64::to_le_bytes).concat()
        } else {
            [7, FADT as u32].map(u32::to_le_bytes).concat()
        };
        let name = if is_extended { b"XSDT" } else { b"RSDT" };
        memory.table(LIST, name, &list);
        let (low, high) = if is_extended {
            (0, LIST)
        } else {
            (LIST as u32, 0)
        };
        memory.put(ROOT, b"RSD PTR \0BOCHS ");
        memory.put(ROOT + RSDP_REVISION, &[if is_extended { 2 } else { 0 }]);
        memory.put(ROOT + RSDP_RSDT, &low.to_le_bytes());
        memory.put(ROOT + RSDP_XSDT, &high.to_le_bytes());
        memory.sum(ROOT, 8, RSDP_LENGTH);
        memory
    }

    fn put(&mut self, address: u64, bytes: &[u8]) {
        let at = (address - START) as usize;
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Sets the checksum at `offset`.
    fn sum(&mut self, start: u64, offset: u64, length: u64) {
        self.put(start + offset, &[0]);
        let at = (start - START) as usize;
        let bytes = self.0[at..at + length as usize].iter();
        let sum = bytes.fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        self.put(start + offset, &[sum.wrapping_neg()]);
    }

    fn table(&mut self, address: u64, signature: &[u8; 4], body: &[u8]) {
        let length = HEADER + body.len() as u64;
        self.put(address, signature);
        self.put(address + 4, &(length as u32).to_le_bytes());
        self.put(address + HEADER, body);
        self.sum(address, 9, length);
    }
}

const OFF: Option<PowerOff> = Some(PowerOff::Control {
    port: 0x604,
    value: 5 << 10 | 1 << 13,
});

#[test]
fn the_control_register_is_found_with_and_without_a_root_pointer() {
    for is_extended in [false, true] {
        let memory = Memory::new(PC, S5, is_extended);
        assert_eq!(find(&memory, ROOT), OFF);
        assert_eq!(find(&memory, 0), OFF, "by a search");
    }
}

#[test]
fn names_and_numbers_of_the_sleep_state_have_several_encodings() {
    let kind = |aml: &[u8]| match find(&Memory::new(PC, aml, false), ROOT)? {
        PowerOff::Control { value, .. } => Some(value >> 10 & 7),
        other => panic!("{other:?}"),
    };
    assert_eq!(kind(b"\x08\\_S5_\x12\x06\x04\x01\x01\0\0"), Some(1));
    assert_eq!(kind(b"\x08_S5_\x12\x40\x01\x04\x0a\x07\0\0\0"), Some(7));
    assert_eq!(kind(b"\x08_S5_\x12\x06\x04\0\0\0\0"), Some(0));
    assert_eq!(kind(b"\x08_S4_\x12\x06\x04\0\0\0\0"), None, "another state");
    assert_eq!(kind(b"\x08_S5_\x12\x06\x04\x0a\x08\0\0\0"), None, "no type");
    assert_eq!(kind(b"\x14_S5_\x12\x06\x04\0\0\0\0"), None, "not a name");
    assert_eq!(kind(b"\x08_S5_\x12"), None, "beyond the end");
}

#[test]
fn extended_and_hardware_reduced_registers_are_found() {
    let found = |registers| find(&Memory::new(registers, S5, true), ROOT);
    let extended = Registers {
        extended: generic(1, 0x404),
        ..PC
    };
    let value = 5 << 10 | 1 << 13;
    let port = 0x404;
    assert_eq!(found(extended), Some(PowerOff::Control { port, value }));
    let reduced = |sleep| Registers {
        flags: 1 << 20,
        sleep,
        ..PC
    };
    let (port, value) = (0x600, 5 << 2 | 1 << 5);
    let sleep_port = Some(PowerOff::SleepPort { port, value });
    assert_eq!(found(reduced(generic(1, 0x600))), sleep_port);
    let address = 0xfea0_0000;
    let sleep_memory = Some(PowerOff::SleepMemory { address, value });
    assert_eq!(found(reduced(generic(0, address))), sleep_memory);
    for sleep in [
        NONE,
        generic(1, 0x1_0000),
        generic(0, 1 << 32),
        generic(0, 0x10_0800),
        generic(3, 0x600),
    ] {
        assert_eq!(found(reduced(sleep)), None, "{sleep:?}");
    }
}

#[test]
fn invalid_tables_are_not_used() {
    for address in [ROOT + 1, ROOT + 20, DSDT + 40, FADT, FADT + 200, LIST + 9] {
        let mut memory = Memory::new(PC, S5, true);
        let old = memory.byte(address).unwrap();
        memory.put(address, &[old ^ 0x10]);
        let is_covered = address != ROOT + 20;
        assert_eq!(find(&memory, ROOT).is_none(), is_covered, "{address:#x}");
    }
    for length in [0, 35, 36, MAX_TABLE as u32 + 1, u32::MAX] {
        let mut memory = Memory::new(PC, S5, false);
        memory.put(FADT + 4, &length.to_le_bytes());
        assert_eq!(find(&memory, ROOT), None);
    }
    let memory = Memory::new(Registers { pm1a: 0, ..PC }, S5, false);
    assert_eq!(find(&memory, ROOT), None, "no register");
    for rsdp in [1, ROOT + 16, 1 << 32, u64::MAX] {
        assert_eq!(find(&memory, rsdp), None, "{rsdp:#x}");
    }
    assert_eq!(find(&Memory(Vec::new()), 0), None, "no tables");
}

#[test]
fn damaged_tables_with_valid_checksums_are_survived() {
    let mut random = 1_u64;
    for _ in 0..20_000 {
        // xorshift64 (Marsaglia 2003).
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut memory = Memory::new(PC, S5, random & 1 == 0);
        let table = [DSDT, FADT, LIST][(random >> 8) as usize % 3];
        let offset = 4 + (random >> 16) % 250;
        memory.put(table + offset, &[(random >> 32) as u8]);
        let length = number(&memory, table + 4, 4).unwrap().clamp(HEADER, 4096);
        memory.sum(table, 9, length);
        find(&memory, ROOT);
    }
}

#[test]
fn devices_and_the_guard_page_are_not_read() {
    let readable = [0, 0xf_ffff, 0x10_1000, 0xdfff_ffff];
    assert!(readable.into_iter().all(is_readable));
    let others = [0x10_0000, 0x10_0fff, 0xe000_0000, 0xfee0_0000, 1 << 32];
    assert!(!others.into_iter().any(is_readable));
}
