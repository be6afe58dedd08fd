//! Execution of one instruction whose operands may be devices: reads its source, computes, and writes its target.
//!
//! An access to a device stops the execution with an exit, one for each part of at most eight bytes within a page, as
//! KVM does. Nothing changes before all of the target is known to be writable.

use crate::decode::{Access, Form, Operand, PortString};
use crate::GuestRegisters;
use core::ops::Range;
use trapline_interface::{Exit, IoAddr, PAGE};

const RSP: u8 = 4;
/// Bytes of a stack slot.
const SLOT: u64 = 8;

/// Memory and devices that need no exit.
pub trait Bus {
    /// Reason why an address cannot be accessed.
    type Fault;

    /// Translates an address of the guest to a physical one.
    ///
    /// # Errors
    /// The guest's page tables deny the access.
    fn translate(&mut self, address: u64, access: Access) -> Result<u64, Self::Fault>;

    /// Reads bytes of a page. Returns false if this needs an exit.
    fn read(&mut self, physical: u64, into: &mut [u8]) -> bool;

    /// Writes bytes of a page. Returns false if this needs an exit.
    fn write(&mut self, physical: u64, bytes: &[u8]) -> bool;
}

/// An operand that is no register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Memory(u64, Access),
    Port(u16),
}

/// Kind of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Operand(Form),
    PortString(PortString),
    /// An instruction that the caller executes, with the address of its operand.
    Foreign(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Reading,
    /// The caller executes the instruction.
    Foreign,
    Writing,
    Finished,
}

/// The memory operand of an instruction that the caller executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignOperand {
    /// Virtual address.
    pub address: u64,
    /// Size in bytes, at most 16.
    pub size: u8,
    /// Contents, if the instruction reads them.
    pub value: u128,
}

/// An instruction in progress.
#[derive(Clone, Copy, Debug)]
pub struct Execution {
    kind: Kind,
    length: u64,
    size: u8,
    source: Option<Place>,
    target: Option<Place>,
    /// The value read, or to be written. Only that of an instruction of the caller's exceeds 64 bits.
    value: u128,
    /// Flags and register to be set at the end.
    flags: Option<u64>,
    register: Option<(u8, u64)>,
    /// Bytes that are done.
    done: u8,
    phase: Phase,
}

impl Execution {
    /// Returns the execution of an instruction with a memory operand; `None` if it is not supported.
    pub fn new(operand: &Operand, length: u64, registers: &impl GuestRegisters) -> Option<Self> {
        let at = Place::Memory(operand.address, operand.access);
        let stack = registers.get(RSP).wrapping_sub(SLOT);
        let pushed = Place::Memory(stack, Access::Write);
        let memory = |address: Option<u64>, access| Some(Place::Memory(address?, access));
        let (source, target) = match operand.form {
            Form::Load { .. } | Form::Jump => (Some(at), None),
            Form::Store(_) => (None, Some(at)),
            Form::Compute(_) if operand.access == Access::ReadWrite => (Some(at), Some(at)),
            Form::Compute(_) => (Some(at), None),
            Form::Push | Form::Call => (Some(at), Some(pushed)),
            Form::String(string) => (
                memory(string.source, Access::Read),
                memory(string.target, Access::Write),
            ),
            Form::Other => return None,
        };
        let kind = Kind::Operand(operand.form);
        Some(Self::of(kind, length, operand.size, source, target))
    }

    /// Returns the execution of an instruction with a memory operand that the caller executes: see [`Self::foreign`].
    pub fn by_caller(operand: &Operand, length: u64) -> Self {
        let at = Place::Memory(operand.address, operand.access);
        let source = (operand.access != Access::Write).then_some(at);
        let target = (operand.access != Access::Read).then_some(at);
        let kind = Kind::Foreign(operand.address);
        Self::of(kind, length, operand.size, source, target)
    }

    /// Returns the execution of one element of a port access through memory. An instruction without elements is
    /// finished.
    pub fn port_string(string: PortString, length: u64, registers: &impl GuestRegisters) -> Self {
        let (port, address) = (Place::Port(string.port), string.address(registers));
        let (source, target) = if string.is_write {
            (Place::Memory(address, Access::Read), port)
        } else {
            (port, Place::Memory(address, Access::Write))
        };
        let kind = Kind::PortString(string);
        Self::of(kind, length, string.size, Some(source), Some(target))
    }

