//! Virtio devices on PCI bus 0 (virtio 1.2, section 4.1; PCI Local Bus Specification 3.0, chapter 6).
//!
//! Nothing here runs unless the job's devices are on PCI. Configuration space is read by configuration mechanism 1.
//! Base addresses are those of the firmware or the VMM; registers above the identity map are mapped. Where there are none, as where a
//! VMM enters the image without firmware, or where they cannot be mapped, they are assigned in a gap of the memory map. Registers are
//! not trusted: a structure has to lie in its base address register's range, and a list of capabilities ends.

use core::ops::Range;
use trapline_workloads::Reason;

/// Registers of configuration space, by their 32 bits.
const IDENTITY: u8 = 0x00;
const COMMAND: u8 = 0x04;
const HEADER_TYPE: u8 = 0x0c;
const BASE_ADDRESSES: u8 = 0x10;
const SUBSYSTEM: u8 = 0x2c;
const CAPABILITIES: u8 = 0x34;

/// Bits of the command register, which has 16 bits: memory space, bus master.
const MEMORY_SPACE: u16 = 1 << 1;
const BUS_MASTER: u16 = 1 << 2;
/// Bit of the status register, above the command register: there are capabilities.
const HAS_CAPABILITIES: u32 = 1 << 20;
/// Bit of the header type: several functions.
const SEVERAL_FUNCTIONS: u32 = 1 << 23;
/// Bits of a base address register: I/O space; type, and type of a 64-bit address.
const IO_SPACE: u32 = 1;
const TYPE: u32 = 0b110;
const WIDE: u32 = 0b100;
const FLAGS: u32 = 0xf;
/// Number of base address registers.
const REGISTERS: u8 = 6;

/// Vendor of virtio devices, and device IDs of transitional ones and of others (4.1.2).
const VIRTIO: u32 = 0x1af4;
const TRANSITIONAL: Range<u32> = 0x1000..0x1040;
const MODERN: Range<u32> = 0x1040..0x1080;

/// IDs of capabilities.
const VENDOR_SPECIFIC: u32 = 0x09;
const MSI_X: u32 = 0x11;
/// Maximum number of capabilities: as many as fit.
const MOST_CAPABILITIES: u32 = 48;

/// Types of structures (4.1.4).
const COMMON: u32 = 1;
const NOTIFY: u32 = 2;
const DEVICE: u32 = 4;

/// Bytes of the common configuration (4.1.4.3), and of an entry of an MSI-X table.
const COMMON_BYTES: u64 = 0x38;
pub const MSI_X_ENTRY: u64 = 16;
/// Place of the MSI-X control register in its capability, and its bits: enabled, all entries masked.
const MSI_X_CONTROL: u8 = 2;
const MSI_X_ENABLED: u16 = 1 << 15;
const MSI_X_MASKED: u16 = 1 << 14;

/// End of the identity map.
const FOUR_GIB: u64 = 1 << 32;

/// A function of bus 0: device and function number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Function(u8);

impl Function {
    /// Returns the device number.
    pub fn device(self) -> u8 {
        self.0 >> 3
    }

    /// Returns the function number.
    pub fn number(self) -> u8 {
        self.0 & 7
    }
}

/// Configuration space of bus 0.
pub trait Config {
    /// Reads the 32 bits at `register`, a multiple of 4; all ones without such a function.
    fn read(&self, function: Function, register: u8) -> u32;

    /// Writes them.
    fn write(&self, function: Function, register: u8, value: u32);

    /// Writes the 16 bits at `register`, a multiple of 2. alioth ignores other writes of a register with 16 bits.
    fn write16(&self, function: Function, register: u8, value: u16);

    /// Maps these physical addresses, which are above the identity map. Returns the address at which they are mapped;
    /// `None` if that is not possible.
    fn map(&self, registers: Range<u64>) -> Option<u64>;
}

/// A virtio device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its place.
    pub function: Function,
    /// Device ID (section 5).
    pub kind: u32,
}

/// Addresses of the structures of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Structures {
    /// Common configuration.
    pub common: u64,
    /// Notifications, with their length in bytes.
    pub notify: (u64, u64),
    /// Distance between those of two queues in units of their offsets.
    pub multiplier: u32,
    /// Configuration of the kind of device, with its length in bytes.
    pub device: (u64, u64),
    /// First entry of the MSI-X table, if there is one. MSI-X is enabled.
    pub message: Option<u64>,
}

