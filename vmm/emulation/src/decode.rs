//! Decoding of the instructions that a VMM completes: privileged ones, and accesses to memory that the guest does
//! not have.
//!
//! Opcodes are those of the Intel SDM volume 2, appendix A. Instructions that are not listed are not decoded;
//! their memory operands can be RAM only.

mod reader;

use self::reader::Reader;
use crate::compute::{Computation, Operation};
use crate::GuestRegisters;

/// Longest instruction in bytes.
pub const LONGEST: usize = 15;

/// Direction flag: string instructions go downwards.
const DIRECTION: u64 = 1 << 10;

const RAX: u8 = 0;
const RCX: u8 = 1;
const RDX: u8 = 2;
const RSI: u8 = 6;
const RDI: u8 = 7;

/// A privileged instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privileged {
    /// Port access through the accumulator.
    Port { port: u16, size: u8, is_write: bool },
    /// One element of a port access through memory.
    PortString(PortString),
    /// `hlt`.
    Halt,
    /// `cli` or `sti`.
    SetInterrupts(bool),
    /// `lidt`, with the address of its operand.
    LoadIdt(u64),
    /// `iretq`.
    InterruptReturn,
    /// `mov` to `cr3`, from this register.
    LoadPageTable(u8),
    /// `invlpg`.
    FlushPage,
}

/// A port access through memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortString {
    pub port: u16,
    pub size: u8,
    pub is_write: bool,
    pub is_repeated: bool,
}

/// Access to a memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    ReadWrite,
}

/// Effect of an instruction, if it can be completed without executing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Loads a register of `size` bytes, with sign extension or without.
    Load {
        register: u8,
        size: u8,
        is_signed: bool,
    },
    /// Stores a value.
    Store(u64),
    /// Anything else.
    Other,
}

/// The memory operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    pub address: u64,
    /// Size in bytes, at most 16.
    pub size: u8,
    pub access: Access,
    pub form: Form,
    /// Computation with the value read, of an instruction that is [`Form::Other`].
    pub computation: Option<Computation>,
}

/// Decodes a privileged instruction. Returns it with its length.
pub fn privileged(code: &[u8], registers: &impl GuestRegisters) -> Option<(Privileged, u64)> {
    let mut reader = Reader::open(code, registers)?;
    let opcode = reader.byte()?;
    let size = match opcode & 1 {
        0 => 1,
        _ => reader.wide().min(4),
    };
    let by_dx = registers.get(RDX) as u16;
    let is_write = opcode & 2 != 0;
    let found = match opcode {
        0xe4..=0xe7 => Privileged::Port {
            port: reader.byte()?.into(),
            size,
            is_write,
        },
        0xec..=0xef => Privileged::Port {
            port: by_dx,
            size,
            is_write,
        },
        0x6c..=0x6f => Privileged::PortString(PortString {
            port: by_dx,
            size,
            is_write,
            is_repeated: reader.is_repeated || reader.has_f2,
        }),
        0xf4 => Privileged::Halt,
        0xfa => Privileged::SetInterrupts(false),
        0xfb => Privileged::SetInterrupts(true),
        0xcf if reader.rex & 8 != 0 => Privileged::InterruptReturn,
        0x0f => system(&mut reader)?,
        _ => return None,
    };
    Some((found, reader.at as u64))
}

/// Decodes a system instruction with two bytes of opcode.
fn system(reader: &mut Reader<'_, impl GuestRegisters>) -> Option<Privileged> {
    let opcode = reader.byte()?;
    let mod_rm = reader.mod_rm()?;
    match (opcode, mod_rm.register & 7, mod_rm.operand) {
        (0x01, 3, Ok(at)) => Some(Privileged::LoadIdt(reader.resolve(at))),
        (0x01, 7, Ok(_)) => Some(Privileged::FlushPage),
        (0x22, 3, Err(from)) => Some(Privileged::LoadPageTable(from)),
        _ => None,
    }
}

/// Decodes the memory operand that `is_accessed`. Returns it with the length of the instruction.
pub fn operand(
    code: &[u8],
    registers: &impl GuestRegisters,
    is_accessed: impl Fn(&Operand) -> bool,
) -> Option<(Operand, u64)> {
    let mut reader = Reader::open(code, registers)?;
    let opcode = reader.byte()?;
    let found = match opcode {
        0x0f => two_bytes(&mut reader)?,
        0xa4 | 0xa5 | 0xaa..=0xad => string(&reader, opcode, &is_accessed)?,
        0xa0..=0xa3 => absolute(&mut reader, opcode)?,
        _ => one_byte(&mut reader, opcode)?,
    };
    is_accessed(&found).then_some((found, reader.at as u64))
}

