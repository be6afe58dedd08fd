//! Address spaces of a guest at ring 3 ([`trapline_abi::spaces`]), and its page faults.

use super::{Event, ProcessVcpu};
use crate::delivery::PAGE_FAULT;
use crate::layout::SWITCHER;
use crate::paging::PageFault;
use trapline_abi::spaces::{SpaceRequest, DISCARD, FAULT_ADDRESS, FLUSH, LOAD, OPEN, SHARED_END};
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
                self.cpu.system.cr3 = request.first;
                self.mappings.flush_programs(self.process.as_mut())?;
            }
            FLUSH => self.flush_pages(request.first, request.second)?,
            // Nothing persists beyond a load.
            DISCARD => {}
            _ => {}
        }
        Ok(())
    }

    fn flush_pages(&mut self, start: u64, length: u64) -> Result<(), Event> {
        let end = start.saturating_add(length);
        let is_aligned = (start | length).is_multiple_of(PAGE as u64);
        if is_aligned && length > 0 && start >= SHARED_END && end <= SWITCHER {
            self.mappings.unmap(self.process.as_mut(), start..end)?;
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