    fn of(kind: Kind, length: u64, size: u8, source: Option<Place>, target: Option<Place>) -> Self {
        Self {
            kind,
            length,
            size,
            source,
            target,
            value: 0,
            flags: None,
            register: None,
            done: 0,
            phase: Phase::Reading,
        }
    }

    /// Returns whether the instruction has been completed.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// Returns the operand of an instruction that the caller is to execute now, without changing memory.
    pub fn foreign(&self) -> Option<ForeignOperand> {
        match (self.phase, self.kind) {
            (Phase::Foreign, Kind::Foreign(address)) => Some(ForeignOperand {
                address,
                size: self.size,
                value: self.value,
            }),
            _ => None,
        }
    }

    /// Takes the operand after the caller has executed the instruction, which has changed the registers.
    pub fn executed(&mut self, value: u128) {
        self.value = value;
        self.phase = Phase::Writing;
        self.done = 0;
    }

    /// Continues until an exit, the end, or [`Self::foreign`]. Registers change at the end, which may be an exit that
    /// writes.
    ///
    /// # Errors
    /// A fault of the guest, which has changed neither memory nor registers.
    pub fn run<B: Bus>(
        &mut self,
        bus: &mut B,
        registers: &mut impl GuestRegisters,
    ) -> Result<Option<Exit>, B::Fault> {
        if self.phase == Phase::Reading {
            if self.has_no_element(registers) {
                registers.set_instruction(registers.instruction().wrapping_add(self.length));
                self.phase = Phase::Finished;
                return Ok(None);
            }
            self.check_target(bus)?;
            if let Some(exit) = self.read(bus)? {
                return Ok(Some(exit));
            }
            if let Kind::Foreign(_) = self.kind {
                self.phase = Phase::Foreign;
                return Ok(None);
            }
            self.compute(registers);
            self.phase = Phase::Writing;
            self.done = 0;
        }
        let exit = self.write(bus)?;
        if exit.is_none() || self.done == self.size {
            self.retire(registers);
            self.phase = Phase::Finished;
        }
        Ok(exit)
    }

    /// Takes the result of the last exit if that was a read.
    pub fn answer(&mut self, value: u64) {
        if self.phase == Phase::Reading {
            if let Some(source) = self.source {
                let part = self.part(source);
                self.put(part, value);
            }
        }
    }

    fn has_no_element(&self, registers: &impl GuestRegisters) -> bool {
        match self.kind {
            Kind::PortString(string) => string.is_done(registers),
            Kind::Operand(Form::String(string)) => string.is_done(registers),
            Kind::Operand(_) | Kind::Foreign(_) => false,
        }
    }

    /// Finds faults of the target that the first access would not find.
    fn check_target<B: Bus>(&self, bus: &mut B) -> Result<(), B::Fault> {
        if let Some(Place::Memory(address, access)) = self.target {
            let last = address.wrapping_add(u64::from(self.size) - 1);
            let is_in_page = last / PAGE as u64 == address / PAGE as u64;
            let is_first = self.source.is_none() || self.source == self.target;
            if is_in_page && is_first {
                return Ok(());
            }
            bus.translate(address, access)?;
            if !is_in_page {
                bus.translate(last, access)?;
            }
        }
        Ok(())
    }

    /// Next bytes of an operand: at most eight, in one page.
    fn part(&self, place: Place) -> Range<u8> {
        let left = self.size - self.done;
        let length = match place {
            Place::Port(_) => left,
            Place::Memory(address, _) => {
                let at = address.wrapping_add(self.done.into());
                let in_page = PAGE as u64 - at % PAGE as u64;
                left.min(in_page.min(8) as u8)
            }
        };
        self.done..self.done + length
    }

    /// Adds a part that was read.
    fn put(&mut self, part: Range<u8>, value: u64) {
        let read = extended(value, part.len() as u8, false);
        self.value |= u128::from(read) << (8 * part.start);
        self.done = part.end;
    }

