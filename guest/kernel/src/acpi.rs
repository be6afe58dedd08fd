//! Power-off by ACPI (ACPI 6.5): finds the register of sleep state S5 in the tables of the firmware.
//!
//! Nothing here runs unless the job selects [`Shutdown::PowerOff`], and then only when the machine is to end. Tables
//! are not trusted: addresses, lengths and checksums are checked, and nothing is written if one is wrong.
//!
//! [`Shutdown::PowerOff`]: trapline_abi::job::Shutdown::PowerOff

use trapline_abi::platform::PAGE;

/// Maximum length of a table that is read, in bytes.
const MAX_TABLE: u64 = 256 << 10;
/// Maximum number of tables that are examined.
const MAX_TABLES: u64 = 64;

/// Header of a table (5.2.6): signature, length at 4, checksum over all of it.
const HEADER: u64 = 36;
/// Root pointer (5.2.5.3): revision, addresses of RSDT and XSDT, length that the first checksum covers.
const RSDP_REVISION: u64 = 15;
const RSDP_RSDT: u64 = 16;
const RSDP_XSDT: u64 = 24;
const RSDP_LENGTH: u64 = 20;

/// Fields of the FADT (table 5.9).
const FADT_DSDT: u64 = 40;
const FADT_PM1A_CONTROL: u64 = 64;
const FADT_FLAGS: u64 = 112;
const FADT_X_DSDT: u64 = 140;
const FADT_X_PM1A_CONTROL: u64 = 172;
const FADT_SLEEP_CONTROL: u64 = 244;
/// Flag: hardware-reduced ACPI, with a sleep control register.
const HARDWARE_REDUCED: u64 = 1 << 20;

/// Areas where the root pointer is searched without a start info that has it (5.2.5.1): the first KiB of the
/// extended BIOS data area, whose segment is at 0x40e, and the BIOS.
const EXTENDED_AREA: u64 = 0x40e;
const EXTENDED_BYTES: u64 = 1024;
const BIOS: core::ops::Range<u64> = 0xe_0000..0x10_0000;

/// Physical memory.
pub trait Physical {
    /// Returns a byte; `None` if the address cannot be read.
    fn byte(&self, address: u64) -> Option<u8>;
}

/// A write that switches the machine off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerOff {
    /// 16 bits to the PM1a control register (4.8.3.2.1).
    Control { port: u16, value: u16 },
    /// A byte to the sleep control register of hardware-reduced ACPI (4.8.3.7), a port.
    SleepPort { port: u16, value: u8 },
    /// The same in memory.
    SleepMemory { address: u64, value: u8 },
}

/// Returns the write that switches the machine off. The root pointer is at `rsdp`, or searched if that is 0; `None` if the machine
/// has no power-off by ACPI, or a table is invalid.
pub fn find(memory: &impl Physical, rsdp: u64) -> Option<PowerOff> {
    let rsdp = match rsdp {
        0 => search(memory)?,
        address => address,
    };
    let fadt = fadt(memory, rsdp)?;
    let extended = if fadt.has(FADT_X_DSDT, 8) {
        number(memory, fadt.start + FADT_X_DSDT, 8)?
    } else {
        0
    };
    let dsdt = match extended {
        0 => number(memory, fadt.start + FADT_DSDT, 4)?,
        address => address,
    };
    let kind = sleep_type(memory, &table(memory, dsdt, b"DSDT")?)?;
    match number(memory, fadt.start + FADT_FLAGS, 4)? & HARDWARE_REDUCED {
        0 => control(memory, &fadt, kind),
        _ => sleep_control(memory, &fadt, kind),
    }
}

/// Returns the write to the PM1a control register: sleep type and SLP_EN.
fn control(memory: &impl Physical, fadt: &Table, kind: u8) -> Option<PowerOff> {
    let value = u16::from(kind) << 10 | 1 << 13;
    let extended = fadt.register(memory, FADT_X_PM1A_CONTROL);
    let port = match extended {
        Some((SYSTEM_IO, address)) => address,
        _ => number(memory, fadt.start + FADT_PM1A_CONTROL, 4)?,
    };
    let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
    Some(PowerOff::Control { port, value })
}

