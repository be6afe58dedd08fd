//! Decoding of the instructions that a VMM completes: privileged ones, and accesses to memory that the guest does
//! not have.
//!
//! Opcodes are those of the Intel SDM volume 2, appendix A. Instructions that are not listed are not decoded;
//! their memory operands can be RAM only.

mod computation;
mod reader;
mod string;

pub use self::string::{PortString, StringMove};

use self::computation::{one_byte_computation, two_byte_form};
use self::reader::Reader;
use self::string::string_element;
use crate::compute::Computation;
use crate::GuestRegisters;

/// Longest instruction in bytes.
pub const LONGEST: usize = 15;

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
    /// Computes with the operand.
    Compute(Computation),
    /// Pushes the operand.
    Push,
    /// Jumps to the address in the operand.
    Jump,
    /// Calls the function whose address is in the operand.
    Call,
    /// Moves one element of a string.
    String(StringMove),
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
            segment: if is_write { reader.segment } else { 0 },
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
#[inline(always)]
pub fn operand(
    code: &[u8],
    registers: &impl GuestRegisters,
    is_accessed: impl Fn(&Operand) -> bool,
) -> Option<(Operand, u64)> {
    let mut reader = Reader::open(code, registers)?;
    let opcode = reader.byte()?;
    let found = match opcode {
        0x0f => two_bytes(&mut reader)?,
        0xa4 | 0xa5 | 0xaa..=0xad => string_element(&reader, opcode, &is_accessed)?,
        0xa0..=0xa3 => absolute(&mut reader, opcode)?,
        _ => one_byte(&mut reader, opcode)?,
    };
    is_accessed(&found).then_some((found, reader.at as u64))
}

#[inline(always)]
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
        0x8a | 0x8b => Form::Load {
            register: reader.destination(register, size),
            size,
            is_signed: false,
        },
        0x63 => Form::Load {
            register,
            size: reader.wide(),
            is_signed: true,
        },
        0x88 | 0x89 => Form::Store(reader.value(register, size)),
        0xc6 | 0xc7 => Form::Store(immediate),
        0xff if group == 2 => Form::Call,
        0xff if group == 4 => Form::Jump,
        0xff if group == 6 => Form::Push,
        _ => one_byte_computation(reader, opcode, register, immediate, size)
            .map_or(Form::Other, Form::Compute),
    };
    Some(Operand {
        address: reader.resolve(address),
        size,
        access,
        form,
    })
}

#[inline(never)]
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
    let immediate = match immediate {
        0 => 0,
        length => reader.signed(length)?,
    };
    let form = two_byte_form(reader, opcode, mod_rm.register, immediate, size);
    Some(Operand {
        address: reader.resolve(address),
        size,
        access,
        form,
    })
}

/// `mov` between the accumulator and an address in the instruction.
#[inline(never)]
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
    })
}

impl Operand {
    /// Returns whether it contains the byte at `address`.
    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.address) < u64::from(self.size)
    }
}

impl Form {
    /// Returns whether it moves a value between a register and memory, and nothing else.
    pub fn is_plain(&self) -> bool {
        matches!(self, Self::Load { .. } | Self::Store(_))
    }
}

#[cfg(test)]
mod tests;
