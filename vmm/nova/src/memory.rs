//! Guest memory.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use trapline_emulation::TableMemory;
use trapline_interface::Region;

/// Attached regions with their guest-physical addresses. The first is guest RAM, where most accesses are.
#[derive(Default)]
pub struct Memory(pub RefCell<Vec<(u64, Arc<Region>)>>);

impl Memory {
    /// Calls `access` with the region at `address` and the offset in it.
    #[inline]
    fn at<T>(&self, address: u64, access: impl Fn(&Region, u64) -> Option<T>) -> Option<T> {
        let regions = self.0.borrow();
        let found = |(start, region): &(u64, Arc<Region>)| {
            let offset = address.checked_sub(*start)?;
            (offset < region.len() as u64).then(|| access(region, offset))
        };
        regions.iter().find_map(found).flatten()
    }

    /// Copies bytes that lie in one region.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let length = into.len();
        let bytes = self.at(address, |region, offset| region.pointer(offset, length))?;
        // SAFETY: the region has the bytes, which no reference covers, and `into` is memory of this program.
        unsafe {
            bytes
                .as_ptr()
                .copy_to_nonoverlapping(into.as_mut_ptr(), length)
        };
        Some(())
    }
}

impl TableMemory for &Memory {
    fn read64(&mut self, address: u64) -> Option<u64> {
        self.at(address, |region, offset| region.load64(offset))
    }

    fn write64(&mut self, address: u64, value: u64) -> Option<()> {
        self.at(address, |region, offset| region.store64(offset, value))
    }
}
