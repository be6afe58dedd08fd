//! Accesses to memory that the process does not have: devices, the local APIC, memory attached later, writes to
//! read-only or tracked memory.
//!
//! An instruction that the executor does not support is executed by the process, alone, on scratch pages in place of the
//! memory.

use super::{Event, Pending, ProcessVcpu, Step};
use crate::control::{Mode, Stop};
use crate::layout::{SCRATCH, SWITCHER};
use crate::memory::Memory;
use crate::signals::LocalApic;
use std::ops::Range;
use std::sync::MutexGuard;
use trapline_emulation::decode::{Access, Operand};
use trapline_emulation::execute::{Bus, Execution, ForeignOperand};
use trapline_emulation::paging::{translate, PageFault};
use trapline_interface::timer::monotonic_ns;
use trapline_interface::{Exit, Stop as GuestStop, System, PAGE};

/// Page of the local APIC (Intel SDM volume 3, 11.4.1).
const APIC: Range<u64> = 0xfee0_0000..0xfee0_1000;

/// Stops before the only instruction of a step, at most: interrupts, and pages that its other operands need.
const MOST_STOPS: u32 = 16;

/// Suberror of an instruction that cannot be emulated.
pub(super) const NOT_EMULATED: u32 = 1;

/// Translation of a page that the guest has just accessed.
#[derive(Clone, Copy)]
pub(super) struct Translated {
    /// Virtual address of the access, and its guest-physical address.
    pub from: u64,
    pub to: u64,
    pub access: Access,
}

impl Translated {
    fn find(&self, address: u64, access: Access) -> Option<u64> {
        let is_found = address / PAGE as u64 == self.from / PAGE as u64 && access == self.access;
        is_found.then(|| self.to.wrapping_add(address.wrapping_sub(self.from)))
    }
}

/// Memory and local APIC of the guest.
struct GuestBus<'a> {
    memory: MutexGuard<'a, Memory>,
    system: &'a System,
    apic: Option<&'a mut LocalApic>,
    translated: Option<Translated>,
}

impl Bus for GuestBus<'_> {
    type Fault = PageFault;

    fn translate(&mut self, address: u64, access: Access) -> Result<u64, PageFault> {
        if let Some(to) = self.translated.and_then(|it| it.find(address, access)) {
            return Ok(to);
        }
        let found = translate(&mut *self.memory, self.system, address, access);
        found.map(|found| found.address)
    }

    fn read(&mut self, physical: u64, into: &mut [u8]) -> bool {
        if self.memory.read(physical, into).is_some() {
            return true;
        }
        let Some(apic) = self.apic.as_mut().filter(|_| APIC.contains(&physical)) else {
            return false;
        };
        let value = apic.read(physical - APIC.start, monotonic_ns());
        into.copy_from_slice(&u64::from(value).to_le_bytes()[..into.len()]);
        true
    }

    fn write(&mut self, physical: u64, bytes: &[u8]) -> bool {
        if self.memory.write(physical, bytes).is_some() {
            return true;
        }
        let Some(apic) = self.apic.as_mut().filter(|_| APIC.contains(&physical)) else {
            return false;
        };
        let mut value = [0; 8];
        value[..bytes.len()].copy_from_slice(bytes);
        let value = u64::from_le_bytes(value) as u32;
        apic.write(physical - APIC.start, value, monotonic_ns());
        true
    }
}

impl ProcessVcpu {
    /// Executes an instruction with this memory operand, of which a page is `translated`.
    pub(super) fn emulate_operand(
        &mut self,
        operand: &Operand,
        length: u64,
        translated: Translated,
    ) -> Step {
        let execution = Execution::new(operand, length, &self.guest.registers);
        let execution = execution.unwrap_or_else(|| Execution::by_caller(operand, length));
        self.emulate(execution, Some(translated))
    }