/// Returns the write to the sleep control register: sleep type and SLP_EN.
fn sleep_control(memory: &impl Physical, fadt: &Table, kind: u8) -> Option<PowerOff> {
    let value = kind << 2 | 1 << 5;
    match fadt.register(memory, FADT_SLEEP_CONTROL)? {
        (SYSTEM_IO, port) => {
            let port = u16::try_from(port).ok()?;
            Some(PowerOff::SleepPort { port, value })
        }
        (SYSTEM_MEMORY, address) => {
            is_mapped(address).then_some(PowerOff::SleepMemory { address, value })
        }
        _ => None,
    }
}

/// Address spaces of a generic address (5.2.3.2).
const SYSTEM_MEMORY: u8 = 0;
const SYSTEM_IO: u8 = 1;

/// A table with a valid checksum.
struct Table {
    start: u64,
    length: u64,
}

impl Table {
    fn has(&self, offset: u64, bytes: u64) -> bool {
        offset + bytes <= self.length
    }

    /// Returns address space and address of the register whose generic address is at `offset`; `None` if there is none.
    fn register(&self, memory: &impl Physical, offset: u64) -> Option<(u8, u64)> {
        if !self.has(offset, 12) {
            return None;
        }
        let address = number(memory, self.start + offset + 4, 8)?;
        let space = memory.byte(self.start + offset)?;
        (address != 0).then_some((space, address))
    }
}

/// Returns the little-endian number of `bytes` at `address`.
fn number(memory: &impl Physical, address: u64, bytes: u64) -> Option<u64> {
    (0..bytes).rev().try_fold(0, |number, index| {
        let byte = memory.byte(address.checked_add(index)?)?;
        Some(number << 8 | u64::from(byte))
    })
}

fn has_text(memory: &impl Physical, address: u64, text: &[u8]) -> bool {
    let mut bytes = text.iter().zip(0..);
    bytes.all(|(byte, index)| {
        address.checked_add(index).and_then(|at| memory.byte(at)) == Some(*byte)
    })
}

fn is_summed(memory: &impl Physical, start: u64, length: u64) -> bool {
    let sum = (0..length).try_fold(0_u8, |sum, index| {
        Some(sum.wrapping_add(memory.byte(start.checked_add(index)?)?))
    });
    sum == Some(0)
}

/// Searches the root pointer.
fn search(memory: &impl Physical) -> Option<u64> {
    let extended = number(memory, EXTENDED_AREA, 2)? << 4;
    let places = (extended..extended + EXTENDED_BYTES).chain(BIOS);
    let mut places = places.step_by(16);
    places.find(|place| is_root_pointer(memory, *place))
}

fn is_root_pointer(memory: &impl Physical, address: u64) -> bool {
    has_text(memory, address, b"RSD PTR ") && is_summed(memory, address, RSDP_LENGTH)
}

/// Returns the FADT of the tables below the root pointer.
fn fadt(memory: &impl Physical, rsdp: u64) -> Option<Table> {
    if !is_root_pointer(memory, rsdp) {
        return None;
    }
    let extended = match memory.byte(rsdp + RSDP_REVISION)? {
        0 | 1 => 0,
        _ => number(memory, rsdp + RSDP_XSDT, 8)?,
    };
    let (root, bytes) = match extended {
        0 => {
            let address = number(memory, rsdp + RSDP_RSDT, 4)?;
            (table(memory, address, b"RSDT")?, 4)
        }
        address => (table(memory, address, b"XSDT")?, 8),
    };
    let count = ((root.length - HEADER) / bytes).min(MAX_TABLES);
    let entries = (0..count).map(|index| root.start + HEADER + bytes * index);
    let mut tables = entries.filter_map(|at| number(memory, at, bytes));
    tables.find_map(|address| {
        let fadt = table(memory, address, b"FACP")?;
        fadt.has(FADT_FLAGS, 4).then_some(fadt)
    })
}

