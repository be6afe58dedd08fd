//! Prefixes, operands and immediate values of an instruction.

use crate::{GuestRegisters, HIGH_BYTES};

/// Reader of an instruction.
pub(super) struct Reader<'a, R> {
    pub(super) code: &'a [u8],
    pub(super) at: usize,
    pub(super) registers: &'a R,
    pub(super) is_16_bit: bool,
    pub(super) is_repeated: bool,
    /// Mandatory prefix f2.
    pub(super) has_f2: bool,
    /// REX prefix, or 0.
    pub(super) rex: u8,
    /// Base address of the segment override.
    pub(super) segment: u64,
}

/// Register field, and the memory operand or the register that the other field selects.
pub(super) struct ModRm {
    pub(super) register: u8,
    pub(super) operand: Result<Address, u8>,
}

/// An address relative to the end of the instruction if `is_relative`.
#[derive(Clone, Copy)]
pub(super) struct Address {
    value: u64,
    is_relative: bool,
}

impl<'a, R: GuestRegisters> Reader<'a, R> {
    /// Skips prefixes. Addresses of 32 bits are not supported.
    #[inline(always)]
    pub(super) fn open(code: &'a [u8], registers: &'a R) -> Option<Self> {
        let mut reader = Self {
            code,
            at: 0,
            registers,
            is_16_bit: false,
            is_repeated: false,
            has_f2: false,
            rex: 0,
            segment: 0,
        };
        loop {
            match *code.get(reader.at)? {
                0x66 => reader.is_16_bit = true,
                0xf3 => reader.is_repeated = true,
                0xf2 => reader.has_f2 = true,
                0x64 => reader.segment = registers.segment_bases()[0],
                0x65 => reader.segment = registers.segment_bases()[1],
                0x26 | 0x2e | 0x36 | 0x3e | 0xf0 => {}
                _ => break,
            }
            reader.at += 1;
        }
        let rex = code[reader.at];
        if rex & 0xf0 == 0x40 {
            reader.rex = rex;
            reader.at += 1;
        }
        Some(reader)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let byte = *self.code.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// Reads a signed number of `size` bytes.
    #[inline(always)]
    pub(super) fn signed(&mut self, size: u8) -> Option<u64> {
        let end = self.at + usize::from(size);
        let mut bytes = [0; 8];
        let read = self.code.get(self.at..end)?;
        bytes[..read.len()].copy_from_slice(read);
        self.at = end;
        let shift = 64 - 8 * u32::from(size);
        Some((i64::from_le_bytes(bytes) << shift >> shift) as u64)
    }

    /// Size of operands that are not bytes.
    pub(super) fn wide(&self) -> u8 {
        match (self.rex & 8 != 0, self.is_16_bit) {
            (true, _) => 8,
            (_, true) => 2,
            _ => 4,
        }
    }

    /// Size of an operand whose opcode distinguishes bytes by its lowest bit.
    pub(super) fn size(&self, opcode: u8) -> u8 {
        match opcode & 1 {
            0 => 1,
            _ => self.wide(),
        }
    }

    pub(super) fn mod_rm(&mut self) -> Option<ModRm> {
        let byte = self.byte()?;
        let (mode, low) = (byte >> 6, byte & 7);
        let register = byte >> 3 & 7 | (self.rex & 4) << 1;
        let base = low | (self.rex & 1) << 3;
        if mode == 3 {
            let operand = Err(base);
            return Some(ModRm { register, operand });
        }
        let (mut value, mut is_relative) = (0, false);
        let mut long = mode == 2;
        if low == 4 {
            let sib = self.byte()?;
            let index = sib >> 3 & 7 | (self.rex & 2) << 2;
            if index != 4 {
                value = self.registers.get(index) << (sib >> 6);
            }
            match (sib & 7, mode) {
                (5, 0) => long = true,
                (base, _) => {
                    let base = self.registers.get(base | (self.rex & 1) << 3);
                    value = base.wrapping_add(value);
                }
            }
        } else if low == 5 && mode == 0 {
            (is_relative, long) = (true, true);
        } else {
            value = self.registers.get(base);
        }
        let displacement = match (mode, long) {
            (1, _) => self.signed(1)?,
            (_, true) => self.signed(4)?,
            _ => 0,
        };
        let value = value.wrapping_add(displacement).wrapping_add(self.segment);
        let operand = Ok(Address { value, is_relative });
        Some(ModRm { register, operand })
    }

    /// Returns the address of an operand after the instruction has been read.
    pub(super) fn resolve(&self, address: Address) -> u64 {
        if address.is_relative {
            let next = self.registers.instruction().wrapping_add(self.at as u64);
            address.value.wrapping_add(next)
        } else {
            address.value
        }
    }

    /// Value of a register operand. Without REX, byte registers 4 to 7 are the second bytes of the first four.
    pub(super) fn value(&self, register: u8, size: u8) -> u64 {
        if size == 1 && self.rex == 0 && (4..8).contains(&register) {
            self.registers.get(register - 4) >> 8
        } else {
            self.registers.get(register)
        }
    }

    /// Returns the number of a register operand for [`GuestRegisters::set_operand`].
    pub(super) fn destination(&self, register: u8, size: u8) -> u8 {
        if size == 1 && self.rex == 0 && (4..8).contains(&register) {
            HIGH_BYTES + register - 4
        } else {
            register
        }
    }
}
