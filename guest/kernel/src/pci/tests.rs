//! Enumeration and addresses of devices in an imitated configuration space.

use super::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::vec::Vec;

const GAP: Range<u64> = 0xc000_0000..0xc001_0000;
/// Device 3, function 0.
const PLACE: Function = Function(3 << 3);

/// Configuration space of some functions, with base address registers of 16 KiB.
#[derive(Default)]
struct Fake {
    registers: RefCell<BTreeMap<(u8, u8), u32>>,
    /// Addresses above the identity map can be mapped.
    maps: bool,
    /// Address that the base address register keeps, whatever is written.
    fixed: Option<u64>,
}

/// Distance of a mapped address from its physical one.
const MAPPED: u64 = 1 << 40;

/// Bytes behind the base address register with structures.
const SIZE: u32 = 0x4000;
/// The register with structures, 64 bits.
const BASE: u8 = 4;

impl Fake {
    fn put(&self, function: Function, register: u8, value: u32) {
        let place = (function.0, register);
        self.registers.borrow_mut().insert(place, value);
    }

    /// Returns a machine with an entropy device as QEMU has it, at `address`.
    fn with_device(address: u64) -> Self {
        let fake = Self::default();
        fake.put(Function(0), IDENTITY, 0x1237_8086);
        let put = |register, value| fake.put(PLACE, register, value);
        put(IDENTITY, 0x1044_1af4);
        put(COMMAND, HAS_CAPABILITIES | 0x0103);
        put(CAPABILITIES, 0x98);
        put(0x10 + 4 * BASE, address as u32 | 0xc);
        put(0x14 + 4 * BASE, (address >> 32) as u32);
        // MSI-X, then common configuration, notifications and device, in the order of their addresses.
        fake.capability(0x98, 0x11 | 0x84 << 8 | 1 << 16, &[1 << 3 | 4, 0]);
        fake.capability(
            0x84,
            0x09 | 0x70 << 8 | 20 << 16 | 2 << 24,
            &[4, 0x3000, 0x1000, 4],
        );
        fake.capability(
            0x70,
            0x09 | 0x60 << 8 | 16 << 16 | 4 << 24,
            &[4, 0x2000, 0x1000],
        );
        fake.capability(0x60, 0x09 | 16 << 16 | 1 << 24, &[4, 0x1000, 0x1000]);
        fake
    }

    fn capability(&self, place: u8, header: u32, fields: &[u32]) {
        self.put(PLACE, place, header);
        for (index, field) in fields.iter().enumerate() {
            self.put(PLACE, place + 4 + 4 * index as u8, *field);
        }
    }

    fn open(&self) -> Result<Structures, Reason> {
        open(self, PLACE, &mut GAP.clone())
    }
}

impl Config for Fake {
    fn read(&self, function: Function, register: u8) -> u32 {
        assert!(register.is_multiple_of(4), "{register:#x}");
        let registers = self.registers.borrow();
        let is_present = registers.contains_key(&(function.0, IDENTITY));
        let absent = if is_present { 0 } else { u32::MAX };
        *registers.get(&(function.0, register)).unwrap_or(&absent)
    }

    fn write(&self, function: Function, register: u8, value: u32) {
        let old = self.read(function, register);
        let (low, high) = (0x10 + 4 * BASE, 0x14 + 4 * BASE);
        // All ones ask for the size.
        let fixed = self.fixed.filter(|_| value != u32::MAX);
        let kept = match (register, fixed) {
            (0x10..0x28, Some(address)) if register == low => address as u32 | old & FLAGS,
            (0x10..0x28, Some(address)) if register == high => (address >> 32) as u32,
            (0x10..0x28, _) if register == low => value & !(SIZE - 1) | old & FLAGS,
            (0x10..0x28, _) if register == high => value,
            // Not implemented.
            (0x10..0x28, _) => 0,
            (_, _) => value,
        };
        self.put(function, register, kept);
    }

    fn write16(&self, function: Function, register: u8, value: u16) {
        let (place, shift) = (register & !3, 8 * u32::from(register & 2));
        let others = self.read(function, place) & !(0xffff << shift);
        self.put(function, place, others | u32::from(value) << shift);
    }

    fn map(&self, registers: Range<u64>) -> Option<u64> {
        assert!(registers.end > FOUR_GIB, "{registers:x?}");
        self.maps.then_some(registers.start + MAPPED)
    }
}

const ADDRESS: u64 = 0xfe00_0000;
/// Address that Firecracker assigns.
const HIGH: u64 = 256 << 30;