/// Returns the table at `address` if it has this signature and a valid length and checksum.
fn table(memory: &impl Physical, address: u64, signature: &[u8; 4]) -> Option<Table> {
    if !has_text(memory, address, signature) {
        return None;
    }
    let length = number(memory, address + 4, 4)?;
    let is_valid = (HEADER..=MAX_TABLE).contains(&length) && is_summed(memory, address, length);
    is_valid.then_some(Table {
        start: address,
        length,
    })
}

/// Returns the sleep type of S5: the first number of the package `_S5_` (7.4.2.6; encoding in 20.2).
fn sleep_type(memory: &impl Physical, dsdt: &Table) -> Option<u8> {
    const NAME: u8 = 0x08;
    const ROOT: u8 = 0x5c;
    const PACKAGE: u8 = 0x12;
    const BYTE: u8 = 0x0a;
    let end = dsdt.start + dsdt.length;
    let byte = |at: u64| memory.byte(at).filter(|_| at < end);
    let mut places = dsdt.start + HEADER + 2..end;
    let name = places.find(|at| has_text(memory, *at, b"_S5_") && byte(at + 4) == Some(PACKAGE))?;
    if byte(name - 1)? != NAME && (byte(name - 1)?, byte(name - 2)?) != (ROOT, NAME) {
        return None;
    }
    // The first byte of a length has the number of further ones in its upper two bits; the number of elements follows.
    let length = name + 5;
    let first = length + 2 + u64::from(byte(length)? >> 6);
    let kind = match byte(first)? {
        BYTE => byte(first + 1)?,
        // Zero and One have encodings of their own.
        number => number,
    };
    (kind < 8).then_some(kind)
}

/// Returns true if tables.s maps `address`: the first 4 GiB without the page below the boot stack.
fn is_mapped(address: u64) -> bool {
    const GUARD: u64 = 0x10_0000;
    address < 1 << 32 && !(GUARD..GUARD + PAGE).contains(&address)
}

/// Returns true if `address` is mapped and not one of devices, which begin there in tables.s.
fn is_readable(address: u64) -> bool {
    const FIRST_DEVICE: u64 = 0xe000_0000;
    is_mapped(address) && address < FIRST_DEVICE
}

#[cfg(trapline_image)]
pub use machine::{power_off, set_root_pointer};

#[cfg(trapline_image)]
mod machine {
    use super::{find, is_readable, Physical, PowerOff};
    use crate::cpu::{out16, out8, Global};

    static ROOT_POINTER: Global<u64> = Global::new(0);

    /// Sets the address of the root pointer, which is 0 if the start info has none.
    pub fn set_root_pointer(rsdp: u64) {
        // SAFETY: a reference for this assignment only.
        unsafe { *ROOT_POINTER.get() = rsdp };
    }

    struct Machine;

    impl Physical for Machine {
        fn byte(&self, address: u64) -> Option<u8> {
            // SAFETY: tables.s identity-maps the address. It is not used as memory: the firmware's tables are not RAM
            // of the memory map, and a wrong address only reads what is there.
            is_readable(address).then(|| unsafe { (address as *const u8).read_volatile() })
        }
    }

    /// Switches the machine off. Returns false, without any effect, if its tables do not say how; otherwise the machine ends soon.
    pub fn power_off() -> bool {
        // SAFETY: copied at once.
        let rsdp = unsafe { *ROOT_POINTER.get() };
        match find(&Machine, rsdp) {
            Some(PowerOff::Control { port, value }) => out16(port, value),
            Some(PowerOff::SleepPort { port, value }) => out8(port, value),
            // SAFETY: the tables name a register there, and the machine is to end: no memory is used afterwards.
            Some(PowerOff::SleepMemory { address, value }) => unsafe {
                (address as *mut u8).write_volatile(value);
            },
            None => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests;
