//! Instructions that take more than one access: they read and write, cross pages, or move strings.

use super::controllers::Controllers;
use super::{NovaVcpu, Pending, Technology, PAGE_FAULT};
use crate::memory::Memory;
use crate::utcb::Parts;
use trapline_emulation::decode::{self, Access, Operand, Privileged, LONGEST};
use trapline_emulation::execute::{Bus, Execution};
use trapline_emulation::paging::{translate, PageFault, Paging};
use trapline_interface::{Exit, Stop, PAGE};

/// The state that an instruction may use: registers, and those of the page walk.
const STATE: Parts = Parts::GENERAL
    .with(Parts::CR)
    .with(Parts::CS_SS)
    .with(Parts::FS_GS);

/// Memory and interrupt controllers of the guest.
struct GuestBus<'a> {
    memory: &'a Memory,
    paging: Paging,
    controllers: Option<&'a mut Controllers>,
}

impl Bus for GuestBus<'_> {
    type Fault = PageFault;

    fn translate(&mut self, address: u64, access: Access) -> Result<u64, PageFault> {
        let found = translate(&mut self.memory, self.paging, address, access);
        found.map(|found| found.address)
    }

    fn read(&mut self, physical: u64, into: &mut [u8]) -> bool {
        let controllers = self.controllers.as_mut();
        if let Some(value) = controllers.and_then(|it| it.read(physical)) {
            into.copy_from_slice(&u64::from(value).to_le_bytes()[..into.len()]);
            return true;
        }
        self.memory.read(physical, into).is_some()
    }

    fn write(&mut self, physical: u64, bytes: &[u8]) -> bool {
        let mut value = [0; 8];
        value[..bytes.len()].copy_from_slice(bytes);
        let value = u64::from_le_bytes(value) as u32;
        let controllers = self.controllers.as_mut();
        controllers.is_some_and(|it| it.write(physical, value).is_some())
            || self.memory.write(physical, bytes).is_some()
    }
}

impl<T: Technology> NovaVcpu<T> {
    /// Decodes the memory operand of the instruction at `rip`.
    #[inline(always)]
    pub(super) fn operand(&self) -> Option<(Operand, u64)> {
        // If there are two operands in memory, the executor finds which is not.
        decode::operand(&self.code()?, &*self.utcb, |_| true)
    }

    /// Reads the instruction at `rip`, in 64-bit mode. Bytes without memory are zero.
    #[inline(always)]
    fn code(&self) -> Option<[u8; LONGEST]> {
        if !self.utcb.is_long_mode() {
            return None;
        }
        let start = self.utcb.rip;
        let mut code = [0; LONGEST];
        let in_page = LONGEST.min(PAGE - start as usize % PAGE);
        self.fetch(start, &mut code[..in_page]);
        if in_page < LONGEST {
            self.fetch_next_page(start.wrapping_add(in_page as u64), &mut code[in_page..]);
        }
        Some(code)
    }

    /// Reads code within a page.
    #[inline(always)]
    fn fetch(&self, address: u64, into: &mut [u8]) {
        let mut memory = &*self.memory;
        let at = translate(&mut memory, self.utcb.paging(), address, Access::Read);
        if let Ok(at) = at {
            let _absent = memory.read(at.address, into);
        }
    }

    #[cold]
    fn fetch_next_page(&self, address: u64, into: &mut [u8]) {
        self.fetch(address, into);
    }

    /// Executes one element of a port access through memory.
    #[cold]
    pub(super) fn port_string(&mut self) -> Option<Exit> {
        let decoded = self.require(STATE).ok().and_then(|()| self.code());
        let decoded = decoded.and_then(|code| decode::privileged(&code, &*self.utcb));
        let Some((Privileged::PortString(string), length)) = decoded else {
            return Some(Exit::Stopped(Stop::Emulation));
        };
        let execution = Execution::port_string(string, length, &*self.utcb);
        self.execute(execution)
    }

    #[cold]
    pub(super) fn execute_operand(&mut self, operand: &Operand, length: u64) -> Option<Exit> {
        let execution = Execution::new(operand, length, &*self.utcb);
        match execution.filter(|_| self.require(STATE).is_ok()) {
            Some(execution) => self.execute(execution),
            None => Some(Exit::Stopped(Stop::Emulation)),
        }
    }

    /// Continues the instruction in progress.
    #[cold]
    pub(super) fn continue_execution(&mut self) -> Option<Exit> {
        let execution = self.execution.take()?;
        self.execute(execution)
    }

    /// Continues an instruction until an exit or its end, or injects its page fault.
    fn execute(&mut self, mut execution: Execution) -> Option<Exit> {
        let mut bus = GuestBus {
            memory: &self.memory,
            paging: self.utcb.paging(),
            controllers: self.controllers.as_mut(),
        };
        let result = execution.run(&mut bus, &mut *self.utcb);
        // The controllers may have changed.
        self.has_work = true;
        match result {
            Ok(exit) if execution.is_finished() => {
                self.changed = self.changed.with(Parts::GENERAL);
                self.skip(0);
                exit
            }
            Ok(exit) => {
                self.execution = Some(execution);
                self.pending = Pending::Execution;
                exit
            }
            Err(fault) => {
                self.utcb.cr2 = fault.address;
                self.changed = self.changed.with(Parts::CR);
                self.inject(PAGE_FAULT, fault.code);
                None
            }
        }
    }

    /// Passes the result of a read to the instruction in progress.
    pub(super) fn answer_execution(&mut self, value: u64) {
        if let Some(execution) = &mut self.execution {
            execution.answer(value);
        }
    }
}