/// Returns the virtio devices in the order of their places.
pub fn devices(config: &impl Config) -> impl Iterator<Item = Device> + '_ {
    let functions = (0..=u8::MAX).map(Function);
    functions.filter_map(|function| {
        let first = Function(function.0 & !7);
        let is_present = function == first
            || config.read(first, IDENTITY) != u32::MAX
                && config.read(first, HEADER_TYPE) & SEVERAL_FUNCTIONS != 0;
        let identity = is_present.then(|| config.read(function, IDENTITY))?;
        let id = identity >> 16;
        let kind = match identity & 0xffff {
            VIRTIO if MODERN.contains(&id) => id - MODERN.start,
            VIRTIO if TRANSITIONAL.contains(&id) => config.read(function, SUBSYSTEM) >> 16,
            _ => return None,
        };
        Some(Device { function, kind })
    })
}

/// Returns the structures of a device, which responds to their addresses from now on. Missing addresses are taken from
/// `gap`.
///
/// # Errors
/// It is a legacy device, or its registers are invalid.
pub fn open(
    config: &impl Config,
    function: Function,
    gap: &mut Range<u64>,
) -> Result<Structures, Reason> {
    let command = config.read(function, COMMAND);
    if command & HAS_CAPABILITIES == 0 {
        return Err(LEGACY);
    }
    let command = command as u16;
    config.write16(function, COMMAND, command & !MEMORY_SPACE);
    let mut bases = Bases {
        config,
        function,
        gap,
        known: [None; REGISTERS as usize],
    };
    let found = bases.structures()?;
    config.write16(function, COMMAND, command | MEMORY_SPACE | BUS_MASTER);
    if found.common != 0 && found.notify.0 != 0 {
        Ok(found)
    } else {
        Err(LEGACY)
    }
}

const LEGACY: Reason = "the virtio device on PCI is a legacy device";
const INVALID: Reason = "the virtio device on PCI has invalid capabilities";
const UNREACHABLE: Reason =
    "the virtio device on PCI has registers where the image cannot map them, and they cannot be moved";

/// Base address registers of a function whose memory space is disabled.
struct Bases<'a, C> {
    config: &'a C,
    function: Function,
    gap: &'a mut Range<u64>,
    /// Ranges of registers that were read.
    known: [Option<(u64, u64)>; REGISTERS as usize],
}

