//! SIGSEGV: privileged instructions, and accesses to memory that is not mapped.

use super::emulate::{Translated, NOT_EMULATED};
use super::{Event, Pending, ProcessVcpu, Step};
use crate::delivery::GENERAL_PROTECTION;
use crate::registers::USER_CODE;
use trapline_abi::platform::{HYPERCALL, SPACES};
use trapline_emulation::decode::{self, Access, Privileged, LONGEST};
use trapline_emulation::execute::Execution;
use trapline_emulation::paging::translate;
use trapline_emulation::GuestRegisters;
use trapline_interface::{Exit, IoAddr, Stop as GuestStop, PAGE};

/// `SEGV_ACCERR` of `<asm-generic/siginfo.h>`.
const SEGV_ACCERR: libc::c_int = 2;

/// Returns whether an address exists with four levels of page tables. The host may have five.
fn is_canonical(address: u64) -> bool {
    (address as i64) << 16 >> 16 == address as i64
}

impl ProcessVcpu {
    /// Handles SIGSEGV: a privileged instruction, or an access to memory that is not mapped.
    pub(super) fn fault(&mut self) -> Step {
        if self.guest.registers.0.cs != USER_CODE {
            // The guest has left 64-bit mode.
            return Ok(Some(Exit::Stopped(GuestStop::Internal(NOT_EMULATED))));
        }
        let code = match self.fetch() {
            Ok(code) => code,
            Err(Event::Exception(..) | Event::PageFault(_)) => [0; LONGEST],
            Err(failure) => return Err(failure),
        };
        let registers = &self.guest.registers;
        if let Some((instruction, length)) = decode::privileged(&code, registers) {
            return self.privileged(instruction, length);
        }
        match self.process.signal_info()? {
            (libc::SI_KERNEL, _) => Err(Event::Exception(GENERAL_PROTECTION, Some(0))),
            (_, address) if !is_canonical(address) => {
                Err(Event::Exception(GENERAL_PROTECTION, Some(0)))
            }
            (code_of_signal, address) => {
                let is_denied = code_of_signal == SEGV_ACCERR;
                self.memory_fault(&code, address, is_denied)
            }
        }
    }

    /// Reads the instruction. Bytes behind the end of memory are zero.
    pub(super) fn fetch(&mut self) -> std::result::Result<[u8; LONGEST], Event> {
        let mut code = [0; LONGEST];
        let rip = self.guest.registers.0.rip;
        let in_page = LONGEST.min(PAGE - rip as usize % PAGE);
        let mut memory = self.shared.memory();
        let read = self.cpu.read(&mut memory, rip, &mut code[..in_page]);
        read?;
        if in_page < LONGEST {
            let next = rip.wrapping_add(in_page as u64);
            let _ignored = self.cpu.read(&mut memory, next, &mut code[in_page..]);
        }
        Ok(code)
    }

    pub(super) fn skip(&mut self, length: u64) {
        let registers = &mut self.guest.registers.0;
        registers.rip = registers.rip.wrapping_add(length);
        self.guest.is_changed = true;
    }

    fn privileged(&mut self, instruction: Privileged, length: u64) -> Step {
        match instruction {
            Privileged::Port {
                port,
                size,
                is_write,
            } => {
                self.skip(length);
                return self.port(port, size, is_write);
            }
            Privileged::PortString(string) => {
                let registers = &self.guest.registers;
                let execution = Execution::port_string(string, length, registers);
                return self.emulate(execution, None);
            }
            _ if self.cpu.system.ring() != 0 => {
                return Err(Event::Exception(GENERAL_PROTECTION, Some(0)));
            }
            Privileged::Halt => {
                self.skip(length);
                if self.apic.is_none() {
                    return Ok(Some(Exit::Halted));
                }
                self.is_halted = true;
            }
            Privileged::SetInterrupts(on) => {
                self.skip(length);
                self.is_inhibited = on && !self.cpu.interrupts_on;
                self.cpu.interrupts_on = on;
            }
            Privileged::LoadIdt(address) => {
                self.load_idt(address)?;
                self.skip(length);
            }
            Privileged::InterruptReturn => {
                let registers = &mut self.guest.registers;
                let mut memory = self.shared.memory();
                let returned = self.cpu.interrupt_return(&mut memory, registers);
                returned?;
                self.guest.is_changed = true;
            }
            Privileged::LoadPageTable(register) => {
                self.cpu.system.cr3 = self.guest.registers.get(register);
                self.process.set_root(self.cpu.system.cr3);
                self.skip(length);
                self.flush()?;
            }
            Privileged::FlushPage => {
                self.skip(length);
                self.flush()?;
            }
        }
        Ok(None)
    }