    /// Reads the rest of the source.
    fn read<B: Bus>(&mut self, bus: &mut B) -> Result<Option<Exit>, B::Fault> {
        let Some(source) = self.source else {
            return Ok(None);
        };
        while self.done < self.size {
            let part = self.part(source);
            let size = part.len() as u8;
            let at = match source {
                Place::Port(port) => IoAddr::Port(port),
                Place::Memory(address, access) => {
                    let at = bus.translate(address.wrapping_add(self.done.into()), access)?;
                    let mut bytes = [0; 8];
                    if bus.read(at, &mut bytes[..part.len()]) {
                        self.put(part, u64::from_le_bytes(bytes));
                        continue;
                    }
                    IoAddr::Mmio(at)
                }
            };
            return Ok(Some(Exit::Read { at, size }));
        }
        Ok(None)
    }

    /// Writes the rest of the target.
    fn write<B: Bus>(&mut self, bus: &mut B) -> Result<Option<Exit>, B::Fault> {
        let Some(target) = self.target else {
            return Ok(None);
        };
        while self.done < self.size {
            let part = self.part(target);
            let size = part.len() as u8;
            let data = extended((self.value >> (8 * part.start)) as u64, size, false);
            let at = match target {
                Place::Port(port) => IoAddr::Port(port),
                Place::Memory(address, access) => {
                    let at = bus.translate(address.wrapping_add(self.done.into()), access)?;
                    if bus.write(at, &data.to_le_bytes()[..part.len()]) {
                        self.done = part.end;
                        continue;
                    }
                    IoAddr::Mmio(at)
                }
            };
            self.done = part.end;
            return Ok(Some(Exit::Write { at, size, data }));
        }
        Ok(None)
    }

    /// Replaces the value read by the one to be written.
    fn compute(&mut self, registers: &impl GuestRegisters) {
        let Kind::Operand(form) = self.kind else {
            return;
        };
        let value = self.value as u64;
        match form {
            Form::Load {
                register,
                size,
                is_signed,
            } => {
                let value = extended(value, self.size, is_signed);
                self.register = Some((register, value));
                self.size = size;
            }
            Form::Store(value) => self.value = value.into(),
            Form::Compute(computation) => {
                let outcome = computation.apply(value, registers.flags());
                self.value = outcome.memory.into();
                self.flags = Some(outcome.flags);
                self.register = outcome.register;
            }
            Form::String(string) if string.source.is_none() => {
                self.value = registers.get(0).into();
            }
            Form::String(string) if string.target.is_none() => self.register = Some((0, value)),
            Form::Call => {
                // The target of the jump; the return address is pushed.
                self.register = Some((0, value));
                self.value = registers.instruction().wrapping_add(self.length).into();
            }
            Form::Push | Form::Jump | Form::String(_) | Form::Other => {}
        }
    }

    /// Changes the registers.
    fn retire(&self, registers: &mut impl GuestRegisters) {
        let next = registers.instruction().wrapping_add(self.length);
        if let Some(flags) = self.flags {
            let kept = registers.flags() & !crate::compute::FLAGS;
            registers.set_flags(kept | flags);
        }
        let stack = registers.get(RSP).wrapping_sub(SLOT);
        let next = match self.kind {
            Kind::Foreign(_) => return,
            Kind::Operand(Form::Jump) => self.value as u64,
            Kind::Operand(Form::Call) => {
                registers.set(RSP, 8, stack);
                self.register.map_or(next, |(_, target)| target)
            }
            Kind::Operand(form) => {
                if let Some((register, value)) = self.register {
                    registers.set_operand(register, self.size, value);
                }
                match form {
                    Form::String(string) if !string.advance(registers, self.size) => return,
                    Form::Push => registers.set(RSP, 8, stack),
                    _ => {}
                }
                next
            }
            Kind::PortString(string) => {
                if string.advance(registers) {
                    next
                } else {
                    return;
                }
            }
        };
        registers.set_instruction(next);
    }
}

/// Extends the low `size` bytes of a value to 64 bits.
pub fn extended(value: u64, size: u8, is_signed: bool) -> u64 {
    let shift = 64 - 8 * u32::from(size);
    if is_signed {
        ((value << shift) as i64 >> shift) as u64
    } else {
        value << shift >> shift
    }
}

#[cfg(test)]
mod tests;
