//! A guest whose memory is a copy of the memory that the CPU uses.

use crate::Random;
use iced_x86::Register;
use trapline_emulation::decode::Access;
use trapline_emulation::execute::{Bus, Execution};
use trapline_emulation::{merge, GuestRegisters};
use trapline_interface::{Exit, IoAddr};

/// Bytes of the memory.
pub const SIZE: usize = 512;
const BEYOND: usize = 8;

const RSP: usize = 4;
const RCX: usize = 1;
/// Arithmetic flags and the direction flag.
const FLAGS: u64 = 0x8d5 | 1 << 10;
const ALWAYS: u64 = 2;

/// Registers of the guest.
#[derive(Clone, Debug)]
pub struct Guest {
    registers: [u64; 16],
    flags: u64,
    pub rip: u64,
}

impl Guest {
    /// Random registers: most are addresses in the middle of the memory, others small numbers.
    pub fn new(random: &mut Random, memory: u64, rip: u64) -> Self {
        let mut registers = [0; 16];
        for register in &mut registers {
            let bits = random.next();
            *register = match bits & 7 {
                0 => bits >> 60,
                1 => random.next(),
                _ => memory + 128 + (bits >> 32) % 256,
            };
        }
        registers[RSP] = memory + 256 + (random.next() >> 60) * 8;
        Self {
            registers,
            flags: random.next() & FLAGS | ALWAYS,
            rip,
        }
    }

    /// Returns all registers but `rip`, the last one the flags.
    pub fn general(&self) -> [u64; 17] {
        let mut all = [self.flags; 17];
        all[..16].copy_from_slice(&self.registers);
        all
    }

    pub fn stack(&self) -> u64 {
        self.registers[RSP]
    }

    pub fn count(&self) -> u64 {
        self.registers[RCX]
    }

    /// Returns the value of a register of the other decoder.
    pub fn register(&self, register: Register) -> Option<u64> {
        match register {
            Register::RIP => Some(self.rip),
            register if register.is_segment_register() => Some(0),
            register if register.is_gpr64() => Some(self.registers[register.number()]),
            _ => None,
        }
    }
}

impl GuestRegisters for Guest {
    fn get(&self, number: u8) -> u64 {
        self.registers[usize::from(number & 15)]
    }

    fn set(&mut self, number: u8, size: u8, value: u64) {
        merge(&mut self.registers[usize::from(number & 15)], size, value);
    }

    fn instruction(&self) -> u64 {
        self.rip
    }

    fn set_instruction(&mut self, address: u64) {
        self.rip = address;
    }

    fn flags(&self) -> u64 {
        self.flags
    }

    fn set_flags(&mut self, flags: u64) {
        self.flags = flags;
    }

    fn segment_bases(&self) -> [u64; 2] {
        [0; 2]
    }
}

/// The memory: RAM or a device.
#[derive(Clone)]
pub struct Memory {
    /// The end of an access to the last byte lies behind the memory.
    bytes: [u8; SIZE + BEYOND],
    start: u64,
    is_device: bool,
}

/// An address outside the memory.
pub struct Outside;

impl Memory {
    pub fn new(random: &mut Random, start: u64) -> Self {
        let mut bytes = [0; SIZE + BEYOND];
        // Zeros and equal numbers are frequent.
        for byte in bytes.chunks_mut(8) {
            byte.copy_from_slice(&(random.next() & random.next()).to_le_bytes());
        }
        Self {
            bytes,
            start,
            is_device: random.one_in(2),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..SIZE]
    }

    pub fn contains(&self, address: u64, size: u8) -> bool {
        let offset = address.wrapping_sub(self.start);
        offset < SIZE as u64 && offset + u64::from(size) <= SIZE as u64
    }

    fn at(&mut self, address: u64, length: usize) -> &mut [u8] {
        let offset = (address - self.start) as usize;
        &mut self.bytes[offset..offset + length]
    }

    /// Completes an instruction, with answers to its exits. Returns false after a fault.
    pub fn run(&mut self, execution: &mut Execution, guest: &mut Guest) -> bool {
        // At most two parts are read, and two written.
        for _ in 0..5 {
            match execution.run(self, guest) {
                Err(Outside) => return false,
                Ok(None) => return execution.is_finished(),
                Ok(Some(exit)) => match self.device(exit) {
                    Some(answer) => execution.answer(answer),
                    None if execution.is_finished() => return true,
                    None => {}
                },
            }
        }
        panic!("an instruction does not end");
    }

    /// Handles an exit. Returns the answer to a read.
    fn device(&mut self, exit: Exit) -> Option<u64> {
        match exit {
            Exit::Read {
                at: IoAddr::Mmio(address),
                size,
            } => {
                let mut answer = [0xee; 8];
                answer[..size.into()].copy_from_slice(self.at(address, size.into()));
                Some(u64::from_le_bytes(answer))
            }
            Exit::Write {
                at: IoAddr::Mmio(address),
                size,
                data,
            } => {
                let bytes = data.to_le_bytes();
                self.at(address, size.into())
                    .copy_from_slice(&bytes[..size.into()]);
                None
            }
            exit => panic!("{exit}"),
        }
    }
}

impl Bus for Memory {
    type Fault = Outside;

    fn translate(&mut self, address: u64, _: Access) -> Result<u64, Outside> {
        self.contains(address, 1).then_some(address).ok_or(Outside)
    }

    fn read(&mut self, physical: u64, into: &mut [u8]) -> bool {
        if !self.is_device {
            into.copy_from_slice(self.at(physical, into.len()));
        }
        !self.is_device
    }

    fn write(&mut self, physical: u64, bytes: &[u8]) -> bool {
        if !self.is_device {
            self.at(physical, bytes.len()).copy_from_slice(bytes);
        }
        !self.is_device
    }
}