fn one_byte(reader: &mut Reader<'_, impl GuestRegisters>, opcode: u8) -> Option<Operand> {
    use Access::{Read, ReadWrite, Write};
    let mod_rm = reader.mod_rm()?;
    let address = mod_rm.operand.ok()?;
    let (register, group) = (mod_rm.register, mod_rm.register & 7);
    let size = reader.size(opcode);
    let short = size.min(4);
    let (access, size, immediate) = match opcode {
        0x00..=0x3f if opcode & 6 == 0 && opcode & 0x38 != 0x38 => (ReadWrite, size, 0),
        0x00..=0x3f if opcode & 4 == 0 => (Read, size, 0),
        0x63 => (Read, reader.wide().min(4), 0),
        0x69 => (Read, reader.wide(), reader.wide().min(4)),
        0x6b => (Read, reader.wide(), 1),
        0x80 | 0x81 | 0x83 => {
            let access = if group == 7 { Read } else { ReadWrite };
            (access, size, if opcode == 0x81 { short } else { 1 })
        }
        0x84 | 0x85 | 0x8a | 0x8b => (Read, size, 0),
        0x86 | 0x87 | 0xd0..=0xd3 => (ReadWrite, size, 0),
        0x88 | 0x89 => (Write, size, 0),
        0xc0 | 0xc1 => (ReadWrite, size, 1),
        0xc6 | 0xc7 if group == 0 => (Write, size, short),
        0xf6 | 0xf7 => match group {
            0 | 1 => (Read, size, short),
            2 | 3 => (ReadWrite, size, 0),
            _ => (Read, size, 0),
        },
        0xfe | 0xff if group < 2 => (ReadWrite, size, 0),
        0xff if matches!(group, 2 | 4 | 6) && !reader.is_16_bit => (Read, 8, 0),
        _ => return None,
    };
    let immediate = match immediate {
        0 => 0,
        length => reader.signed(length)?,
    };
    let form = match opcode {
        0x8a | 0x8b if !reader.is_high(register, size) => Form::Load {
            register,
            size,
            is_signed: false,
        },
        0x88 | 0x89 => Form::Store(reader.value(register, size)),
        0xc6 | 0xc7 => Form::Store(immediate),
        _ => Form::Other,
    };
    let computation = (access == Read).then(|| {
        let other = match opcode {
            0x80 | 0x81 | 0x83 | 0xf6 | 0xf7 => immediate,
            _ => reader.value(register, size),
        };
        computation(opcode, register, other, size)
    });
    let address = reader.resolve(address);
    Some(Operand {
        address,
        size,
        access,
        form,
        computation: computation.flatten(),
    })
}

/// Returns the computation of an instruction that only reads its memory operand.
fn computation(opcode: u8, register: u8, other: u64, size: u8) -> Option<Computation> {
    let kept = (opcode & 0x38 != 0x38).then_some(register);
    let (number, is_first, register) = match opcode {
        // cmp r/m, r; then operations on r, r/m.
        0x38 | 0x39 => (7, true, None),
        0x00..=0x3f => (opcode >> 3, false, kept),
        0x80 | 0x81 | 0x83 => (7, true, None),
        // test.
        0x84 | 0x85 => (4, true, None),
        0xf6 | 0xf7 if register & 7 < 2 => (4, true, None),
        _ => return None,
    };
    Some(Computation {
        operation: Operation::from_number(number)?,
        other,
        is_first,
        register,
        size,
    })
}

