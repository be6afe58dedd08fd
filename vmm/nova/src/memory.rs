//! Guest memory.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use trapline_emulation::TableMemory;
use trapline_interface::{Access, Region};

/// An attached region.
pub struct Attached {
    /// Guest-physical address.
    pub start: u64,
    pub region: Arc<Region>,
    pub access: Access,
}

/// Attached regions. The first is guest RAM, where most accesses are.
#[derive(Default)]
pub struct Memory(pub RefCell<Vec<Attached>>);

impl Memory {
    /// Calls `access` with the region at `address` and the offset in it.
    #[inline]
    fn at<T>(&self, address: u64, access: impl Fn(&Attached, u64) -> Option<T>) -> Option<T> {
        let regions = self.0.borrow();
        let found = |attached: &Attached| {
            let offset = address.checked_sub(attached.start)?;
            (offset < attached.region.len() as u64).then(|| access(attached, offset))
        };
        regions.iter().find_map(found).flatten()
    }

    /// Copies bytes that lie in one region.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let length = into.len();
        let bytes = self.at(address, |it, offset| it.region.pointer(offset, length))?;
        // SAFETY: the region has the bytes, which no reference covers, and `into` is memory of this program.
        unsafe {
            bytes
                .as_ptr()
                .copy_to_nonoverlapping(into.as_mut_ptr(), length)
        };
        Some(())
    }

    /// Writes bytes that lie in one region, which is writable.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Option<()> {
        self.at(address, |it, offset| {
            it.writable()?.write(offset, bytes).ok()
        })
    }
}

impl Attached {
    fn writable(&self) -> Option<&Region> {
        (self.access == Access::ReadWrite).then_some(&*self.region)
    }
}

impl TableMemory for &Memory {
    fn read64(&mut self, address: u64) -> Option<u64> {
        self.at(address, |it, offset| it.region.load64(offset))
    }

    fn write64(&mut self, address: u64, value: u64) -> Option<()> {
        self.at(address, |it, offset| it.writable()?.store64(offset, value))
    }
}