impl<C: Config> Bases<'_, C> {
    fn read(&self, register: u8) -> u32 {
        self.config.read(self.function, register)
    }

    /// Returns the structures of all capabilities; the first of a type counts.
    fn structures(&mut self) -> Result<Structures, Reason> {
        let mut found = Structures::default();
        let mut next = self.read(CAPABILITIES) as u8 & !3;
        for _ in 0..MOST_CAPABILITIES {
            // Capabilities are behind the header of 64 bytes.
            if next < 0x40 {
                return Ok(found);
            }
            let header = self.read(next);
            match (header & 0xff, header >> 24) {
                (VENDOR_SPECIFIC, COMMON) if found.common == 0 => {
                    let (common, length) = self.structure(next)?;
                    if length < COMMON_BYTES {
                        return Err(INVALID);
                    }
                    found.common = common;
                }
                (VENDOR_SPECIFIC, NOTIFY) if found.notify.0 == 0 => {
                    found.notify = self.structure(next)?;
                    found.multiplier = self.read(field(next, 16)?);
                }
                (VENDOR_SPECIFIC, DEVICE) if found.device.0 == 0 => {
                    found.device = self.structure(next)?;
                }
                (MSI_X, _) if found.message.is_none() => {
                    let table = self.read(field(next, 4)?);
                    let (base, offset) = (table & 7, table & !7);
                    let table = self.place(base as u8, offset.into(), MSI_X_ENTRY)?;
                    let control = (header >> 16) as u16 & !MSI_X_MASKED | MSI_X_ENABLED;
                    self.config
                        .write16(self.function, next + MSI_X_CONTROL, control);
                    found.message = Some(table);
                }
                _ => {}
            }
            next = (header >> 8) as u8 & !3;
        }
        Err(INVALID)
    }

    /// Returns address and length of the structure of a capability (4.1.4).
    fn structure(&mut self, capability: u8) -> Result<(u64, u64), Reason> {
        let base = self.read(field(capability, 4)?) as u8;
        let offset = self.read(field(capability, 8)?);
        let length = self.read(field(capability, 12)?).into();
        Ok((self.place(base, offset.into(), length)?, length))
    }

    /// Returns the address of `length` bytes at `offset` of a base address register.
    fn place(&mut self, base: u8, offset: u64, length: u64) -> Result<u64, Reason> {
        if base >= REGISTERS {
            return Err(INVALID);
        }
        let (start, size) = match self.known[usize::from(base)] {
            Some(known) => known,
            None => self.range(base)?,
        };
        self.known[usize::from(base)] = Some((start, size));
        if offset + length <= size && offset.is_multiple_of(4) {
            Ok(start + offset)
        } else {
            Err(INVALID)
        }
    }

    /// Returns address and size of the range of a base address register, which is assigned if it has none that is mapped.
    fn range(&mut self, base: u8) -> Result<(u64, u64), Reason> {
        let register = BASE_ADDRESSES + 4 * base;
        let low = self.read(register);
        let is_wide = low & TYPE == WIDE && base + 1 < REGISTERS;
        if low & IO_SPACE != 0 {
            return Err(INVALID);
        }
        let address = self.address(register, is_wide);
        let size = self.size(register, is_wide);
        let end = address.checked_add(size).filter(|_| address != 0);
        let mapped = end.and_then(|end| {
            if end <= FOUR_GIB {
                Some(address)
            } else {
                self.config.map(address..end)
            }
        });
        if let Some(mapped) = mapped {
            self.set(register, address, is_wide);
            return Ok((mapped, size));
        }
        let assigned = self.assign(size)?;
        self.set(register, assigned, is_wide);
        if self.address(register, is_wide) == assigned {
            Ok((assigned, size))
        } else {
            Err(UNREACHABLE)
        }
    }

    fn address(&self, register: u8, is_wide: bool) -> u64 {
        let low = self.read(register) & !FLAGS;
        let high = if is_wide { self.read(register + 4) } else { 0 };
        u64::from(high) << 32 | u64::from(low)
    }

    /// Returns the size: the lowest bit that can be set; 0 if there is none.
    fn size(&self, register: u8, is_wide: bool) -> u64 {
        self.set(register, u64::MAX, is_wide);
        let low = self.read(register) & !FLAGS;
        let high = if is_wide {
            self.read(register + 4)
        } else {
            u32::MAX
        };
        let mask = u64::from(high) << 32 | u64::from(low);
        match low | if is_wide { high } else { 0 } {
            0 => 0,
            _ => 1 << mask.trailing_zeros(),
        }
    }

    fn set(&self, register: u8, address: u64, is_wide: bool) {
        self.config.write(self.function, register, address as u32);
        if is_wide {
            let high = (address >> 32) as u32;
            self.config.write(self.function, register + 4, high);
        }
    }

    fn assign(&mut self, size: u64) -> Result<u64, Reason> {
        const PAGE: u64 = trapline_abi::platform::PAGE;
        let start = self.gap.start.checked_next_multiple_of(size.max(PAGE));
        let start = start.filter(|start| size != 0 && self.gap.end.saturating_sub(*start) >= size);
        let start =
            start.ok_or("the machine has no addresses left for its virtio device on PCI")?;
        self.gap.start = start + size;
        Ok(start)
    }
}

/// Returns the register of a field of a capability.
fn field(capability: u8, offset: u8) -> Result<u8, Reason> {
    capability.checked_add(offset).ok_or(INVALID)
}

#[cfg(trapline_image)]
pub use machine::Ports;

#[cfg(trapline_image)]
mod machine {
    use super::{Config, Function};
    use crate::cpu::{in32, out16, out32};
    use crate::memory;
    use core::ops::Range;

    /// Address and data port of configuration mechanism 1 (3.2.2.3.2), and the bit that enables it.
    const ADDRESS: u16 = 0xcf8;
    const DATA: u16 = 0xcfc;
    const ENABLED: u32 = 1 << 31;

    /// Configuration space by ports.
    pub struct Ports;

    impl Ports {
        fn select(function: Function, register: u8) {
            let function = u32::from(function.0) << 8;
            out32(ADDRESS, ENABLED | function | u32::from(register));
        }
    }

    impl Config for Ports {
        fn read(&self, function: Function, register: u8) -> u32 {
            Self::select(function, register);
            in32(DATA)
        }

        fn write(&self, function: Function, register: u8, value: u32) {
            Self::select(function, register);
            out32(DATA, value);
        }

        fn write16(&self, function: Function, register: u8, value: u16) {
            Self::select(function, register & !3);
            out16(DATA + u16::from(register & 2), value);
        }

        fn map(&self, registers: Range<u64>) -> Option<u64> {
            memory::map_registers(registers)
        }
    }
}

#[cfg(test)]
mod tests;
