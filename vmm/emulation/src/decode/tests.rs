//! The decoder against a second one, on every opcode it supports and random bytes.

use super::*;
use crate::merge;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, Register, UsedMemory};
use std::format;

/// Address of the instruction.
const RIP: u64 = 0x40_0000;

/// General registers.
struct Registers([u64; 16]);

impl GuestRegisters for Registers {
    fn get(&self, number: u8) -> u64 {
        self.0[usize::from(number & 15)]
    }

    fn set(&mut self, number: u8, size: u8, value: u64) {
        merge(&mut self.0[usize::from(number & 15)], size, value);
    }

    fn instruction(&self) -> u64 {
        RIP
    }

    fn set_instruction(&mut self, _: u64) {}

    fn flags(&self) -> u64 {
        2
    }

    fn set_flags(&mut self, _: u64) {}

    fn segment_bases(&self) -> [u64; 2] {
        [0; 2]
    }
}

fn registers() -> Registers {
    Registers(core::array::from_fn(|number| {
        0x10_0000 * (number as u64 + 1)
    }))
}

fn address(memory: &UsedMemory, registers: &Registers) -> Option<u64> {
    memory.virtual_address(0, |register, _, _| match register {
        Register::RIP => Some(RIP),
        register if register.is_segment_register() => Some(0),
        register if register.is_gpr64() => Some(registers.get(register.number() as u8)),
        _ => None,
    })
}

fn access(access: OpAccess) -> Option<Access> {
    Some(match access {
        OpAccess::Read | OpAccess::CondRead => Access::Read,
        OpAccess::Write | OpAccess::CondWrite => Access::Write,
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => Access::ReadWrite,
        _ => return None,
    })
}

/// Compares every operand that this decoder finds in `code`. Returns true if it found one.
fn agrees(code: &[u8; LONGEST]) -> bool {
    let registers = registers();
    let mut decoder = Decoder::with_ip(64, code, RIP, DecoderOptions::NONE);
    let instruction = decoder.decode();
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(&instruction);
    let mut found = false;
    for memory in info.used_memory() {
        let Some(at) = address(memory, &registers) else {
            continue;
        };
        let Some((operand, length)) = operand(code, &registers, |it| it.contains(at)) else {
            continue;
        };
        // The other decoder does not know the size of repeated elements.
        let size = memory.memory_size().size();
        if operand.address != at || size == 0 {
            continue;
        }
        found = true;
        let context = format!("{instruction:?} {code:02x?}");
        assert_eq!(length as usize, instruction.len(), "{context}");
        assert_eq!(Some(operand.access), access(memory.access()), "{context}");
        assert_eq!(usize::from(operand.size), size, "{context}");
    }
    found
}

/// A generator of reproducible bytes.
struct Bytes(u64);

impl Bytes {
    fn next(&mut self) -> u8 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 56) as u8
    }
}

#[test]
fn operands_equal_those_of_another_decoder() {
    let mut bytes = Bytes(1);
    let mut found = [0; 2];
    for prefixes in [
        &[][..],
        &[0x48],
        &[0x66],
        &[0xf3],
        &[0xf2],
        &[0x45],
        &[0xf0, 0x4a],
    ] {
        for (map, escape) in [&[][..], &[0x0f]].into_iter().enumerate() {
            for opcode in 0..=255 {
                for _ in 0..300 {
                    let mut code = [0; LONGEST];
                    code.fill_with(|| bytes.next());
                    let start = [prefixes, escape, &[opcode]].concat();
                    code[..start.len()].copy_from_slice(&start);
                    found[map] += u32::from(agrees(&code));
                }
            }
        }
    }
    assert!(found.iter().all(|count| *count > 10_000), "{found:?}");
}

#[test]
fn privileged_instructions_are_decoded() {
    let mut registers = registers();
    registers.set(RDX, 8, 0x1_03ff);
    let at = |code: &[u8]| privileged(code, &registers);
    let port = |port, size, is_write| Privileged::Port {
        port,
        size,
        is_write,
    };
    assert_eq!(at(&[0xee]), Some((port(0x3ff, 1, true), 1)));
    assert_eq!(at(&[0x66, 0xed]), Some((port(0x3ff, 2, false), 2)));
    assert_eq!(at(&[0xe7, 0x80]), Some((port(0x80, 4, true), 2)));
    assert_eq!(at(&[0xf4]), Some((Privileged::Halt, 1)));
    assert_eq!(at(&[0x48, 0xcf]), Some((Privileged::InterruptReturn, 2)));
    let lidt = [0x0f, 0x01, 0x1d, 5, 0, 0, 0];
    assert_eq!(at(&lidt), Some((Privileged::LoadIdt(0x40_000c), 7)));
    assert_eq!(at(&[0x0f, 0x0b]), None);
    assert_eq!(at(&[0xe7]), None);
}