    /// An access to a port through the accumulator.
    fn port(&mut self, port: u16, size: u8, is_write: bool) -> Step {
        let at = IoAddr::Port(port);
        let registers = &mut self.guest.registers;
        match (is_write, port, size) {
            (true, SPACES, 4) => {
                let address = registers.0.rax & 0xffff_ffff;
                self.request_space(address)?;
            }
            (true, ..) => {
                let data = registers.0.rax & u64::MAX >> (64 - 8 * u32::from(size));
                return Ok(Some(Exit::Write { at, size, data }));
            }
            (_, HYPERCALL, 4) => registers.set(0, size, self.config.crossing.instruction().into()),
            (_, SPACES, 4) => registers.set(0, size, self.config.space_requests().into()),
            _ => {
                self.pending = Pending::Port(size);
                return Ok(Some(Exit::Read { at, size }));
            }
        }
        Ok(None)
    }

    /// Loads the interrupt table whose limit and base are at `address`.
    fn load_idt(&mut self, address: u64) -> std::result::Result<(), Event> {
        let mut table = [0; 10];
        let read = self
            .cpu
            .read(&mut self.shared.memory(), address, &mut table);
        read?;
        let [l0, l1, base @ ..] = table;
        self.cpu.system.idt.limit = u16::from_le_bytes([l0, l1]);
        self.cpu.system.idt.base = u64::from_le_bytes(base);
        Ok(())
    }

    /// Maps the memory at `address`, or emulates the access, or delivers the page fault.
    fn memory_fault(&mut self, code: &[u8], address: u64, is_denied: bool) -> Step {
        let operand = decode::operand(code, &self.guest.registers, |it| it.contains(address));
        let access = match operand {
            Some((operand, _)) => operand.access,
            None if is_denied => Access::Write,
            None => Access::Read,
        };
        let Some(translated) = self.map_memory(address, access)? else {
            return Ok(None);
        };
        match operand {
            Some((operand, length)) => self.emulate_operand(&operand, length, translated),
            None => Ok(Some(Exit::Stopped(GuestStop::Internal(NOT_EMULATED)))),
        }
    }

    /// Maps the page of `address` if it is memory that the process may access. Returns its translation if not.
    pub(super) fn map_memory(
        &mut self,
        address: u64,
        access: Access,
    ) -> std::result::Result<Option<Translated>, Event> {
        let (to, is_writable, unmapped) = {
            let mut memory = self.shared.memory();
            let found = translate(&mut *memory, &self.cpu.system, address, access);
            let to = found?;
            let unmapped = Translated {
                from: address,
                to: to.address,
                access,
            };
            let Some(found) = memory.find(to.address) else {
                return Ok(Some(unmapped));
            };
            let is_writable = found.attached.is_writable();
            if !found.attached.is_mapped || access != Access::Read && !is_writable {
                return Ok(Some(unmapped));
            }
            (to, is_writable && to.is_writable, unmapped)
        };
        let mappings = &mut self.mappings[self.process.index()];
        let mapped = mappings.map(self.process.as_mut(), address, &to, is_writable)?;
        Ok((!mapped).then_some(unmapped))
    }
}
