//! Handling of exits.

use super::now;
use super::{
    NovaVcpu, Pending, APIC, CPUID, HALT, HYPERCALL, INTERRUPT_WINDOW, INVALID_STATE, IS_KICKED,
    MSR, NESTED_FAULT, PORT, RECALL, SHUTDOWN,
};
use crate::timer;
use core::sync::atomic::Ordering;
use trapline_emulation::decode::{self, Access, Form, LONGEST};
use trapline_emulation::paging::translate;
use trapline_emulation::GuestRegisters;
use trapline_interface::{Entry, Exit, IoAddr, Stop, PAGE};

/// Bits of exit information 1 of a port access (AMD APM volume 2, 15.10.2).
const IS_READ: u64 = 1;
const IS_STRING: u64 = 1 << 2;

impl NovaVcpu {
    /// Handles a message; `None` if the guest continues.
    #[inline(always)]
    pub(super) fn handle(&mut self) -> Option<Exit> {
        match self.utcb.exit {
            PORT => self.port(),
            NESTED_FAULT => self.memory_access(),
            HYPERCALL => Some(self.hypercall()),
            _ => self.other(),
        }
    }

    #[inline(always)]
    fn port(&mut self) -> Option<Exit> {
        let [access, next] = self.utcb.qualification;
        if access & IS_STRING != 0 {
            return Some(Exit::Stopped(Stop::Emulation));
        }
        let (port, size) = ((access >> 16) as u16, (access >> 4) as u8 & 7);
        self.skip(next.wrapping_sub(self.utcb.rip));
        let at = IoAddr::Port(port);
        if access & IS_READ != 0 {
            self.pending = Pending::Port(size);
            return Some(Exit::Read { at, size });
        }
        let mask = u32::MAX >> (32 - 8 * u32::from(size.clamp(1, 4)));
        let data = (self.utcb.rax as u32 & mask).into();
        Some(Exit::Write { at, size, data })
    }

    fn hypercall(&mut self) -> Exit {
        self.skip(3);
        self.pending = Pending::Call;
        let utcb = &*self.utcb;
        Exit::Hypercall {
            number: utcb.rax,
            args: [utcb.rbx, utcb.rcx, utcb.rdx, utcb.get(6)],
        }
    }

    /// Handles an access to memory that is not attached: decodes the instruction.
    #[inline(never)]
    fn memory_access(&mut self) -> Option<Exit> {
        let address = self.utcb.qualification[1];
        let not_emulated = Some(Exit::Stopped(Stop::Emulation));
        let Some((operand, length)) = self.decode() else {
            return not_emulated;
        };
        let size = operand.size;
        match operand.form {
            Form::Store(value) => {
                self.skip(length);
                let mask = u64::MAX >> (64 - 8 * u32::from(size.clamp(1, 8)));
                self.write(address, size, value & mask)
            }
            Form::Load {
                register,
                size: whole,
                is_signed,
            } => {
                self.skip(length);
                self.pending = Pending::Load {
                    register,
                    size: whole,
                    from: (size, is_signed),
                };
                self.read(address, size)
            }
            Form::Other => {
                let Some(computation) = operand.computation else {
                    return not_emulated;
                };
                self.skip(length);
                self.pending = Pending::Compute(computation);
                self.read(address, size)
            }
        }
    }

    /// Decodes the instruction at `rip`.
    fn decode(&self) -> Option<(decode::Operand, u64)> {
        let system = self.utcb.system();
        let memory = &*self.memory;
        let physical = |at| translate(&mut { memory }, &system, at, Access::Read).ok();
        let start = self.utcb.rip;
        let mut code = [0; LONGEST];
        let in_page = LONGEST.min(PAGE - start as usize % PAGE);
        let parts = [0..in_page, in_page..LONGEST];
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            // What is behind the instruction may be absent.
            if let Some(at) = physical(start.wrapping_add(part.start as u64)) {
                let _absent = memory.read(at.address, &mut code[part]);
            }
        }
        // Instructions with two operands in memory are not emulated, so it is this one.
        decode::operand(&code, &*self.utcb, |_| true)
    }

    fn read(&mut self, address: u64, size: u8) -> Option<Exit> {
        if let Some(apic) = self.apic.as_mut().filter(|_| APIC.contains(&address)) {
            let value = apic.read(address - APIC.start, now());
            self.complete(Entry::Answer(value.into()));
            return None;
        }
        let at = IoAddr::Mmio(address);
        Some(Exit::Read { at, size })
    }

    fn write(&mut self, address: u64, size: u8, data: u64) -> Option<Exit> {
        if let Some(apic) = self.apic.as_mut().filter(|_| APIC.contains(&address)) {
            apic.write(address - APIC.start, data as u32, now());
            timer::set(apic.deadline());
            self.may_interrupt = true;
            return None;
        }
        let at = IoAddr::Mmio(address);
        Some(Exit::Write { at, size, data })
    }

    #[inline(never)]
    fn other(&mut self) -> Option<Exit> {
        match self.utcb.exit {
            CPUID => self.cpuid(),
            MSR => self.msr(),
            HALT => {
                self.skip(1);
                self.is_halted = true;
                if self.apic.is_none() {
                    return Some(Exit::Halted);
                }
            }
            RECALL | INTERRUPT_WINDOW => self.may_interrupt = true,
            SHUTDOWN => return Some(Exit::Stopped(Stop::TripleFault)),
            INVALID_STATE => return Some(Exit::Stopped(Stop::EntryFailed(INVALID_STATE))),
            exit => return Some(Exit::Stopped(Stop::Unknown(exit as u32))),
        }
        let is_kicked = IS_KICKED.load(Ordering::SeqCst) && IS_KICKED.swap(false, Ordering::SeqCst);
        is_kicked.then_some(Exit::Kicked)
    }
}
