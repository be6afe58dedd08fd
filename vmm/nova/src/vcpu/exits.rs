//! Handling of exits.

use super::controllers::Controllers;
use super::{Cause, NovaVcpu, Pending, Technology, IS_KICKED};
use core::sync::atomic::Ordering;
use trapline_emulation::decode::{Access, Form};
use trapline_emulation::execute::extended;
use trapline_emulation::GuestRegisters;
use trapline_interface::{Entry, Exit, IoAddr, Stop, PAGE};

impl<T: Technology> NovaVcpu<T> {
    /// Handles a message; `None` if the guest continues.
    #[inline(always)]
    pub(super) fn handle(&mut self) -> Option<Exit> {
        match self.cause() {
            Cause::Port => self.port(),
            Cause::Memory => self.memory_access(),
            Cause::Hypercall => Some(self.hypercall()),
            _ => self.other(),
        }
    }

    #[inline(always)]
    fn port(&mut self) -> Option<Exit> {
        let access = T::port(self.utcb);
        if access.is_string {
            return self.port_string();
        }
        let (at, size) = (IoAddr::Port(access.port), access.size);
        self.skip(access.length);
        if access.is_read {
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

    /// Handles an access to memory that the guest does not have: decodes the instruction. One that only loads or stores
    /// within a page is completed here, at the address that the hypervisor reports.
    #[inline(never)]
    fn memory_access(&mut self) -> Option<Exit> {
        let address = self.utcb.qualification[1];
        let Some((operand, length)) = self.operand() else {
            return Some(Exit::Stopped(Stop::Emulation));
        };
        let size = operand.size;
        if operand.address as usize % PAGE + usize::from(size) > PAGE {
            return self.execute_operand(&operand, length);
        }
        self.pending = match operand.form {
            Form::Store(value) => {
                self.skip(length);
                return self.write(address, size, extended(value, size, false));
            }
            Form::Load {
                register,
                size: whole,
                is_signed,
            } => Pending::Load {
                register,
                size: whole,
                from: (size, is_signed),
            },
            Form::Compute(computation) if operand.access == Access::Read => {
                Pending::Compute(computation)
            }
            _ => return self.execute_operand(&operand, length),
        };
        self.skip(length);
        self.read(address, size)
    }

    fn read(&mut self, address: u64, size: u8) -> Option<Exit> {
        if let Some(value) = self.controllers_at(address).and_then(|it| it.read(address)) {
            self.complete(Entry::Answer(value.into()));
            return None;
        }
        let at = IoAddr::Mmio(address);
        Some(Exit::Read { at, size })
    }

    fn write(&mut self, address: u64, size: u8, data: u64) -> Option<Exit> {
        let controllers = self.controllers_at(address);
        if controllers
            .and_then(|it| it.write(address, data as u32))
            .is_some()
        {
            self.has_work = true;
            return None;
        }
        let at = IoAddr::Mmio(address);
        Some(Exit::Write { at, size, data })
    }

    #[inline(always)]
    fn controllers_at(&mut self, address: u64) -> Option<&mut Controllers> {
        self.controllers
            .as_mut()
            .filter(|_| Controllers::contain(address))
    }

    #[inline(never)]
    fn other(&mut self) -> Option<Exit> {
        match self.cause() {
            Cause::Cpuid => self.cpuid(),
            Cause::Msr => self.msr(),
            Cause::Halt => {
                self.skip(1);
                self.is_halted = self.controllers.is_some();
                if !self.is_halted {
                    return Some(Exit::Halted);
                }
            }
            Cause::Recall | Cause::InterruptWindow => self.has_work = true,
            Cause::Shutdown => return Some(Exit::Stopped(Stop::TripleFault)),
            Cause::InvalidState => {
                return Some(Exit::Stopped(Stop::EntryFailed(self.utcb.exit)));
            }
            _ => return Some(Exit::Stopped(Stop::Unknown(self.utcb.exit as u32))),
        }
        self.kicked()
    }

    /// Returns an exit if a kick has been requested.
    pub(super) fn kicked(&self) -> Option<Exit> {
        let is_kicked = IS_KICKED.load(Ordering::SeqCst) && IS_KICKED.swap(false, Ordering::SeqCst);
        is_kicked.then_some(Exit::Kicked)
    }
}