    /// Continues an instruction until it exits or is done.
    pub(super) fn emulate(
        &mut self,
        mut execution: Execution,
        translated: Option<Translated>,
    ) -> Step {
        self.pending = Pending::Nothing;
        loop {
            let mut bus = GuestBus {
                memory: self.shared.memory(),
                system: &self.cpu.system,
                apic: self.apic.as_mut(),
                translated,
            };
            let exit = execution.run(&mut bus, &mut self.guest.registers);
            drop(bus);
            let exit = exit?;
            if execution.is_finished() {
                self.guest.is_changed = true;
                return Ok(exit);
            }
            let Some(operand) = execution.foreign() else {
                self.pending = Pending::Execution(execution);
                return Ok(exit);
            };
            match self.execute_alone(operand)? {
                Some(value) => execution.executed(value),
                None => return Ok(Some(Exit::Stopped(GuestStop::Internal(NOT_EMULATED)))),
            }
        }
    }

    /// Executes one instruction in the process on this operand. Returns the contents of the operand, or `None` if that
    /// is impossible.
    fn execute_alone(&mut self, operand: ForeignOperand) -> Result<Option<u128>, Event> {
        let mut bytes = operand.value.to_le_bytes();
        let pages = self.place_scratch(&operand, &bytes)?;
        let Some(pages) = pages else { return Ok(None) };
        let is_done = self.step_once()?;
        for (page, scratch) in &pages {
            let range = overlap(&operand, *page);
            let offset = operand.address.wrapping_add(range.start as u64) - page;
            let from = scratch - SWITCHER + offset;
            let own = &self.pages[self.process.index()].own;
            let _in_range = own.read(from, &mut bytes[range]);
            let arguments = [*page, PAGE as u64, 0, 0, 0];
            self.process.defer(libc::SYS_munmap, arguments)?;
        }
        Ok(is_done.then(|| u128::from_le_bytes(bytes)))
    }

    /// Maps scratch pages, with copies of memory, where the operand lies. `None` if the kernel refuses.
    fn place_scratch(
        &mut self,
        operand: &ForeignOperand,
        bytes: &[u8; 16],
    ) -> Result<Option<Vec<(u64, u64)>>, Event> {
        let end = operand.address.wrapping_add(u64::from(operand.size) - 1);
        let [first, last] = [operand.address, end].map(|at| at & !(PAGE as u64 - 1));
        let mut pages = vec![(first, SCRATCH)];
        if last != first {
            pages.push((last, SCRATCH + PAGE as u64));
        }
        for (page, scratch) in &pages {
            let mut contents = [0; PAGE];
            // Devices have no contents.
            let mut memory = self.shared.memory();
            let _ignored = self.cpu.read(&mut memory, *page, &mut contents);
            drop(memory);
            let range = overlap(operand, *page);
            let offset = operand.address.wrapping_add(range.start as u64) - page;
            contents[offset as usize..][..range.len()].copy_from_slice(&bytes[range]);
            let written = self.pages[self.process.index()]
                .own
                .write(scratch - SWITCHER, &contents);
            if written.is_err() {
                return Ok(None);
            }
        }
        let mappings = &mut self.mappings[self.process.index()];
        let is_mapped = mappings.map_scratch(self.process.as_mut(), &pages, MOST_STOPS as usize)?;
        Ok(is_mapped.then_some(pages))
    }

    /// Lets the process execute one instruction. Returns false if it cannot.
    fn step_once(&mut self) -> Result<bool, Event> {
        for _ in 0..MOST_STOPS {
            match self.resume_until_stop(Mode::Step)? {
                Stop::Signal(libc::SIGTRAP) => return Ok(true),
                Stop::Signal(libc::SIGSEGV) => {
                    let (_, address) = self.process.signal_info()?;
                    let unmapped = self.map_memory(address, Access::ReadWrite)?;
                    if unmapped.is_some() {
                        return Ok(false);
                    }
                }
                Stop::Signal(_) => {}
                _ => return Ok(false),
            }
        }
        Ok(false)
    }
}

/// Bytes of the operand that lie in `page`.
fn overlap(operand: &ForeignOperand, page: u64) -> Range<usize> {
    let size = usize::from(operand.size);
    let in_first = PAGE - operand.address as usize % PAGE;
    if page == operand.address & !(PAGE as u64 - 1) {
        0..size.min(in_first)
    } else {
        in_first..size
    }
}