fn two_bytes(reader: &mut Reader<'_, impl GuestRegisters>) -> Option<Operand> {
    use Access::{Read, ReadWrite, Write};
    let opcode = reader.byte()?;
    let mod_rm = reader.mod_rm()?;
    let address = mod_rm.operand.ok()?;
    let wide = reader.wide();
    let is_plain = !reader.is_repeated && !reader.has_f2;
    let vector = match (reader.is_repeated, reader.has_f2) {
        (true, _) => 4,
        (_, true) => 8,
        _ => 16,
    };
    let mmx = if reader.is_16_bit || reader.is_repeated {
        16
    } else {
        8
    };
    let (access, size, immediate) = match opcode {
        0x10 => (Read, vector, 0),
        0x11 => (Write, vector, 0),
        0x28 if is_plain => (Read, 16, 0),
        0x29 | 0x2b if is_plain => (Write, 16, 0),
        0x12 | 0x16 if is_plain => (Read, 8, 0),
        0x13 | 0x17 if is_plain => (Write, 8, 0),
        0x40..=0x4f | 0xa3 | 0xaf | 0xbc | 0xbd => (Read, wide, 0),
        0x6e if is_plain => (Read, wide.max(4) & 12, 0),
        0x6f if !reader.has_f2 => (Read, mmx, 0),
        0x7e if reader.is_repeated => (Read, 8, 0),
        0x7e if is_plain => (Write, wide.max(4) & 12, 0),
        0x7f if !reader.has_f2 => (Write, mmx, 0),
        0xe7 if is_plain => (Write, mmx, 0),
        0xd6 if is_plain && reader.is_16_bit => (Write, 8, 0),
        0x90..=0x9f => (Write, 1, 0),
        0xb0 | 0xb1 | 0xc0 | 0xc1 => (ReadWrite, reader.size(opcode), 0),
        0xb6 | 0xbe => (Read, 1, 0),
        0xb7 | 0xbf => (Read, 2, 0),
        0xba if mod_rm.register & 7 == 4 => (Read, wide, 1),
        0xba if mod_rm.register & 4 != 0 => (ReadWrite, wide, 1),
        0xc3 if is_plain && !reader.is_16_bit => (Write, wide, 0),
        _ => return None,
    };
    if immediate != 0 {
        reader.signed(immediate)?;
    }
    let form = match opcode {
        0xb6 | 0xb7 | 0xbe | 0xbf => Form::Load {
            register: mod_rm.register,
            size: wide,
            is_signed: opcode >= 0xbe,
        },
        _ => Form::Other,
    };
    Some(Operand {
        address: reader.resolve(address),
        size,
        access,
        form,
        computation: None,
    })
}

/// One element of `movs`, `stos` or `lods`: the operand that `is_accessed`.
fn string(
    reader: &Reader<'_, impl GuestRegisters>,
    opcode: u8,
    is_accessed: impl Fn(&Operand) -> bool,
) -> Option<Operand> {
    let size = reader.size(opcode);
    let (from, to) = (reader.registers.get(RSI), reader.registers.get(RDI));
    let operand = |address, access| Operand {
        address,
        size,
        access,
        form: Form::Other,
        computation: None,
    };
    let source = operand(from.wrapping_add(reader.segment), Access::Read);
    let target = operand(to, Access::Write);
    let candidates = match opcode {
        0xa4 | 0xa5 => [Some(source), Some(target)],
        0xaa | 0xab => [None, Some(target)],
        _ => [Some(source), None],
    };
    candidates.into_iter().flatten().find(is_accessed)
}

/// `mov` between the accumulator and an address in the instruction.
fn absolute(reader: &mut Reader<'_, impl GuestRegisters>, opcode: u8) -> Option<Operand> {
    let size = reader.size(opcode);
    let address = reader.signed(8)?.wrapping_add(reader.segment);
    let (access, form) = match opcode & 2 {
        0 => {
            let load = Form::Load {
                register: 0,
                size,
                is_signed: false,
            };
            (Access::Read, load)
        }
        _ => (Access::Write, Form::Store(reader.registers.get(RAX))),
    };
    Some(Operand {
        address,
        size,
        access,
        form,
        computation: None,
    })
}

impl Operand {
    /// Returns whether it contains the byte at `address`.
    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.address) < u64::from(self.size)
    }
}

impl PortString {
    /// Address of the element.
    pub fn address(&self, registers: &impl GuestRegisters) -> u64 {
        registers.get(self.index())
    }

    fn index(&self) -> u8 {
        match self.is_write {
            true => RSI,
            false => RDI,
        }
    }

    /// Returns true if no element is left.
    pub fn is_done(&self, registers: &impl GuestRegisters) -> bool {
        self.is_repeated && registers.get(RCX) == 0
    }

    /// Moves on to the next element. Returns true if this one was the last.
    pub fn advance(&self, registers: &mut impl GuestRegisters) -> bool {
        let size = u64::from(self.size);
        let step = match registers.flags() & DIRECTION {
            0 => size,
            _ => size.wrapping_neg(),
        };
        let at = self.address(registers).wrapping_add(step);
        registers.set(self.index(), 8, at);
        if self.is_repeated {
            registers.set(RCX, 8, registers.get(RCX).wrapping_sub(1));
        }
        !self.is_repeated || registers.get(RCX) == 0
    }
}

#[cfg(test)]
mod tests;
