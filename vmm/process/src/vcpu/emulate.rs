//! Accesses to memory that the process does not have: devices, the local APIC, memory attached later, writes to
//! read-only or tracked memory.
//!
//! A plain load or store is completed here. Any other instruction is executed by the process, alone, on scratch
//! pages in place of the memory.

use super::{Event, Pending, ProcessVcpu, Step};
use crate::control::{Mode, Stop};
use crate::layout::{SCRATCH, SWITCHER};
use crate::mappings::show;
use crate::signals::monotonic_ns;
use std::ops::Range;
use trapline_emulation::decode::{Access, Form, Operand};
use trapline_emulation::paging::translate;
use trapline_emulation::GuestRegisters;
use trapline_interface::{Exit, IoAddr, Stop as GuestStop, PAGE};

/// Page of the local APIC (Intel SDM volume 3, 11.4.1).
const APIC: Range<u64> = 0xfee0_0000..0xfee0_1000;

/// Largest access that exits.
const LARGEST: usize = 8;

/// Stops before the only instruction of a step, at most: interrupts, and pages that its other operands need.
const MOST_STOPS: u32 = 16;

/// Suberror of an instruction that cannot be emulated.
pub(super) const NOT_EMULATED: u32 = 1;

/// An access in progress.
#[derive(Clone, Copy)]
pub(super) struct Emulation {
    operand: Operand,
    /// Length of the instruction.
    length: u64,
    /// The value read, or to be written.
    bytes: [u8; 16],
    /// Bytes that are done.
    done: usize,
    is_writing: bool,
}

/// The part of an access that lies in one page.
struct Part {
    /// Guest-physical address.
    at: u64,
    range: Range<usize>,
}

impl Emulation {
    pub fn new(operand: Operand, length: u64) -> Self {
        let mut bytes = [0; 16];
        if let Form::Store(value) = operand.form {
            bytes[..8].copy_from_slice(&value.to_le_bytes());
        }
        Self {
            operand,
            length,
            bytes,
            done: 0,
            is_writing: matches!(operand.form, Form::Store(_)),
        }
    }

    fn size(&self) -> usize {
        self.operand.size.into()
    }

    fn answer(&mut self, value: u64) {
        let size = self.next_range().len();
        let end = self.done + size;
        self.bytes[self.done..end].copy_from_slice(&value.to_le_bytes()[..size]);
        self.done = end;
    }

    /// Completes the last exit like [`Self::answer`], unless it was a write.
    pub fn answer_if_reading(&mut self, value: u64) {
        if !self.is_writing {
            self.answer(value);
        }
    }

    fn address(&self) -> u64 {
        self.operand.address.wrapping_add(self.done as u64)
    }

    /// The next bytes: at most eight, in one page.
    fn next_range(&self) -> Range<usize> {
        let in_page = PAGE - self.address() as usize % PAGE;
        let length = (self.size() - self.done).min(LARGEST).min(in_page);
        self.done..self.done + length
    }

    fn value(&self, range: Range<usize>) -> u64 {
        let mut bytes = [0; 8];
        bytes[..range.len()].copy_from_slice(&self.bytes[range]);
        u64::from_le_bytes(bytes)
    }

    /// The loaded value, extended to 64 bits.
    fn loaded(&self, is_signed: bool) -> u64 {
        let shift = 64 - 8 * self.size() as u32;
        let value = self.value(0..self.size()) << shift;
        match is_signed {
            true => (value as i64 >> shift) as u64,
            false => value >> shift,
        }
    }
}

impl ProcessVcpu {
    /// Continues an access until it exits or is done.
    pub(super) fn emulate(&mut self, mut now: Emulation) -> Step {
        self.pending = Pending::Nothing;
        if !now.is_writing && now.operand.access != Access::Write {
            while now.done < now.size() {
                if let Some(exit) = self.read_part(&mut now)? {
                    self.pending = Pending::Memory(now);
                    return Ok(Some(exit));
                }
            }
        }
        if !now.is_writing && !self.complete(&mut now)? {
            return Ok(Some(Exit::Stopped(GuestStop::Internal(NOT_EMULATED))));
        }
        while now.is_writing && now.done < now.size() {
            if let Some(exit) = self.write_part(&mut now)? {
                if now.done < now.size() {
                    self.pending = Pending::Memory(now);
                } else {
                    self.finish(&now);
                }
                return Ok(Some(exit));
            }
        }
        self.finish(&now);
        Ok(None)
    }

    /// Moves on behind an instruction that was completed here.
    fn finish(&mut self, now: &Emulation) {
        if now.operand.form.is_plain() {
            self.skip(now.length);
        }
    }

