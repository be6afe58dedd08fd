//! Attached regions, by guest-physical address.

use std::collections::BTreeMap;
use std::sync::Arc;
use trapline_emulation::TableMemory;
use trapline_interface::{Access, Error, Gpa, Region, Result, PAGE};

/// An attached region.
pub(crate) struct Attached {
    pub region: Arc<Region>,
    pub access: Access,
    /// The process has it mapped. Memory attached later is emulated.
    pub is_mapped: bool,
    /// Dirty log, if tracking is on.
    dirty: Option<Vec<u64>>,
}

/// Memory at one guest-physical address.
pub(crate) struct Found<'a> {
    pub attached: &'a mut Attached,
    pub offset: u64,
}

/// The memory of a VM.
#[derive(Default)]
pub(crate) struct Memory {
    regions: BTreeMap<Gpa, Attached>,
}

impl Attached {
    /// Returns true if the process may write to it without an exit.
    pub fn is_writable(&self) -> bool {
        self.access == Access::ReadWrite && self.dirty.is_none()
    }

    fn clean(&self) -> Vec<u64> {
        vec![0; (self.region.len() / PAGE).div_ceil(64)]
    }

    fn mark(&mut self, offset: u64) {
        let page = offset as usize / PAGE;
        if let Some(word) = self.dirty.as_mut().and_then(|log| log.get_mut(page / 64)) {
            *word |= 1 << (page % 64);
        }
    }
}

impl Memory {
    pub fn attach(&mut self, at: Gpa, region: Arc<Region>, access: Access) -> Result<()> {
        if let Some(reason) = self.attach_error(at, region.len() as u64) {
            return Err(Error::BadAttach { at, reason });
        }
        let attached = Attached {
            region,
            access,
            is_mapped: false,
            dirty: None,
        };
        self.regions.insert(at, attached);
        Ok(())
    }

    fn attach_error(&self, at: Gpa, length: u64) -> Option<&'static str> {
        if !at.0.is_multiple_of(PAGE as u64) {
            return Some("the address is not that of a page");
        }
        let Some(end) = at.0.checked_add(length) else {
            return Some("it would end beyond the address space");
        };
        let overlaps = |(other, there): (&Gpa, &Attached)| {
            other.0 < end && at.0 < other.0 + there.region.len() as u64
        };
        let is_taken = self.regions.iter().any(overlaps);
        is_taken.then_some("memory is attached there already")
    }

    pub fn detach(&mut self, at: Gpa) -> Result<Attached> {
        self.regions.remove(&at).ok_or(Error::NotAttached(at))
    }

    pub fn track(&mut self, at: Gpa, on: bool) -> Result<()> {
        let there = self.at(at)?;
        there.dirty = on.then(|| there.clean());
        Ok(())
    }

    pub fn dirty_log(&mut self, at: Gpa) -> Result<Vec<u64>> {
        let there = self.at(at)?;
        let clean = there.clean();
        let log = there.dirty.as_mut().ok_or(Error::NotTracked(at))?;
        Ok(std::mem::replace(log, clean))
    }

    fn at(&mut self, at: Gpa) -> Result<&mut Attached> {
        self.regions.get_mut(&at).ok_or(Error::NotAttached(at))
    }

    /// Iterates over the regions in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (Gpa, &Attached)> {
        self.regions.iter().map(|(at, there)| (*at, there))
    }

    /// Iterates over the regions in ascending order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Gpa, &mut Attached)> {
        self.regions.iter_mut().map(|(at, there)| (*at, there))
    }

    /// Returns the memory at `address`.
    pub fn find(&mut self, address: u64) -> Option<Found<'_>> {
        let (start, attached) = self.regions.range_mut(..=Gpa(address)).next_back()?;
        let offset = address - start.0;
        (offset < attached.region.len() as u64).then_some(Found { attached, offset })
    }

    /// Reads bytes that lie in one page. `None` without memory there.
    pub fn read(&mut self, address: u64, into: &mut [u8]) -> Option<()> {
        let found = self.find(address)?;
        found.attached.region.read(found.offset, into).ok()
    }

    /// Writes bytes that lie in one page. `None` without writable memory there.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Option<()> {
        let found = self.find(address)?;
        if found.attached.access == Access::ReadOnly {
            return None;
        }
        found.attached.mark(found.offset);
        found.attached.region.write(found.offset, bytes).ok()
    }
}

impl TableMemory for Memory {
    fn read64(&mut self, address: u64) -> Option<u64> {
        let found = self.find(address)?;
        found.attached.region.load64(found.offset)
    }

    fn write64(&mut self, address: u64, value: u64) -> Option<()> {
        self.write(address, &value.to_le_bytes())
    }
}