#[test]
fn structures_are_at_the_address_of_the_firmware() {
    let fake = Fake::with_device(ADDRESS);
    let found: Vec<_> = devices(&fake).collect();
    let (function, kind) = (PLACE, 4);
    assert_eq!(found, [Device { function, kind }]);
    let expected = Structures {
        common: ADDRESS + 0x1000,
        notify: (ADDRESS + 0x3000, 0x1000),
        multiplier: 4,
        device: (ADDRESS + 0x2000, 0x1000),
        message: Some(ADDRESS + 8),
    };
    assert_eq!(fake.open(), Ok(expected));
    let command = fake.read(PLACE, COMMAND);
    assert_eq!(
        command,
        HAS_CAPABILITIES | 0x0103 | u32::from(MEMORY_SPACE | BUS_MASTER)
    );
    assert_eq!(fake.read(PLACE, 0x98) >> 31, 1, "MSI-X is enabled");
}

#[test]
fn missing_and_high_addresses_are_assigned() {
    for address in [0, 1 << 32, FOUR_GIB - u64::from(SIZE) / 2, !0x3fff] {
        let fake = Fake::with_device(address);
        assert_eq!(
            fake.open().map(|found| found.common),
            Ok(GAP.start + 0x1000)
        );
        assert_eq!(fake.read(PLACE, 0x20), GAP.start as u32 | 0xc);
        assert_eq!(fake.read(PLACE, 0x24), 0);
    }
    let mut gap = GAP.start + 1..GAP.start + 0x7fff;
    let fake = Fake::with_device(0);
    let reason = open(&fake, PLACE, &mut gap).unwrap_err();
    assert!(reason.contains("no addresses left"), "{reason}");
}

#[test]
fn high_addresses_are_kept_where_they_can_be_mapped() {
    for fixed in [None, Some(HIGH)] {
        let fake = Fake {
            maps: true,
            fixed,
            ..Fake::with_device(HIGH)
        };
        let found = fake.open().unwrap();
        assert_eq!(found.common, MAPPED + HIGH + 0x1000);
        assert_eq!(found.notify, (MAPPED + HIGH + 0x3000, 0x1000));
        assert_eq!(fake.read(PLACE, 0x20), HIGH as u32 | 0xc);
        assert_eq!(fake.read(PLACE, 0x24), (HIGH >> 32) as u32);
    }
    let fake = Fake {
        fixed: Some(HIGH),
        ..Fake::with_device(HIGH)
    };
    let reason = fake.open().unwrap_err();
    assert!(reason.contains("cannot be moved"), "{reason}");
}

#[test]
fn functions_behind_the_first_count_only_if_there_are_several() {
    let fake = Fake::with_device(ADDRESS);
    let second = Function(PLACE.0 + 1);
    fake.put(second, IDENTITY, 0x1001_1af4);
    fake.put(second, SUBSYSTEM, 2 << 16 | 0x1af4);
    assert_eq!(devices(&fake).count(), 1);
    fake.put(PLACE, HEADER_TYPE, SEVERAL_FUNCTIONS);
    let kinds: Vec<_> = devices(&fake).map(|device| device.kind).collect();
    assert_eq!(kinds, [4, 2], "the second one is transitional");
    assert_eq!((second.device(), second.number()), (3, 1));
    assert_eq!(devices(&Fake::default()).count(), 0, "there is no PCI");
}

#[test]
fn invalid_registers_are_rejected() {
    let invalid = |place, value| {
        let fake = Fake::with_device(ADDRESS);
        fake.put(PLACE, place, value);
        fake.open().is_err()
    };
    assert!(invalid(COMMAND, 0), "no capabilities");
    assert!(invalid(0x60, 0x09 | 0x98 << 8 | 1 << 24), "a circle");
    assert!(invalid(0x60, 0), "no common configuration");
    assert!(invalid(0x64, 6), "no such base address register");
    assert!(invalid(0x64, 0), "a base address register without a size");
    assert!(invalid(0x68, 0x3001), "beyond its size");
    assert!(invalid(0x68, u32::MAX), "far beyond its size");
    assert!(invalid(0x6c, 0x37), "too short");
    assert!(invalid(0x20, 0xc001), "ports");
    assert!(
        invalid(0x98, 0x11 | 0xfc << 8),
        "a capability beyond the end"
    );
    assert!(!invalid(0x98, 0x05 | 0x84 << 8), "without MSI-X");
}

#[test]
fn random_registers_are_survived() {
    let mut random = 1_u64;
    for _ in 0..50_000 {
        // xorshift64 (Marsaglia 2003).
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let fake = Fake::with_device(ADDRESS);
        for shift in [0, 20] {
            let register = (random >> shift) as u8 & !3;
            fake.put(
                PLACE,
                register,
                (random >> 32) as u32 >> (random >> shift & 31),
            );
        }
        if let Ok(found) = fake.open() {
            assert!(found.common + COMMON_BYTES <= FOUR_GIB, "{found:x?}");
            assert!(found.notify.0 + found.notify.1 <= FOUR_GIB, "{found:x?}");
        }
    }
}
