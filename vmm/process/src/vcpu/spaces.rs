//! Address spaces of a guest at ring 3 ([`trapline_abi::spaces`]), and its page faults.

use super::{Event, ProcessVcpu};
use crate::delivery::PAGE_FAULT;
use crate::layout::SWITCHER;
use trapline_abi::spaces::{SpaceRequest, DISCARD, FAULT_ADDRESS, FLUSH, LOAD, OPEN, SHARED_END};
use trapline_emulation::paging::PageFault;
use trapline_emulation::TableMemory;
use trapline_interface::{Exit, PAGE};

impl ProcessVcpu {
    /// Performs the request at a guest-physical address. Invalid ones are ignored.
    pub(super) fn request_space(&mut self, at: u64) -> Result<(), Event> {
        let mut bytes = [0; SpaceRequest::BYTES];
        let is_in_page = at % PAGE as u64 + FAULT_ADDRESS + 8 <= PAGE as u64;
        if !is_in_page || self.shared.memory().read(at, &mut bytes).is_none() {
            return Ok(());
        }
        let request = SpaceRequest::from_bytes(&bytes);
        match request.operation {
            OPEN => self.fault_address = Some(at + FAULT_ADDRESS),
            LOAD => {
                if !self.process.load_space(request.first)? {
                    let mappings = &mut self.mappings[self.process.index()];
                    mappings.flush_programs(self.process.as_mut())?;
                }
                self.guest.is_changed = true;
                self.cpu.system.cr3 = self.process.root().unwrap_or(request.first);
            }
            FLUSH => self.flush_pages(request.first, request.second)?,
            DISCARD => self.process.discard_space(request.first),
            _ => {}
        }
        Ok(())
    }

    fn flush_pages(&mut self, start: u64, length: u64) -> Result<(), Event> {
        let end = start.saturating_add(length);
        let is_aligned = (start | length).is_multiple_of(PAGE as u64);
        if is_aligned && length > 0 && start >= SHARED_END && end <= SWITCHER {
            let mappings = &mut self.mappings[self.process.index()];
            mappings.unmap(self.process.as_mut(), start..end)?;
        }
        Ok(())
    }

    /// Continues the guest at its handler of page faults.
    pub(super) fn deliver_page_fault(&mut self, fault: PageFault) -> Option<Exit> {
        if let Some(at) = self.fault_address {
            let _ignored = self.shared.memory().write64(at, fault.address);
        }
        self.deliver(PAGE_FAULT, Some(fault.code))
    }
}