    /// Gives an instruction its operand. Returns false if the process cannot execute it.
    fn complete(&mut self, now: &mut Emulation) -> Result<bool, Event> {
        match now.operand.form {
            Form::Load {
                register,
                size,
                is_signed,
            } => {
                let value = now.loaded(is_signed);
                self.guest.registers.set_operand(register, size, value);
                self.guest.is_changed = true;
            }
            _ => {
                if !self.execute_alone(now)? {
                    return Ok(false);
                }
                now.done = 0;
                now.is_writing = now.operand.access != Access::Read;
            }
        }
        Ok(true)
    }

    fn part(&mut self, now: &Emulation, access: Access) -> Result<Part, Event> {
        let address = now.address();
        let mut memory = self.shared.memory();
        let found = translate(&mut *memory, &self.cpu.system, address, access);
        let at = found?.address;
        let range = now.next_range();
        Ok(Part { at, range })
    }

    /// Reads the next part: from RAM or the local APIC, or by an exit.
    fn read_part(&mut self, now: &mut Emulation) -> Step {
        let part = self.part(now, now.operand.access)?;
        let into = &mut now.bytes[part.range.clone()];
        if self.shared.memory().read(part.at, into).is_some() {
            now.done = part.range.end;
            return Ok(None);
        }
        if let Some(apic) = self.apic.as_mut().filter(|_| APIC.contains(&part.at)) {
            let value = apic.read(part.at - APIC.start, monotonic_ns());
            now.answer(value.into());
            return Ok(None);
        }
        Ok(Some(Exit::Read {
            at: IoAddr::Mmio(part.at),
            size: part.range.len() as u8,
        }))
    }

    /// Writes the next part: to RAM or the local APIC, or by an exit.
    fn write_part(&mut self, now: &mut Emulation) -> Step {
        let part = self.part(now, Access::Write)?;
        let bytes = &now.bytes[part.range.clone()];
        now.done = part.range.end;
        if self.shared.memory().write(part.at, bytes).is_some() {
            return Ok(None);
        }
        let data = now.value(part.range.clone());
        if let Some(apic) = self.apic.as_mut().filter(|_| APIC.contains(&part.at)) {
            apic.write(part.at - APIC.start, data as u32, monotonic_ns());
            return Ok(None);
        }
        Ok(Some(Exit::Write {
            at: IoAddr::Mmio(part.at),
            size: part.range.len() as u8,
            data,
        }))
    }

    /// Executes one instruction in the process with `now.bytes` as its operand, and takes the bytes back. Returns
    /// false if that is impossible.
    fn execute_alone(&mut self, now: &mut Emulation) -> Result<bool, Event> {
        let pages = self.place_scratch(now)?;
        let Some(pages) = pages else { return Ok(false) };
        let is_done = self.step_once()?;
        for (page, scratch) in &pages {
            let range = overlap(now, *page);
            let offset = now.operand.address.wrapping_add(range.start as u64) - page;
            let from = scratch - SWITCHER + offset;
            let _in_range = self.pages[self.process.index()]
                .own
                .read(from, &mut now.bytes[range]);
            let arguments = [*page, PAGE as u64, 0, 0, 0];
            self.process.defer(libc::SYS_munmap, arguments)?;
        }
        Ok(is_done)
    }

    /// Maps scratch pages, with copies of memory, where the operand lies. `None` if the kernel refuses.
    fn place_scratch(&mut self, now: &Emulation) -> Result<Option<Vec<(u64, u64)>>, Event> {
        let first = now.operand.address & !(PAGE as u64 - 1);
        let last = now.operand.address.wrapping_add(now.size() as u64 - 1) & !(PAGE as u64 - 1);
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
            let range = overlap(now, *page);
            let offset = now.operand.address.wrapping_add(range.start as u64) - page;
            contents[offset as usize..][..range.len()].copy_from_slice(&now.bytes[range]);
            let written = self.pages[self.process.index()]
                .own
                .write(scratch - SWITCHER, &contents);
            let is_mapped = *page < SWITCHER
                && show(self.process.as_mut(), *scratch, *page..page + PAGE as u64)?;
            if written.is_err() || !is_mapped {
                return Ok(None);
            }
        }
        Ok(Some(pages))
    }

    /// Lets the process execute one instruction. Returns false if it cannot.
    fn step_once(&mut self) -> Result<bool, Event> {
        for _ in 0..MOST_STOPS {
            match self.resume_until_stop(Mode::Step)? {
                Stop::Signal(libc::SIGTRAP) => return Ok(true),
                Stop::Signal(libc::SIGSEGV) => {
                    let (_, address) = self.process.signal_info()?;
                    if !self.map_memory(address, Access::ReadWrite)? {
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
fn overlap(now: &Emulation, page: u64) -> Range<usize> {
    let in_first = PAGE - now.operand.address as usize % PAGE;
    match page == now.operand.address & !(PAGE as u64 - 1) {
        true => 0..now.size().min(in_first),
        false => in_first..now.size(),
    }
}
