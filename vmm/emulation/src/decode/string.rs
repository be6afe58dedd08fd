//! Elements of string instructions.

use super::reader::Reader;
use super::{Access, Form, Operand, RCX, RDI, RSI};
use crate::GuestRegisters;

/// Direction flag: string instructions go downwards.
const DIRECTION: u64 = 1 << 10;

/// A port access through memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortString {
    pub port: u16,
    pub size: u8,
    pub is_write: bool,
    pub is_repeated: bool,
    /// Base address of the segment.
    pub segment: u64,
}

/// One element of `movs`, `stos` or `lods`, whose source or target is the accumulator if it has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StringMove {
    pub source: Option<u64>,
    pub target: Option<u64>,
    pub is_repeated: bool,
}

/// One element of `movs`, `stos` or `lods`: the operand that `is_accessed`.
#[inline(never)]
pub(super) fn string_element(
    reader: &Reader<'_, impl GuestRegisters>,
    opcode: u8,
    is_accessed: impl Fn(&Operand) -> bool,
) -> Option<Operand> {
    let from = reader.registers.get(RSI).wrapping_add(reader.segment);
    let to = reader.registers.get(RDI);
    let (source, target) = match opcode {
        0xa4 | 0xa5 => (Some(from), Some(to)),
        0xaa | 0xab => (None, Some(to)),
        _ => (Some(from), None),
    };
    let operand = |address, access| Operand {
        address,
        size: reader.size(opcode),
        access,
        form: Form::String(StringMove {
            source,
            target,
            is_repeated: reader.is_repeated || reader.has_f2,
        }),
    };
    let source = source.map(|at| operand(at, Access::Read));
    let target = target.map(|at| operand(at, Access::Write));
    source.into_iter().chain(target).find(is_accessed)
}

impl PortString {
    /// Address of the element.
    pub fn address(&self, registers: &impl GuestRegisters) -> u64 {
        registers.get(self.index()).wrapping_add(self.segment)
    }

    fn index(&self) -> u8 {
        if self.is_write {
            RSI
        } else {
            RDI
        }
    }

    /// Returns true if no element is left.
    pub fn is_done(&self, registers: &impl GuestRegisters) -> bool {
        self.is_repeated && registers.get(RCX) == 0
    }

    /// Moves on to the next element. Returns true if this one was the last.
    pub fn advance(&self, registers: &mut impl GuestRegisters) -> bool {
        next_element(registers, &[self.index()], self.size, self.is_repeated)
    }
}

impl StringMove {
    /// Returns true if no element is left.
    pub fn is_done(&self, registers: &impl GuestRegisters) -> bool {
        self.is_repeated && registers.get(RCX) == 0
    }

    /// Moves on to the next element, as [`PortString::advance`] does.
    pub fn advance(&self, registers: &mut impl GuestRegisters, size: u8) -> bool {
        let indices: &[u8] = match (self.source, self.target) {
            (Some(_), Some(_)) => &[RSI, RDI],
            (Some(_), None) => &[RSI],
            _ => &[RDI],
        };
        next_element(registers, indices, size, self.is_repeated)
    }
}

/// Moves the index registers on by an element, and counts it. Returns true if it was the last.
fn next_element(
    registers: &mut impl GuestRegisters,
    indices: &[u8],
    size: u8,
    is_repeated: bool,
) -> bool {
    let size = u64::from(size);
    let step = match registers.flags() & DIRECTION {
        0 => size,
        _ => size.wrapping_neg(),
    };
    for index in indices {
        registers.set(*index, 8, registers.get(*index).wrapping_add(step));
    }
    if is_repeated {
        registers.set(RCX, 8, registers.get(RCX).wrapping_sub(1));
    }
    !is_repeated || registers.get(RCX) == 0
}
