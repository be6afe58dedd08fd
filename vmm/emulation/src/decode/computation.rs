//! Computations with a memory operand.

use super::reader::Reader;
use super::{Form, RAX, RCX};
use crate::compute::{Computation, Operation, Target};
use crate::GuestRegisters;

/// Returns the computation of an instruction with one byte of opcode.
#[inline(never)]
pub(super) fn one_byte_computation(
    reader: &Reader<'_, impl GuestRegisters>,
    opcode: u8,
    register: u8,
    immediate: u64,
    size: u8,
) -> Option<Computation> {
    const COMPARE: u8 = 7;
    let group = register & 7;
    let arithmetic = Operation::arithmetic;
    let other = reader.value(register, size);
    let destination = reader.destination(register, size);
    let stored = |number| match number {
        COMPARE => Target::Flags,
        _ => Target::Memory,
    };
    let (operation, other, is_first, target) = match opcode {
        0x38 | 0x39 => (Operation::Subtract, other, true, Target::Flags),
        0x3a | 0x3b => (Operation::Subtract, other, false, Target::Flags),
        0x00..=0x3f if opcode & 2 == 0 => (arithmetic(opcode >> 3), other, true, Target::Memory),
        0x00..=0x3f => {
            let target = Target::Register(destination);
            (arithmetic(opcode >> 3), other, false, target)
        }
        0x69 | 0x6b => (
            Operation::Multiply,
            immediate,
            true,
            Target::Register(register),
        ),
        0x80 | 0x81 | 0x83 => (arithmetic(group), immediate, true, stored(group)),
        0x84 | 0x85 => (Operation::And, other, true, Target::Flags),
        0x86 | 0x87 => (Operation::Move, other, true, Target::Exchange(destination)),
        0xc0 | 0xc1 => (Operation::shift(group), immediate, true, Target::Memory),
        0xd0 | 0xd1 => (Operation::shift(group), 1, true, Target::Memory),
        0xd2 | 0xd3 => {
            let count = reader.registers.get(RCX);
            (Operation::shift(group), count, true, Target::Memory)
        }
        0xf6 | 0xf7 => match group {
            0 | 1 => (Operation::And, immediate, true, Target::Flags),
            2 => (Operation::Not, 0, true, Target::Memory),
            3 => (Operation::Negate, 0, true, Target::Memory),
            _ => return None,
        },
        0xfe | 0xff if group == 0 => (Operation::Increment, 0, true, Target::Memory),
        0xfe | 0xff if group == 1 => (Operation::Decrement, 0, true, Target::Memory),
        _ => return None,
    };
    Some(Computation {
        operation,
        other,
        is_first,
        target,
        size,
    })
}

/// Returns the effect of an instruction with two bytes of opcode.
pub(super) fn two_byte_form(
    reader: &Reader<'_, impl GuestRegisters>,
    opcode: u8,
    register: u8,
    immediate: u64,
    size: u8,
) -> Form {
    match opcode {
        0xb6 | 0xb7 | 0xbe | 0xbf => Form::Load {
            register,
            size: reader.wide(),
            is_signed: opcode >= 0xbe,
        },
        0x40..=0x4f if condition(opcode, reader.registers.flags()) => Form::Load {
            register,
            size: reader.wide(),
            is_signed: false,
        },
        0x90..=0x9f => Form::Store(condition(opcode, reader.registers.flags()).into()),
        _ => two_byte_computation(reader, opcode, register, immediate, size)
            .map_or(Form::Other, Form::Compute),
    }
}

/// Returns the computation of an instruction with two bytes of opcode.
fn two_byte_computation(
    reader: &Reader<'_, impl GuestRegisters>,
    opcode: u8,
    register: u8,
    immediate: u64,
    size: u8,
) -> Option<Computation> {
    let other = reader.value(register, size);
    let destination = reader.destination(register, size);
    let (operation, other, is_first, target) = match opcode {
        // A condition that does not hold: the register keeps its low half.
        0x40..=0x4f => (Operation::Move, other, true, Target::Register(register)),
        0xaf => (
            Operation::Multiply,
            other,
            false,
            Target::Register(register),
        ),
        0xb0 | 0xb1 => {
            let accumulator = reader.registers.get(RAX);
            let target = Target::CompareExchange(accumulator);
            (Operation::Subtract, other, false, target)
        }
        0xba if register & 7 == 4 => (Operation::BitTest, immediate, true, Target::Flags),
        0xba => (
            Operation::bit_test(register),
            immediate,
            true,
            Target::Memory,
        ),
        0xc0 | 0xc1 => (Operation::Add, other, true, Target::Exchange(destination)),
        _ => return None,
    };
    Some(Computation {
        operation,
        other,
        is_first,
        target,
        size,
    })
}

/// Returns whether the condition in the low bits of an opcode holds (Intel SDM volume 1, appendix B).
fn condition(opcode: u8, flags: u64) -> bool {
    let is_set = |bit: u32| flags >> bit & 1 != 0;
    let (carry, parity, zero, sign, overflow) =
        (is_set(0), is_set(2), is_set(6), is_set(7), is_set(11));
    let holds = match opcode >> 1 & 7 {
        0 => overflow,
        1 => carry,
        2 => zero,
        3 => carry || zero,
        4 => sign,
        5 => parity,
        6 => sign != overflow,
        _ => zero || sign != overflow,
    };
    holds != (opcode & 1 != 0)
}
