//! Delivery of interrupts and exceptions (Intel SDM volume 3, 6.14): a frame on the guest's stack.

use crate::memory::Memory;
use crate::registers::{Registers, INTERRUPTS_ON, TRAP_FLAG};
use trapline_emulation::decode::Access;
use trapline_emulation::paging::{translate, PageFault};
use trapline_interface::{System, PAGE};

/// Vectors of exceptions.
pub(crate) const DIVIDE_ERROR: u8 = 0;
pub(crate) const DEBUG: u8 = 1;
pub(crate) const BREAKPOINT: u8 = 3;
pub(crate) const INVALID_OPCODE: u8 = 6;
pub(crate) const GENERAL_PROTECTION: u8 = 13;
pub(crate) const PAGE_FAULT: u8 = 14;
pub(crate) const FLOATING_POINT: u8 = 16;
pub(crate) const ALIGNMENT_CHECK: u8 = 17;
pub(crate) const VECTOR_FLOATING_POINT: u8 = 19;

const GATE_PRESENT: u64 = 1 << 47;
const INTERRUPT_GATE: u64 = 0xe;
/// Offset of the first interrupt stack in the task state.
const FIRST_STACK: u64 = 0x24;

/// A vCPU's registers beyond those of its process.
pub(crate) struct Cpu {
    pub system: System,
    /// Interrupt flag. At ring 3 the guest cannot change it.
    pub interrupts_on: bool,
}

/// The guest cannot continue: an exception without a handler.
#[derive(Debug)]
pub(crate) struct TripleFault;

impl Cpu {
    /// Copies guest memory at a virtual address.
    pub fn read(
        &self,
        memory: &mut Memory,
        address: u64,
        into: &mut [u8],
    ) -> Result<(), PageFault> {
        let mut done = 0;
        while done < into.len() {
            let at = address.wrapping_add(done as u64);
            let part = (into.len() - done).min(PAGE - at as usize % PAGE);
            let found = translate(memory, &self.system, at, Access::Read)?;
            let read = memory.read(found.address, &mut into[done..done + part]);
            read.ok_or(PageFault::absent(at))?;
            done += part;
        }
        Ok(())
    }

    /// Reads a 64-bit number.
    pub fn read64(&self, memory: &mut Memory, address: u64) -> Result<u64, PageFault> {
        let mut bytes = [0; 8];
        self.read(memory, address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes guest memory at a virtual address.
    pub fn write(&self, memory: &mut Memory, address: u64, bytes: &[u8]) -> Result<(), PageFault> {
        let mut done = 0;
        while done < bytes.len() {
            let at = address.wrapping_add(done as u64);
            let part = (bytes.len() - done).min(PAGE - at as usize % PAGE);
            let found = translate(memory, &self.system, at, Access::Write)?;
            let written = memory.write(found.address, &bytes[done..done + part]);
            written.ok_or(PageFault::absent(at))?;
            done += part;
        }
        Ok(())
    }

    /// Builds the frame of `vector` and continues at its handler.
    pub fn deliver(
        &mut self,
        memory: &mut Memory,
        registers: &mut Registers,
        vector: u8,
        error: Option<u64>,
    ) -> Result<(), TripleFault> {
        self.try_deliver(memory, registers, vector, error)
            .map_err(|PageFault { .. }| TripleFault)
    }

    fn try_deliver(
        &mut self,
        memory: &mut Memory,
        registers: &mut Registers,
        vector: u8,
        error: Option<u64>,
    ) -> Result<(), PageFault> {
        let offset = u64::from(vector) * 16;
        let gate = self.system.idt.base.wrapping_add(offset);
        let low = self.read64(memory, gate)?;
        if offset + 15 > self.system.idt.limit.into() || low & GATE_PRESENT == 0 {
            return Err(PageFault::absent(gate));
        }
        let high = self.read64(memory, gate.wrapping_add(8))?;
        let handler = low & 0xffff | low >> 32 & 0xffff_0000 | high << 32;
        let stack = match low >> 32 & 7 {
            0 => registers.0.rsp,
            index => {
                let slot = self
                    .system
                    .tr
                    .base
                    .wrapping_add(FIRST_STACK + (index - 1) * 8);
                self.read64(memory, slot)?
            }
        };
        let (cs, ss) = self.selectors(registers);
        let r = &registers.0;
        let frame = [
            r.rip,
            cs,
            registers.flags_with(self.interrupts_on),
            r.rsp,
            ss,
        ];
        let words = error.into_iter().chain(frame);
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let top = (stack & !15).wrapping_sub(bytes.len() as u64);
        self.write(memory, top, &bytes)?;
        registers.0.rsp = top;
        registers.0.rip = handler;
        registers.0.eflags &= !TRAP_FLAG;
        if low >> 40 & 15 == INTERRUPT_GATE {
            self.interrupts_on = false;
        }
        Ok(())
    }

    /// Selectors for a frame. At ring 3 the guest returns by itself; at ring 0 its own selectors make `iretq`
    /// fault, so that it can be emulated.
    fn selectors(&self, registers: &Registers) -> (u64, u64) {
        match self.system.ring() {
            3 => (registers.0.cs, registers.0.ss),
            _ => (
                self.system.cs.selector.into(),
                self.system.ss.selector.into(),
            ),
        }
    }

    /// Executes `iretq`.
    pub fn interrupt_return(
        &mut self,
        memory: &mut Memory,
        registers: &mut Registers,
    ) -> Result<(), PageFault> {
        let mut words = [0; 5];
        for (index, word) in words.iter_mut().enumerate() {
            let at = registers.0.rsp.wrapping_add(index as u64 * 8);
            *word = self.read64(memory, at)?;
        }
        let [rip, _, flags, rsp, _] = words;
        (registers.0.rip, registers.0.rsp) = (rip, rsp);
        registers.set_flags(flags);
        self.interrupts_on = flags & INTERRUPTS_ON != 0;
        Ok(())
    }
}
